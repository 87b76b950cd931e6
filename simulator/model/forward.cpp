// forward.cpp - requests that are forwarded while a group is being stolen, and deduplication (R16).
//
// One client sends requests 1..REQUESTS, at most PIPELINE of them unanswered at a time, to the
// master M or, after a Steal, to N. Every request may arrive any number of times, in any order, at
// any later time. While M hands over it forwards to N, which queues; the Steal is decided, and N
// proposes what it queued in any order, or it is not, and N sends its queue back. What is proposed
// is applied in the order of the log: executed, answered as a duplicate, or refused as a gap.
//
// Checked: no request is executed twice or before an earlier one, and none is acknowledged that is
// not executed (I6). Nothing of the log matters but what it did, so its length needs no bound.
#include "explore.h"

#ifndef REQUESTS
#define REQUESTS 6
#endif
#ifndef PIPELINE
#define PIPELINE 3
#endif

namespace {

constexpr int Q = REQUESTS;
static_assert(Q < 8, "sets of requests are bits of a u8");

enum Rule { BUG_NO_DEDUPE, BUG_DEDUPE_LEQ, BUG_ACK_GAP };
std::vector<Flag> RULES = {
    {"BUG_NO_DEDUPE", "R16", "what is applied is executed, whether or not it was before"},
    {"BUG_DEDUPE_LEQ", "R16", "a request is executed if it is above the last one executed"},
    {"BUG_ACK_GAP", "R16", "a request above a gap is acknowledged like any other"},
};
inline bool without(Rule rule) { return RULES[rule].on; }

enum Happened { DUPLICATE, GAP, QUEUED_EXECUTED, BOUNCED, ALL_DONE };
std::vector<Witness> WITNESSES = {
    {"a duplicate is answered with the first one's result"},
    {"a request above a gap is refused"},
    {"a request is executed that was forwarded to the new master"},
    {"a Steal fails and the queue is sent back"},
    {"the client has all its answers"},
};
inline void saw(Happened what) { WITNESSES[what].seen = true; }

enum Mode : u8 { M_LEADS, HANDING_OVER, N_LEADS };
enum Broken : u8 { SOUND, TWICE, OUT_OF_ORDER };

struct State {
    u8 mode;
    u8 queue;         // requests that N keeps
    u8 last;          // the highest executed
    u8 executed;      // which were
    u8 acknowledged;  // which have had that answer, received or not
    u8 oldest;        // the client's oldest request without an answer
    u8 broken;
};

constexpr u8 bit(int q) { return u8(1 << q); }

// apply(): what the state machine does with request q, and the answer its node gives.
std::string apply(State& s, int q) {
    const bool gap = q > s.last + 1;
    const bool execute = without(BUG_NO_DEDUPE) ? true
                         : without(BUG_DEDUPE_LEQ) ? q > s.last
                                                   : q == s.last + 1;
    if (execute) {
        if (s.executed & bit(q)) s.broken = TWICE;
        else if (q <= s.last) s.broken = OUT_OF_ORDER;
        s.executed |= bit(q);
        s.last = u8(std::max<int>(s.last, q));
        s.acknowledged |= bit(q);
        return "executed";
    }
    if (q <= s.last) {
        saw(DUPLICATE);
        s.acknowledged |= bit(q);
        return "a duplicate";
    }
    if (without(BUG_ACK_GAP)) s.acknowledged |= bit(q);
    if (gap) saw(GAP);
    return "refused: a gap";
}

template <class Emit>
void steps(const State& s, Emit& emit) {
    if (s.broken) return;
    const int sent = std::min(Q, s.oldest + PIPELINE - 1);
    for (int q = 1; q <= sent; ++q) {
        State t = s;
        if (s.mode == HANDING_OVER) {
            t.queue |= bit(q);
            emit(t, [&] { return "M forwards request " + str(q) + ", N queues it"; });
        } else {
            const std::string done = apply(t, q);
            emit(t, [&] {
                return std::string(s.mode == M_LEADS ? "M" : "N") + " proposes request " + str(q) +
                       ": " + done;
            });
        }
    }
    if (s.mode == N_LEADS)
        for (int q = 1; q <= Q; ++q) {
            if (!(s.queue & bit(q))) continue;
            State t = s;
            t.queue &= u8(~bit(q));
            const std::string done = apply(t, q);
            if (t.last > s.last) saw(QUEUED_EXECUTED);
            emit(t, [&] { return "N proposes request " + str(q) + " of its queue: " + done; });
        }
    if (s.mode == M_LEADS) {
        State t = s;
        t.mode = HANDING_OVER;
        emit(t, [] { return std::string("M begins to hand over"); });
    }
    if (s.mode == HANDING_OVER) {
        State t = s;
        t.mode = N_LEADS;
        emit(t, [] { return std::string("the Steal is decided"); });
        t.mode = M_LEADS;
        t.queue = 0;
        if (s.queue) saw(BOUNCED);
        emit(t, [] { return std::string("the Steal fails, N sends its queue back"); });
    }
    if (s.mode == N_LEADS && !s.queue) {  // and so on, the other way round
        State t = s;
        t.mode = M_LEADS;
        emit(t, [] { return std::string("N's mastership ends, M leads again"); });
    }
    if (s.oldest <= Q && (s.acknowledged & bit(s.oldest))) {
        State t = s;
        ++t.oldest;
        if (t.oldest > Q) saw(ALL_DONE);
        emit(t, [&] { return "the client has its answer to request " + str(s.oldest); });
    }
}

struct Model {
    using State = ::State;

    static std::string title() {
        return "forward (" + str(Q) + " requests, " + str(PIPELINE) + " at a time)";
    }
    static std::vector<Flag>& flags() { return RULES; }
    static std::vector<Witness>& witnesses() { return WITNESSES; }
    static State initial() {
        State s{};
        s.oldest = 1;
        return s;
    }
    template <class Emit>
    static void successors(const State& s, Emit&& emit) {
        steps(s, emit);
    }
    static void canonical(State&) {}
    static u64 outcome(const State& s) { return u64(s.executed) << 8 | s.acknowledged; }

    static const char* violated(const State& s) {
        if (s.broken == TWICE) return "I6: a request is executed twice";
        if (s.broken == OUT_OF_ORDER) return "I6: a request is executed after a later one";
        if (s.acknowledged & ~s.executed)
            return "I6: a request is acknowledged that is not executed";
        return nullptr;
    }
    static std::string describe(const State& s) {
        std::string text = "  executed:";
        for (int q = 1; q <= Q; ++q)
            if (s.executed & bit(q)) text += " " + str(q);
        text += "; acknowledged:";
        for (int q = 1; q <= Q; ++q)
            if (s.acknowledged & bit(q)) text += " " + str(q);
        return text + "\n";
    }
};

}  // namespace

int main(int argc, char** argv) { return explore<Model>(argc, argv); }
