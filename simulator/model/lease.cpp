// lease.cpp - who may act for a group: lease, Steal, imperfect clocks, late nodes, crashes.
//
// The log is taken as agreed (log.cpp is about that), in the most hostile way that agreement
// allows: any of the entries ever proposed for a slot may be decided there at any later time, slots
// may be decided in any order, nodes apply them in order but as late as they like, and again after
// a restart. Checked: at most one node acts at any true time (I4); whoever acts has applied all
// that was acknowledged or read before (I7); and once faults are over every node can become master
// (I10).
//
// Time is discrete. A clock, whenever it is read, shows any value within the margin EPS of the true
// time: that covers offset, drift and steps of a clock within the bound.
//
// Nothing is bounded but the number of nodes, the open part of the log (WINDOW slots above what
// every node has applied, of which a node proposes in at most AHEAD above its own prefix) and how
// many different entries are proposed for one slot (CANDIDATES). Time, log length and crashes go on
// for ever, because only differences matter:
//   times       are counted from now; an expiry so far back that nobody can act on it and everybody
//               may pass it stays where it is;
//   slots       are counted from the prefix that every node has applied, of which only the lease is
//               kept. A restarted node begins there: below, it could not act (R11), and what it
//               proposed knowing an older version would be void (R8);
//   versions    are slots; an entry that names a superseded one is void, whatever else it says;
//   incarnations are the current one or an older one.
// Of two old incarnations of a node's lease the later expiry need not win (R15): it may then seem
// to others to end earlier than it does, which lets them do more, and nobody acts on it.
//
// A slot may also be decided to hold nothing of effect: a leader fills gaps with such entries.
//
// REDUCTION=0: a slot is decided in a step of its own, nobody is equal to anybody.
// REDUCTION=1: a slot is decided when the first node applies it, hence in order: until then a
//              decision only keeps others from proposing there. A read that would be stale is
//              always under way where there can be one. A Steal and a BeMaster that name the same
//              are one entry: the version they name says whether they extend a lease or install
//              one. Nodes are interchangeable.
#include "explore.h"

#include <functional>

#ifndef NODES
#define NODES 3
#endif
#ifndef WINDOW
#define WINDOW 3
#endif
#ifndef AHEAD_SLOTS
#define AHEAD_SLOTS 2
#endif
#ifndef CANDIDATES
#define CANDIDATES 2
#endif
#ifndef LEASE_TICKS
#define LEASE_TICKS 2
#endif
#ifndef MARGIN_TICKS
#define MARGIN_TICKS 1
#endif
#ifndef REDUCTION
#define REDUCTION 1
#endif

namespace {

constexpr int N = NODES, W = WINDOW, AHEAD = AHEAD_SLOTS, K = CANDIDATES, LEASE = LEASE_TICKS;
constexpr int EPS = MARGIN_TICKS;
static_assert(N <= 3 && W <= 7, "entries are packed into 16 bits");

enum Rule {
    BUG_ACT_UNTIL_APPLY,
    BUG_NO_CAS,
    BUG_RESTART_ACT,
    BUG_NO_HOLDER_MARGIN,
    BUG_NO_OTHER_MARGIN,
    BUG_CLOCKS_BEYOND,
    BUG_ACK_ANY,
    BUG_READ_NO_EPOCH,
    BUG_RENEW_SHORTEN,
};
std::vector<Flag> RULES = {
    {"BUG_ACT_UNTIL_APPLY", "R3", "the master acts until it has applied its Steal"},
    {"BUG_NO_CAS", "R8", "a lease entry is valid whatever version it names"},
    {"BUG_RESTART_ACT", "R11", "a restarted node acts on the lease it replays"},
    {"BUG_NO_HOLDER_MARGIN", "R12", "the holder acts up to the expiry"},
    {"BUG_NO_OTHER_MARGIN", "R12", "others start at the expiry"},
    {"BUG_CLOCKS_BEYOND", "R12", "clocks are off by more than the margin"},
    {"BUG_ACK_ANY", "R14", "what is applied is acknowledged by a node that does not act"},
    {"BUG_READ_NO_EPOCH", "R14", "a read is answered under another lease than it began under"},
    {"BUG_RENEW_SHORTEN", "R15", "a renewal may move the expiry back"},
};
inline bool without(Rule rule) { return RULES[rule].on; }
inline int error() { return EPS + without(BUG_CLOCKS_BEYOND); }

enum Happened { STOLEN, VOIDED, RENEWED, TAKEN_FREE };
std::vector<Witness> WITNESSES = {
    {"a Steal makes its target act"},
    {"a suspended master acts again"},
    {"a lease is renewed"},
    {"a lease of another node is taken after it ran out"},
};
inline void saw(Happened what) { WITNESSES[what].seen = true; }

// -- entries: 16 bits each ------------------------------------------------------------------------

enum Kind : u8 { NONE, NOOP, WRITE, BE_MASTER, STEAL };
constexpr int NOBODY = 3;

struct Entry {
    u8 kind = NONE, node = 0, current = 0, prev = 0;
    int left = 0;  // until its expiry

    static constexpr int BIAS = 2 * EPS + 1;
    u16 packed() const {
        if (kind == NONE) return 0;
        return u16(kind | node << 3 | current << 5 | prev << 6 | (left + BIAS) << 9);
    }
    static Entry of(u16 bits) {
        Entry entry;
        entry.kind = bits & 7;
        entry.node = bits >> 3 & 3;
        entry.current = bits >> 5 & 1;
        entry.prev = bits >> 6 & 7;
        entry.left = (bits >> 9) - BIAS;
        return entry;
    }
    bool is_lease() const { return kind == BE_MASTER || kind == STEAL; }
};
constexpr u16 EMPTY = 0;
u16 noop() {
    Entry entry;
    entry.kind = NOOP;
    return entry.packed();
}

// R12: the last time left at which nobody, by whatever reading of a clock, acts any more; and the
// first at which somebody may think the lease is over.
int too_late_to_act() { return (without(BUG_NO_HOLDER_MARGIN) ? 0 : EPS) - error(); }
int seems_over() { return error() - (without(BUG_NO_OTHER_MARGIN) ? 0 : EPS) - 1; }
// Expiries further back are all the same.
int floor_of_time() { return std::min(too_late_to_act(), seems_over()); }

struct Lease {
    int holder = NOBODY, current = 0, left = 0;
    int version = 0;  // the slot of the last valid entry; 0: in the common prefix

    // The effect of a decided entry in slot k; returns whether it changed the holder or
    // incarnation.
    bool apply(const Entry& entry, int k) {
        if (!entry.is_lease() || (entry.prev != version && !without(BUG_NO_CAS))) return false;
        const bool same = entry.kind == BE_MASTER && entry.node == holder &&
                          entry.current == current && current;
        left = same && !without(BUG_RENEW_SHORTEN) ? std::max(left, entry.left) : entry.left;
        holder = entry.node;
        current = entry.current;
        version = k;
        return !same;
    }
};

struct Node {
    u8 applied;    // slots of the window
    u8 suspended;  // slot of its unresolved Steal
    u8 reading;    // a read that would be stale: 0 none, 1 begun in this epoch, 2 in an earlier one
    u8 none;
};
struct State {
    u16 decided[W];
    u16 candidate[W][K];
    Node node[N];
    u8 holder, current;
    signed char left;  // the lease after the common prefix
    u8 acknowledged;   // the highest slot of the window somebody has acknowledged or read
    u8 slots, ticks;   // for the reader of a counterexample, elsewhere zero: what lies behind
};

bool is_decided(const State& s, int k) { return s.decided[k - 1] != EMPTY; }

Lease lease_after(const State& s, int applied) {
    Lease lease;
    lease.holder = s.holder;
    lease.current = s.current;
    lease.left = s.left;
    for (int k = 1; k <= applied; ++k) lease.apply(Entry::of(s.decided[k - 1]), k);
    return lease;
}

// acting(): may node n believe, by some reading of its clock, that it may act? (R11, R12, R13)
bool acting(const State& s, int n, const Lease& lease) {
    if (lease.holder != n || (!lease.current && !without(BUG_RESTART_ACT))) return false;
    if (s.node[n].suspended && !without(BUG_ACT_UNTIL_APPLY)) return false;
    return lease.left > too_late_to_act();
}
bool acting(const State& s, int n) { return acting(s, n, lease_after(s, s.node[n].applied)); }

// free(): may a node believe that nobody holds it any more?
bool is_free(const Lease& lease) {
    return lease.holder == NOBODY || lease.left <= seems_over();
}

// -- what follows from a step at once -------------------------------------------------------------

// An entry whose version is superseded in the decided prefix does nothing.
u16 still_valid(u16 bits, int version) {
    const Entry entry = Entry::of(bits);
    if (!entry.is_lease() || without(BUG_NO_CAS) || entry.prev >= version) return bits;
    return noop();
}

void sort_proposals(u16* slot) { std::sort(slot, slot + K, std::greater<u16>()); }

void void_superseded(State& s) {
    Lease lease = lease_after(s, 0);
    int k = 1;
    for (; k <= W && is_decided(s, k); ++k) {
        s.decided[k - 1] = still_valid(s.decided[k - 1], lease.version);
        lease.apply(Entry::of(s.decided[k - 1]), k);
    }
    for (; k <= W; ++k) {
        if (is_decided(s, k)) s.decided[k - 1] = still_valid(s.decided[k - 1], lease.version);
        for (u16& one : s.candidate[k - 1])
            if (still_valid(one, lease.version) != one) one = EMPTY;
    }
    for (auto& slot : s.candidate) {
        sort_proposals(slot);
        for (int i = 1; i < K; ++i)
            if (slot[i] == slot[i - 1]) slot[i] = EMPTY;
        sort_proposals(slot);
    }
}

u16 shifted(u16 bits, bool superseded) {
    Entry entry = Entry::of(bits);
    if (!entry.is_lease()) return bits;
    if (entry.prev) {
        --entry.prev;
    } else if (superseded && !without(BUG_NO_CAS)) {
        return noop();
    }
    return entry.packed();
}

void drop_common_slot(State& s) {
    ++s.slots;
    Lease lease = lease_after(s, 0);
    lease.apply(Entry::of(s.decided[0]), 1);
    s.holder = u8(lease.holder);
    s.current = u8(lease.current);
    s.left = (signed char)lease.left;
    const bool superseded = lease.version == 1;
    for (int k = 0; k < W; ++k) {  // what is void is as good as nothing, which anybody may propose
        s.decided[k] = k + 1 < W ? shifted(s.decided[k + 1], superseded) : EMPTY;
        for (int i = 0; i < K; ++i)
            s.candidate[k][i] = k + 1 < W ? shifted(s.candidate[k + 1][i], superseded) : EMPTY;
        for (u16& one : s.candidate[k])
            if (one == noop()) one = EMPTY;
    }
    for (Node& node : s.node) {
        --node.applied;
        if (node.suspended) --node.suspended;
    }
    if (s.acknowledged) --s.acknowledged;
}

void forget_kinds(State& s) {
    const auto forget = [](u16& bits) {
        Entry entry = Entry::of(bits);
        if (entry.kind == STEAL) entry.kind = BE_MASTER;
        bits = entry.packed();
    };
    for (u16& one : s.decided) forget(one);
    for (auto& slot : s.candidate)
        for (u16& one : slot) forget(one);
}

void settle(State& s) {
    for (int n = 0; n < N; ++n)
        if (acting(s, n)) s.acknowledged = std::max(s.acknowledged, s.node[n].applied);
    if (REDUCTION) {
        forget_kinds(s);
        for (Node& node : s.node)
            if (node.applied < s.acknowledged && !node.reading) node.reading = 1;
    }
    while (std::all_of(s.node, s.node + N, [](const Node& node) { return node.applied; }))
        drop_common_slot(s);
    void_superseded(s);
}

// -- steps ----------------------------------------------------------------------------------------

void tick(State& s) {
    ++s.ticks;
    const auto sooner = [](int left) { return std::max(left - 1, floor_of_time()); };
    const auto age = [&](u16& bits) {
        Entry entry = Entry::of(bits);
        if (!entry.is_lease()) return;
        entry.left = sooner(entry.left);
        bits = entry.packed();
    };
    s.left = s.holder == NOBODY ? s.left : (signed char)sooner(s.left);
    for (u16& one : s.decided) age(one);
    for (auto& slot : s.candidate)
        for (u16& one : slot) age(one);
}

void apply_next(State& s, int n) {
    Node& node = s.node[n];
    const bool acted = acting(s, n), suspended = node.suspended;
    Lease lease = lease_after(s, node.applied);
    const Entry entry = Entry::of(s.decided[node.applied]);
    const Lease earlier = lease;
    ++node.applied;
    const bool new_epoch = lease.apply(entry, node.applied);
    if (node.suspended && node.suspended <= node.applied) node.suspended = 0;
    if (node.reading && new_epoch) node.reading = without(BUG_READ_NO_EPOCH) ? 2 : 0;
    if (entry.kind == WRITE && entry.node == n && entry.current)
        s.acknowledged = std::max(s.acknowledged, node.applied);
    if (acting(s, n) && !acted) {
        if (suspended) saw(VOIDED);
        if (earlier.holder != n && earlier.holder != NOBODY)
            saw(is_free(earlier) ? TAKEN_FREE : STOLEN);
    }
    if (acted && lease.version == node.applied && lease.left > earlier.left) saw(RENEWED);
}

void crash(State& s, int n) {
    s.node[n] = Node{};
    const auto age = [&](u16& bits) {
        Entry entry = Entry::of(bits);
        if (entry.kind < WRITE || entry.node != n) return;
        entry.current = 0;
        bits = entry.packed();
    };
    if (s.holder == n) s.current = 0;
    for (u16& one : s.decided) age(one);
    for (auto& slot : s.candidate)
        for (u16& one : slot) age(one);
}

std::string node_name(int n) { return "N" + str(n); }
std::string until(const State& s, int left) {
    return left <= floor_of_time() ? "expired" : "until t=" + str(s.ticks + left);
}
std::string name(const State& s, const Entry& entry) {
    const std::string who = node_name(entry.node) + (entry.current ? "" : " (an old incarnation)");
    const std::string rest =
        ", after version " + str(s.slots + entry.prev) + ", " + until(s, entry.left) + "}";
    switch (entry.kind) {
        case NOOP: return "nothing of effect";
        case WRITE: return "a write by " + who;
        case BE_MASTER: return (REDUCTION ? "lease{of " : "BeMaster{") + who + rest;
        case STEAL: return "Steal{to " + who + rest;
    }
    return "-";
}

template <class Emit>
class Steps {
  public:
    Steps(const State& state, Emit& to) : s(state), emit(to) {}

    void all() {
        State later = s;
        tick(later);
        go(later, [&] { return "time passes: t=" + str(s.ticks + 1); });
        if (!REDUCTION)
            for (int k = 1; k <= W; ++k)
                if (!is_decided(s, k)) decide(k);
        for (int n = 0; n < N; ++n) {
            if (s.node[n].applied < W) apply(n);
            propose(n);
            if (!REDUCTION) read(n);
            State t = s;
            crash(t, n);
            go(t, [&] { return node_name(n) + " crashes and restarts"; });
        }
    }

  private:
    template <class Text>
    void go(State next, Text text) {
        settle(next);
        emit(next, text);
    }

    // Whatever was proposed, or nothing.
    template <class Use>
    void decisions(int k, Use use) {
        const auto decided = [&](u16 entry) {
            State t = s;
            t.decided[k - 1] = entry;
            for (u16& one : t.candidate[k - 1]) one = EMPTY;
            use(t);
        };
        for (const u16 entry : s.candidate[k - 1])
            if (entry != EMPTY) decided(entry);
        decided(noop());
    }

    void decide(int k) {
        decisions(k, [&](const State& t) {
            go(t, [&] {
                return "slot " + str(s.slots + k) + " is decided: " +
                       name(s, Entry::of(t.decided[k - 1]));
            });
        });
    }

    void apply(int n) {
        const int k = s.node[n].applied + 1;
        const auto applied = [&](State t) {
            apply_next(t, n);
            go(t, [&] {
                return node_name(n) + " applies slot " + str(s.slots + k) +
                       (is_decided(s, k) ? ": " : ", which is decided: ") +
                       name(s, Entry::of(t.decided[k - 1])) + (acting(t, n) ? ", and acts" : "");
            });
        };
        if (is_decided(s, k)) applied(s);
        else if (REDUCTION) decisions(k, applied);
    }

    void read(int n) {  // its value is older than what others have told: to be refused
        if (s.node[n].applied >= s.acknowledged || s.node[n].reading) return;
        State t = s;
        t.node[n].reading = 1;
        go(t, [&] { return node_name(n) + " begins a read of what it has applied"; });
    }

    void propose(int n) {
        const Node& me = s.node[n];
        const Lease lease = lease_after(s, me.applied);
        const bool acts = acting(s, n, lease);
        const bool may = lease.holder == n || is_free(lease);
        for (int k = me.applied + 1; k <= std::min(W, me.applied + AHEAD); ++k) {
            if (is_decided(s, k)) continue;
            Entry entry;
            entry.node = u8(n);
            entry.current = 1;
            entry.kind = WRITE;
            if (acts && without(BUG_ACK_ANY)) offer(n, k, entry);
            entry.prev = u8(lease.version);
            entry.kind = BE_MASTER;  // while suspended only in the Steal's own slot (R13)
            if (may && (!me.suspended || me.suspended == k)) offer_until(n, k, entry);
            if (!acts || me.suspended) continue;
            entry.kind = STEAL;
            for (int to = 0; to < N; ++to)
                for (int current = 1; current >= 0; --current) {
                    if (to == n) continue;
                    entry.node = u8(to);
                    entry.current = u8(current);
                    offer_until(n, k, entry);
                }
        }
    }

    void offer_until(int n, int k, Entry entry) {
        for (int clock = -error(); clock <= error(); ++clock) {
            entry.left = clock + LEASE;
            offer(n, k, entry);
        }
    }

    void offer(int n, int k, const Entry& entry) {
        State t = s;
        u16* slot = t.candidate[k - 1];
        u16* const place = std::find(slot, slot + K, EMPTY);
        if (std::find(slot, slot + K, entry.packed()) != slot + K || place == slot + K) return;
        *place = entry.packed();
        if (entry.kind == STEAL) t.node[n].suspended = u8(k);  // R3: before it leaves
        go(t, [&] {
            return node_name(n) + " proposes in slot " + str(s.slots + k) + ": " + name(s, entry);
        });
    }

    const State& s;
    Emit& emit;
};

// I10: faults are over, what was proposed gets decided, everybody applies it, leases run out. Then
// nobody is suspended, and whichever node asks for the lease gets it and acts.
const char* stuck(State s) {
    bool needed = false;
    for (int k = W; k >= 1; --k) {
        needed |= is_decided(s, k) || s.candidate[k - 1][0] != EMPTY;
        for (const Node& node : s.node) needed |= node.suspended == k;  // its master settles it
        if (needed && !is_decided(s, k))
            s.decided[k - 1] = s.candidate[k - 1][0] != EMPTY ? s.candidate[k - 1][0] : noop();
    }
    for (int n = 0; n < N; ++n)
        while (s.node[n].applied < W && is_decided(s, s.node[n].applied + 1)) apply_next(s, n);
    const Lease last = lease_after(s, s.node[0].applied);
    for (int n = 0; n < N; ++n) {
        if (s.node[n].suspended) return "I10: a master stays suspended for ever";
        Lease lease = last;
        lease.left = floor_of_time();
        if (lease.holder != n && !is_free(lease)) return "I10: a lease never runs out";
        Entry entry;
        entry.kind = BE_MASTER;
        entry.node = u8(n);
        entry.current = 1;
        entry.prev = u8(lease.version);
        entry.left = LEASE;
        lease.apply(entry, lease.version + 1);
        if (!acting(s, n, lease)) return "I10: a node that gets the lease does not act";
    }
    return nullptr;
}

struct Model {
    using State = ::State;

    static std::string title() {
        return "lease (" + str(N) + " nodes, window of " + str(W) + " slots, " + str(K) +
               " proposals per slot, lease of " + str(LEASE) +
               " ticks, margin of " + str(EPS) + "; time, log and crashes without end" +
               (REDUCTION ? ")" : ", unreduced)");
    }
    static std::vector<Flag>& flags() { return RULES; }
    static std::vector<Witness>& witnesses() { return WITNESSES; }

    static State initial() {
        State s{};
        for (u16& one : s.decided) one = EMPTY;
        for (auto& slot : s.candidate)
            for (u16& one : slot) one = EMPTY;
        s.holder = NOBODY;
        return s;
    }

    template <class Emit>
    static void successors(const State& s, Emit&& emit) {
        Steps<Emit>(s, emit).all();
    }

    // What tells a node from others, whatever they are called.
    static u64 signature(const State& s, int n) {
        const Node& node = s.node[n];
        u64 sum = u64(node.applied) | u64(node.suspended) << 8 | u64(node.reading) << 16 |
                  u64(s.holder == n) << 24;
        const auto add = [&](int k, u16 bits) {
            Entry entry = Entry::of(bits);
            if (entry.kind < WRITE || entry.node != n) return;
            entry.node = 0;
            sum += (u64(entry.packed()) << 8 | u64(k)) * 0x9E3779B97F4A7C15ull;
        };
        for (int k = 0; k < W; ++k) {
            add(k, s.decided[k]);
            for (const u16 one : s.candidate[k]) add(W + k, one);
        }
        return sum;
    }

    static State renamed(const State& s, const int* to) {
        State t = s;
        const auto rename = [&](u16& bits) {
            Entry entry = Entry::of(bits);
            if (entry.kind < WRITE) return;
            entry.node = u8(to[entry.node]);
            bits = entry.packed();
        };
        for (u16& one : t.decided) rename(one);
        for (auto& slot : t.candidate) {
            for (u16& one : slot) rename(one);
            sort_proposals(slot);
        }
        for (int n = 0; n < N; ++n) t.node[to[n]] = s.node[n];
        t.holder = s.holder == NOBODY ? u8(NOBODY) : u8(to[s.holder]);
        return t;
    }

    // Nodes in the order of their signatures; those that share one, in the order that gives the
    // least state.
    static void canonical(State& s) {
        s.slots = s.ticks = 0;
        if (!REDUCTION) return;
        u64 signatures[N];
        int order[N];
        for (int n = 0; n < N; ++n) signatures[n] = signature(s, n), order[n] = n;
        const auto less = [&](int x, int y) { return signatures[x] < signatures[y]; };
        State best{};
        bool first = true;
        do {
            if (!std::is_sorted(order, order + N, less)) continue;
            int to[N];
            for (int at = 0; at < N; ++at) to[order[at]] = at;
            const State t = renamed(s, to);
            if (first || std::memcmp(&t, &best, sizeof t) < 0) best = t;
            first = false;
        } while (std::next_permutation(order, order + N));
        s = best;
    }

    static const char* violated(const State& s) {
        int masters = 0;
        for (int n = 0; n < N; ++n) masters += acting(s, n);
        if (masters > 1) return "I4: two nodes act at one time";
        for (int n = 0; n < N; ++n) {
            if (!acting(s, n)) continue;
            if (s.node[n].applied < s.acknowledged)
                return "I7: a node acts that has not applied what was acknowledged or read";
            if (s.node[n].reading) return "I7: a read misses what was acknowledged before it began";
        }
        return stuck(s);
    }

    // Who acts how far behind whom: independent of names.
    static u64 outcome(const State& s) {
        u64 all = 0;
        u8 nodes[N];
        for (int n = 0; n < N; ++n)
            nodes[n] = u8(s.node[n].applied | acting(s, n) << 3 | (s.node[n].suspended != 0) << 4);
        std::sort(nodes, nodes + N);
        for (const u8 one : nodes) all = all << 8 | one;
        return all << 8 | s.acknowledged;
    }

    static std::string describe(const State& s) {
        std::string text;
        for (int n = 0; n < N; ++n) {
            const Lease lease = lease_after(s, s.node[n].applied);
            text += "  " + node_name(n) + " has applied slots up to " +
                    str(s.slots + s.node[n].applied) + "; for it the lease is ";
            text += lease.holder == NOBODY ? "nobody's"
                                           : "of " + node_name(lease.holder) +
                                                 (lease.current ? "" : " (an old incarnation)") +
                                                 ", " + until(s, lease.left);
            if (s.node[n].suspended) text += "; suspended";
            text += acting(s, n) ? "; it acts\n" : "\n";
        }
        return text + "  t=" + str(s.ticks) + "; acknowledged or read: slots up to " +
               str(s.slots + s.acknowledged) + "\n";
    }
};

}  // namespace

int main(int argc, char** argv) { return explore<Model>(argc, argv); }
