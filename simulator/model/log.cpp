// log.cpp - the replicated log of one group, with Steals that hand a ballot over; no clocks.
//
// What is checked: at most one value per ballot and slot (I1), at most one value decided per slot
// (I2; then applied logs are prefixes of one log, I3), at most one node that may think itself
// master as far as that does not depend on clocks (R3, R7, R11). lease.cpp adds the clocks.
//
// With MEMBERS=1 the group has four acceptors and one Config entry replaces {A0,A1,A2} by
// {A1,A2,A3}, two configurations that have disjoint majorities (R10).
//
// Messages are a growing set: what was once sent may be received at any later time, any number of
// times, or never. So loss, delay, repetition and order need no actions of their own, and an
// acceptor's vote is the one thing that happens to an Accept. Proposers lose everything in a crash,
// acceptors nothing: what they do is durable before it is told (R18).
//
// A value is named by the ballot that first proposed it in its slot (`origin`); a second fresh
// proposal at one ballot and slot is reported at once, so the name is unique. An incarnation is
// either the current one or an old one: a crash makes the Steals addressed to the node stale. Hence
// the number of crashes needs no bound.
//
// What is allowed here and not in paxos/: every leader may propose commands in any slot it owns,
// whoever holds the lease; a Steal does not wait for the drain (DRAIN=1 makes it); the target takes
// the ballot whether or not it has promised a higher one, or does not take it. Only Steals move the
// lease; how it is first got, and got back after expiry, is in lease.cpp. More behaviour can only
// break more.
//
// REDUCTION=0: every message is a step of its own, nobody is equal to anybody.
// REDUCTION=1: R-A  phase 1 is one step, in which a quorum answers. An acceptor that has promised a
//                   higher ballot meanwhile may answer, too: its votes below this ballot are final,
//                   so its answer is the one it gave, or could have given, when it passed the
//                   ballot. That is a superset of the real behaviour. A promise that nobody waits
//                   for only forbids things and is left out.
//              R-B  a vote commutes with everything but a later promise of its acceptor and the
//                   decision it contributes to. So votes are cast, any subset of them, just before
//                   their acceptor promises more; and a slot is decided in one step, in which the
//                   missing members of the quorum vote.
//              R-C  acceptors of the same configurations are interchangeable, and so are the
//                   proposers other than P0, the first master.
//              R-D  of slots applied only those matter that give the node something: a Steal to it
//                   (taken in order), and the slot of its own Steal.
// REDUCTION=2: R-E  a decided prefix is forgotten but for Steals its targets have not applied:
//                   phase 1 starts above it (values below would be found and proposed again,
//                   changing nothing). That nobody can decide such a slot again is checked when it
//                   is forgotten, and for every leader that still has to pass it.
//              R-F  what can have no effect is dropped: votes that are neither part of a possible
//                   decision nor visible to a ballot still unused, proposals nobody can vote for,
//                   leaders without an acceptor, the owner of a ballot where it forbids nothing.
//              R-G  the giver of a Steal applies its slot as soon as it is decided (it only waits
//                   for it; not applying it forbids more).
#include "explore.h"

#ifndef PROPOSERS
#define PROPOSERS 3
#endif
#ifndef BALLOTS
#define BALLOTS 3
#endif
#ifndef SLOTS
#define SLOTS 3
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef MEMBERS
#define MEMBERS 0
#endif
#ifndef DRAIN
#define DRAIN 0
#endif
#ifndef REDUCTION
#define REDUCTION 2
#endif

namespace {

constexpr int P = PROPOSERS, B = BALLOTS, S = SLOTS, A = MEMBERS ? 4 : 3, QUORUM = 2;
constexpr int LEVEL = REDUCTION;
static_assert(B * S <= 16, "votes of an acceptor are bits of a u16");
static_assert(!(MEMBERS && LEVEL == 2), "a ballot's members are found from the slots below it");

enum Rule {
    BUG_REUSE_BALLOT,
    BUG_SECOND_VALUE,
    BUG_ACT_UNTIL_APPLY,
    BUG_RESUME_SAME_B,
    BUG_STEAL_BEFORE_RECOVERED,
    BUG_NAIVE_FRESH_BALLOT,
    BUG_CHOSEN_BALLOT,
    BUG_NO_INC,
    BUG_CHAIN_NORANGE,
    BUG_RESUME_P1,
    BUG_ACCEPT_FROM_OWNER,
    BUG_CFG_NOCLOSE,
    BUG_CFG_BYSLOT,
    BUG_CFG_NOFOUNDCLOSE,
    BUG_RESTART_ACT,
    BUG_RENEW_SUSPENDED,
    BUG_COMMIT_ANY,
    BUG_NOFSYNC_PROMISE,
    BUG_NOFSYNC_ACCEPT,
};
std::vector<Flag> RULES = {
    {"BUG_REUSE_BALLOT", "R1", "a restarted node uses its last ballot again"},
    {"BUG_SECOND_VALUE", "R2", "a proposer sends another value instead of the same one again"},
    {"BUG_ACT_UNTIL_APPLY", "R3", "the master acts until it has applied its Steal"},
    {"BUG_RESUME_SAME_B", "R4", "the master goes on above its Steal with the ballot it gave away"},
    {"BUG_STEAL_BEFORE_RECOVERED", "R4b", "a Steal goes into a gap below values phase 1 found"},
    {"BUG_NAIVE_FRESH_BALLOT", "R5", "the target goes on under a fresh ballot without phase 1"},
    {"BUG_CHOSEN_BALLOT", "R5", "the target takes the ballot at which the Steal was decided"},
    {"BUG_NO_INC", "R6", "a takeover is repeated when a restarted node replays its log"},
    {"BUG_CHAIN_NORANGE", "R6b", "a ballot that comes back is used from where it was left"},
    {"BUG_RESUME_P1", "R7", "the master acts again once its own phase 1 has not found its Steal"},
    {"BUG_ACCEPT_FROM_OWNER", "R9", "acceptors refuse a ballot from anybody but who prepared it"},
    {"BUG_CFG_NOCLOSE", "R10", "a ballot goes on above a Config with its old quorums"},
    {"BUG_CFG_BYSLOT", "R10", "a ballot goes on above a Config with the new quorums"},
    {"BUG_CFG_NOFOUNDCLOSE", "R10", "a Config that was only found does not close the ballot"},
    {"BUG_RESTART_ACT", "R11", "a restarted node acts on the lease it replays"},
    {"BUG_RENEW_SUSPENDED", "R13", "the master renews its lease in the slot after its Steal"},
    {"BUG_COMMIT_ANY", "R17", "a commit covers slots its sender only knows to be decided"},
    {"BUG_NOFSYNC_PROMISE", "R18", "a promise is told before it is durable"},
    {"BUG_NOFSYNC_ACCEPT", "R18", "a vote is told before it is durable"},
};
// R-E and R-F rely on the rules: without one of them the model runs at a lower level.
inline bool without(Rule rule) { return LEVEL < 2 && RULES[rule].on; }

enum Happened {
    STEAL_DECIDED, STEAL_OF_OTHER_BALLOT, TAKEN_OVER, HANDED_DECIDED, VOIDED, FULL, CONFIG_DECIDED,
    BEYOND_CONFIG
};
std::vector<Witness> WITNESSES = {
    {"a Steal is decided"},
    {"a Steal is decided at a higher ballot than its own"},
    {"the target of a Steal takes its ballot over"},
    {"a proposal of the target under the ballot it was given is decided", LEVEL == 2},
    {"a suspended master goes on because its slot was decided otherwise"},
    {"every slot is decided"},
    {"a Config is decided", !MEMBERS},
    {"a slot above a Config is decided", !MEMBERS},
};
inline void saw(Happened what) { WITNESSES[what].seen = true; }

// -- state ----------------------------------------------------------------------------------------

enum Role : u8 { IDLE, PREPARING, LEADER };
enum Broken : u8 { SOUND, TWO_PROPOSED, TWO_DECIDED, MAY_DECIDE_AGAIN, WRONG_LEARNED };

// What is in an entry, as far as the protocol looks.
constexpr u8 COMMAND = 0, CONFIG = 1;
constexpr u8 steal(int to, bool current) { return u8(2 + 2 * to + current); }
constexpr bool is_steal(u8 kind) { return kind >= 2; }
constexpr int target(u8 kind) { return (kind - 2) / 2; }
constexpr bool is_current(u8 kind) { return kind >= 2 && (kind & 1); }

struct Acceptor {
    u16 votes;      // every vote ever cast: a bit per ballot and slot
    u16 forgotten;  // of these, the ones lost in a crash (only without R18)
    u8 promised;
    u8 answered;  // ballots whose Prepare it has promised (level 0)
};
struct Proposer {
    u8 role, ballot;
    u8 next, top;   // the slots it owns and has not used: `own` of protocol.md
    u8 applied;     // length of the applied prefix
    u8 suspended;   // slot of its unresolved Steal
    u8 holds;       // holds the lease, as far as it has applied the log
    u8 gave, gave_next;  // only without R6b: the ballot it gave away, and the slot after the Steal
    u8 restarted;        // only without R1
};
struct State {
    Acceptor acceptor[A];
    Proposer proposer[P];
    u8 origin[B][S];  // what was proposed: 0, or the ballot that proposed it first
    u8 kind[B][S];    // what was freshly proposed
    u8 owner[B];      // who prepared it, plus one
    u8 config[B];     // the configuration it was prepared in
    u8 handed[B];     // slot of the last Steal by which it was taken over
    u8 fixed[S];      // level 2: the forgotten prefix: 0, NOTHING, or a Steal not yet applied
    u8 crashes;
    u8 broken;
    u8 none[2 - (B + S) % 2];  // no padding
};
constexpr u8 NOTHING = 1;
constexpr u8 fixed_steal(int to, int ballot) { return u8(2 + to * B + ballot - 1); }

inline u16 bit(int b, int k) { return u16(1u << ((b - 1) * S + k - 1)); }
inline bool voted(const State& s, int a, int b, int k) { return s.acceptor[a].votes & bit(b, k); }
inline bool is_member(int config, int a) { return !MEMBERS || (config ? a >= 1 : a <= 2); }

// Whether acceptor a may still vote for what is or will be proposed at ballot b in slot k.
inline bool open(const State& s, int a, int b, int k) {
    if (without(BUG_ACCEPT_FROM_OWNER) && s.handed[b - 1] && k > s.handed[b - 1]) return false;
    return s.acceptor[a].promised <= b && !voted(s, a, b, k);
}

struct Entry {
    u8 origin, kind;
};
struct Decided {
    Entry at[S + 1];
    int prefix;       // slots 1..prefix are decided
    int config_slot;  // of the first decided Config; 0: none
    bool twice;

    bool is(int k) const { return at[k].origin != 0; }
    int config_at(int k) const { return config_slot && k > config_slot; }
};

int config_for(const State& s, const Decided& d, int b, int k) {
    return without(BUG_CFG_BYSLOT) ? d.config_at(k) : s.config[b - 1];
}
int count_votes(const State& s, int config, int b, int k) {
    int votes = 0;
    for (int a = 0; a < A; ++a) votes += is_member(config, a) && voted(s, a, b, k);
    return votes;
}

void look_at(const State& s, const Decided& d, int b, int k) {
    const Entry& entry = d.at[k];
    if (is_steal(entry.kind)) saw(b == entry.origin ? STEAL_DECIDED : STEAL_OF_OTHER_BALLOT);
    if (s.handed[b - 1] && k > s.handed[b - 1]) saw(HANDED_DECIDED);
    if (MEMBERS && entry.kind == CONFIG) saw(CONFIG_DECIDED);
    if (MEMBERS && d.config_at(k)) saw(BEYOND_CONFIG);
}

Decided decided(const State& s) {
    Decided d{};
    for (int k = 1; k <= S; ++k) {
        if (s.fixed[k - 1] == NOTHING) {
            d.at[k] = {u8(B + 1), COMMAND};
        } else if (s.fixed[k - 1]) {
            const int code = s.fixed[k - 1] - 2;
            d.at[k] = {u8(code % B + 1), steal(code / B, true)};
        } else {
            for (int b = 1; b <= B; ++b) {
                const u8 origin = s.origin[b - 1][k - 1];
                if (!origin || count_votes(s, config_for(s, d, b, k), b, k) < QUORUM) continue;
                if (d.is(k) && d.at[k].origin != origin) d.twice = true;
                d.at[k] = {origin, s.kind[origin - 1][k - 1]};
                look_at(s, d, b, k);
            }
        }
        if (d.prefix == k - 1 && d.is(k)) {
            d.prefix = k;
            if (d.at[k].kind == CONFIG && !d.config_slot) d.config_slot = k;
        }
    }
    if (d.prefix == S) saw(FULL);
    return d;
}

bool acting(const Proposer& p) {
    return p.holds && (!p.suspended || without(BUG_ACT_UNTIL_APPLY));
}

void lose_role(Proposer& p) { p.role = p.ballot = p.next = p.top = 0; }

// -- what follows from a step at once -------------------------------------------------------------

// Could what is proposed at ballot b in slot k still be decided there?
bool decidable(const State& s, const Decided& d, int b, int k) {
    int votes = 0;
    const int config = config_for(s, d, b, k);
    for (int a = 0; a < A; ++a)
        votes += is_member(config, a) && (voted(s, a, b, k) || open(s, a, b, k));
    return votes >= QUORUM;
}

void check_agreement(State& s, const Decided& d) {
    if (d.twice) s.broken = TWO_DECIDED;
    for (int k = 1; k <= S && !s.broken; ++k) {
        if (!d.is(k)) continue;
        for (int b = 1; b <= B; ++b) {
            const u8 origin = s.origin[b - 1][k - 1];
            if (origin && origin != d.at[k].origin && decidable(s, d, b, k))
                s.broken = MAY_DECIDE_AGAIN;
        }
        if (LEVEL == 2)
            for (const Proposer& p : s.proposer)
                if (p.role == LEADER && p.next <= k && k <= p.top && decidable(s, d, p.ballot, k))
                    s.broken = MAY_DECIDE_AGAIN;
    }
}

// Without R17: a leader that took the ballot over knows slots below it to be decided, says so under
// its ballot, and a follower takes its own vote at that ballot for the decided value.
void check_commits(State& s, const Decided& d) {
    for (const Proposer& p : s.proposer) {
        if (p.role != LEADER) continue;
        for (int k = 1; k <= p.applied; ++k) {
            const u8 origin = s.origin[p.ballot - 1][k - 1];
            if (origin && d.is(k) && origin != d.at[k].origin)
                for (int a = 0; a < A; ++a)
                    if (voted(s, a, p.ballot, k)) s.broken = WRONG_LEARNED;
        }
    }
}

void forget_prefix(State& s, const Decided& d) {  // R-E, R-G
    for (int k = 1; k <= d.prefix; ++k) {
        const Entry entry = d.at[k];
        if (!s.fixed[k - 1]) {
            s.fixed[k - 1] = is_current(entry.kind) ? fixed_steal(target(entry.kind), entry.origin)
                                                    : NOTHING;
            for (int b = 1; b <= B; ++b) {
                s.origin[b - 1][k - 1] = s.kind[b - 1][k - 1] = 0;
                for (Acceptor& a : s.acceptor) a.votes &= u16(~bit(b, k));
            }
            for (Proposer& p : s.proposer)
                if (p.suspended == k) {
                    p.suspended = 0;
                    if (is_steal(entry.kind)) p.holds = 0;
                    else saw(VOIDED);
                }
        }
    }
    for (Proposer& p : s.proposer)
        if (p.role == LEADER && p.next <= d.prefix) {
            p.next = u8(d.prefix + 1);
            if (p.next > p.top) lose_role(p);
        }
}

bool unused_above(const State& s, int b) {
    for (int higher = b + 1; higher <= B; ++higher)
        if (!s.owner[higher - 1]) return true;
    return false;
}

// Would phase 1 of some unused ballot report acceptor a's vote at ballot b in slot k?
bool visible(const State& s, int a, int b, int k) {
    for (int higher = b + 1; higher <= B; ++higher) {
        if (!s.owner[higher - 1]) return true;
        if (voted(s, a, higher, k)) return false;
    }
    return false;
}

void drop_dead(State& s, const Decided& d) {  // R-F
    for (int b = 1; b <= B; ++b) {
        int below = 0;
        for (const Acceptor& a : s.acceptor) below += a.promised <= b;
        if (!below && !s.owner[b - 1]) s.owner[b - 1] = P + 1;
    }
    for (int k = d.prefix + 1; k <= S; ++k)
        for (int b = B; b >= 1; --b) {
            if (!s.origin[b - 1][k - 1] || decidable(s, d, b, k)) continue;
            bool matters = false;
            for (int a = 0; a < A; ++a) {
                if (voted(s, a, b, k)) {
                    if (visible(s, a, b, k)) matters = true;
                    else s.acceptor[a].votes &= u16(~bit(b, k));
                } else if (open(s, a, b, k) && unused_above(s, b)) {
                    matters = true;
                }
            }
            if (!matters) s.origin[b - 1][k - 1] = 0;
        }
    for (int k = d.prefix + 1; k <= S; ++k)
        for (int b = 1; b <= B; ++b) {
            bool used = false;
            for (int higher = b; higher <= B; ++higher) used |= s.origin[higher - 1][k - 1] == b;
            if (!used) s.kind[b - 1][k - 1] = 0;
        }
    for (Proposer& p : s.proposer) {
        if (p.role != LEADER) continue;
        int below = 0;
        for (const Acceptor& a : s.acceptor) below += a.promised <= p.ballot;
        if (!below || (below < QUORUM && !unused_above(s, p.ballot))) lose_role(p);
    }
    for (int b = 1; b <= B; ++b) {  // an owner matters only for unused ballots below its highest
        if (!s.owner[b - 1]) continue;
        bool forbids = false;
        for (int lower = 1; lower < b; ++lower) forbids |= !s.owner[lower - 1];
        for (int higher = b + 1; higher <= B; ++higher)
            if (s.owner[higher - 1] == s.owner[b - 1]) forbids = false;
        if (!forbids) s.owner[b - 1] = P + 1;
    }
}

void settle(State& s) {
    for (Proposer& p : s.proposer)
        if (p.role == LEADER && p.next > p.top) lose_role(p);
    const Decided d = decided(s);
    if (!s.broken) check_agreement(s, d);
    if (without(BUG_COMMIT_ANY) && !s.broken) check_commits(s, d);
    if (LEVEL == 2 && !s.broken) {
        forget_prefix(s, d);
        drop_dead(s, d);
    }
}

// -- equivalence (R-C) ----------------------------------------------------------------------------

bool before(const Acceptor& x, const Acceptor& y) { return std::memcmp(&x, &y, sizeof x) < 0; }

void sort_acceptors(State& s) {
    const int first = MEMBERS ? 1 : 0, last = MEMBERS ? 3 : A;
    std::sort(s.acceptor + first, s.acceptor + last, before);
}

State swap_rivals(const State& s) {
    State t = s;
    const auto other = [](int p) { return p == 1 ? 2 : p == 2 ? 1 : p; };
    for (int b = 0; b < B; ++b) {
        if (s.owner[b] && s.owner[b] <= P) t.owner[b] = u8(other(s.owner[b] - 1) + 1);
        for (u8& kind : t.kind[b])
            if (is_steal(kind)) kind = steal(other(target(kind)), is_current(kind));
    }
    for (u8& fixed : t.fixed)
        if (fixed > NOTHING) fixed = fixed_steal(other((fixed - 2) / B), (fixed - 2) % B + 1);
    std::swap(t.proposer[1 % P], t.proposer[2 % P]);
    return t;
}

// -- steps ----------------------------------------------------------------------------------------

std::string node(int p) { return "P" + str(p); }
std::string voting(int a, int b, int k) {
    return "A" + str(a) + " votes (b" + str(b) + ", slot " + str(k) + ")";
}
std::string name(const Entry& entry) {
    if (!entry.origin) return "nothing";
    const std::string at = "@b" + str(entry.origin);
    if (entry.kind == CONFIG) return "Config" + at;
    if (!is_steal(entry.kind)) return "command" + at;
    return std::string("Steal") + at + "{to " + node(target(entry.kind)) +
           (is_current(entry.kind) ? "" : ", an old incarnation") + ", ballot " +
           str(entry.origin) + "}";
}
Entry proposed(const State& s, int b, int k) {
    const u8 origin = s.origin[b - 1][k - 1];
    return {origin, origin ? s.kind[origin - 1][k - 1] : u8(0)};
}

template <class Emit>
class Steps {
  public:
    Steps(const State& state, Emit& to) : s(state), emit(to), d(decided(state)) {}

    void all() {
        if (s.broken) return;
        for (int p = 0; p < P; ++p) {
            prepare(p);
            propose(p);
            apply(p);
            crash(p);
        }
        if (LEVEL == 0) {
            for (int a = 0; a < A; ++a) {
                promise(a);
                vote(a);
            }
        } else {
            decide();
        }
        if (without(BUG_NOFSYNC_PROMISE) || without(BUG_NOFSYNC_ACCEPT)) forget();
    }

  private:
    template <class Text>
    void go(State next, Text text) {
        settle(next);
        emit(next, text);
    }

    int highest_ballot(int p) const {
        int highest = 0;
        for (int b = 1; b <= B; ++b)
            if (s.owner[b - 1] == p + 1) highest = b;
        return highest;
    }
    bool usable(int p, int b) const {  // a ballot never used before (R1)
        if (s.owner[b - 1] == 0) return b > highest_ballot(p);
        return s.proposer[p].restarted && b == highest_ballot(p);
    }

    // prepare(): phase 1, in one step or in three.
    void prepare(int p) {
        const Proposer& me = s.proposer[p];
        if (LEVEL == 0 && me.role == PREPARING) lead_if_promised(p);
        const int lowest = LEVEL == 2 ? d.prefix + 1 : me.applied + 1;
        const int highest = LEVEL == 0 ? lowest : d.prefix + 1;
        for (int b = 1; b <= B; ++b) {
            if (!usable(p, b)) continue;
            for (int from = lowest; from <= highest && from <= S; ++from) {
                State t = s;
                Proposer& my = t.proposer[p];
                lose_role(my);
                t.owner[b - 1] = u8(p + 1);
                t.config[b - 1] = u8(d.config_at(from));
                my.role = PREPARING;
                my.ballot = u8(b);
                my.next = u8(from);
                if (LEVEL == 0)
                    go(t, [&] { return node(p) + " prepares ballot " + str(b); });
                else
                    quorum_promises(t, p, b);
            }
        }
    }

    void quorum_promises(const State& prepared, int p, int b) {
        const int config = prepared.config[b - 1];
        for (int a = 0; a < A; ++a)
            for (int c = a + 1; c < A; ++c) {
                if (!is_member(config, a) || !is_member(config, c)) continue;
                raise(prepared, a, b, [&](const State& t, const std::string& first) {
                    raise(t, c, b, [&](const State& u, const std::string& second) {
                        lead(u, p, a, c, first + second);
                    });
                });
            }
    }

    // Acceptor a promises ballot b (unless it has promised more), having cast any of the votes it
    // will be able to cast no more (R-B).
    template <class Then>
    void raise(const State& from, int a, int b, Then then) {
        if (from.acceptor[a].promised >= b) return then(from, std::string());
        std::pair<int, int> votes[B * S];
        int count = 0;
        for (int y = std::max<int>(1, from.acceptor[a].promised); y < b; ++y)
            for (int k = 1; k <= S; ++k)
                if (from.origin[y - 1][k - 1] && open(from, a, y, k) &&
                    is_member(config_for(from, d, y, k), a) && may_matter(from, a, b, y, k))
                    votes[count++] = {y, k};
        for (int subset = 0; subset < 1 << count; ++subset) {
            State t = from;
            std::string text;
            for (int at = 0; at < count; ++at)
                if (subset >> at & 1) {
                    t.acceptor[a].votes |= bit(votes[at].first, votes[at].second);
                    text += voting(a, votes[at].first, votes[at].second) + "; ";
                }
            t.acceptor[a].promised = u8(b);
            then(t, text);
        }
    }

    // R-F: is a vote at ballot y before the promise of b worth casting?
    bool may_matter(const State& t, int a, int b, int y, int k) const {
        if (LEVEL < 2 || decidable(t, d, y, k)) return true;
        const bool preparing = std::any_of(t.proposer, t.proposer + P, [&](const Proposer& p) {
            return p.role == PREPARING && p.ballot == b;
        });
        for (int higher = y + 1; higher <= B; ++higher) {
            if (!t.owner[higher - 1] || (preparing && higher == b)) return true;
            if (voted(t, a, higher, k)) return false;
        }
        return false;
    }

    void lead_if_promised(int p) {
        const int b = s.proposer[p].ballot;
        const int config = s.config[b - 1];
        const auto promised = [&](int a) {
            return is_member(config, a) && (s.acceptor[a].answered >> b & 1);
        };
        for (int a = 0; a < A; ++a)
            for (int c = a + 1; c < A; ++c)
                if (promised(a) && promised(c)) lead(s, p, a, c, "");
    }

    // on Promise, the last of a quorum: propose again whatever may have been decided.
    void lead(const State& promised, int p, int a, int c, const std::string& votes) {
        const Proposer& me = promised.proposer[p];
        const int b = me.ballot, from = me.next;
        u8 found[S + 1] = {};
        int last = std::max<int>(from - 1, me.suspended);
        for (int k = from; k <= S; ++k) {
            for (int y = b - 1; y >= 1 && !found[k]; --y)
                for (const int who : {a, c})
                    if ((promised.acceptor[who].votes & ~promised.acceptor[who].forgotten) &
                        bit(y, k))
                        found[k] = promised.origin[y - 1][k - 1];
            if (found[k]) last = std::max(last, k);
        }
        State t = promised;
        Proposer& my = t.proposer[p];
        my.role = LEADER;
        my.top = S;
        for (int k = from; k <= last; ++k) {
            if (without(BUG_STEAL_BEFORE_RECOVERED) && !found[k] && k < last && acting(my))
                steal_in_gap(t, p, k);
            put(t, p, k, found[k] ? found[k] : u8(b), COMMAND);
            if (found[k] && t.kind[found[k] - 1][k - 1] == CONFIG && !t.config[b - 1] &&
                !without(BUG_CFG_NOCLOSE) && !without(BUG_CFG_BYSLOT) &&
                !without(BUG_CFG_NOFOUNDCLOSE)) {
                my.top = u8(k);  // R10: what was found above is not ours to propose
                break;
            }
        }
        if (without(BUG_RESUME_P1) && my.suspended >= from &&
            !(found[my.suspended] && is_steal(t.kind[found[my.suspended] - 1][my.suspended - 1])))
            my.suspended = 0;
        go(t, [&] {
            return votes + node(p) + " leads with ballot " + str(b) + " from slot " + str(from) +
                   ": A" + str(a) + " and A" + str(c) + " have promised" +
                   (last >= from ? ", it proposes again slots up to " + str(last) : "");
        });
    }

    // An Accept is sent; ballot and slot must be new (I1).
    static void put(State& t, int p, int k, u8 origin, u8 kind) {
        Proposer& my = t.proposer[p];
        const int b = my.ballot;
        u8& place = t.origin[b - 1][k - 1];
        if (place && (place != origin || origin == b)) t.broken = TWO_PROPOSED;
        place = origin;
        if (origin == b) t.kind[b - 1][k - 1] = kind;
        my.next = u8(k + 1);
    }

    void steal_in_gap(State t, int p, int k) {
        for (int to = 0; to < P; ++to) {
            if (to == p) continue;
            State u = t;
            put(u, p, k, u.proposer[p].ballot, steal(to, true));
            u.proposer[p].top = u.proposer[p].suspended = u8(k);
            go(u, [&] { return node(p) + " leads and puts a Steal to " + node(to) + " into slot " +
                               str(k) + ", below slots it has found"; });
        }
    }

    // propose(): the next slot it owns.
    void propose(int p) {
        const Proposer& me = s.proposer[p];
        if (me.role != LEADER) return;
        const int k = me.next, b = me.ballot;
        fresh(p, k, COMMAND);
        if (acting(me) && may_hand_over(p, k))
            for (int to = 0; to < P; ++to)
                for (int current = 1; current >= (CRASHES ? 0 : 1); --current)
                    if (to != p) fresh(p, k, steal(to, current));
        if (MEMBERS && !d.config_at(k) && !s.config[b - 1] && d.prefix >= k - 1)
            fresh(p, k, CONFIG);
        if (without(BUG_SECOND_VALUE) && k > 1 && s.origin[b - 1][k - 2] == b)
            fresh(p, k - 1, COMMAND);
    }

    bool may_hand_over(int p, int k) const {
        if (DRAIN && d.prefix < k - 1) return false;
        for (int j = s.proposer[p].applied + 1; j < k; ++j)  // it has applied what it knows of
            if (d.prefix >= j && is_current(d.at[j].kind) && target(d.at[j].kind) == p)
                return false;
        return true;
    }

    void fresh(int p, int k, u8 kind) {
        State t = s;
        Proposer& my = t.proposer[p];
        put(t, p, k, my.ballot, kind);
        if (is_steal(kind)) {
            my.suspended = u8(k);  // R3: before the Accept leaves
            if (without(BUG_CHAIN_NORANGE)) my.gave = my.ballot, my.gave_next = u8(k + 1);
            if (without(BUG_RENEW_SUSPENDED)) my.top = u8(k + 1 <= S ? k + 1 : S);
            else if (!without(BUG_RESUME_SAME_B)) my.top = u8(k);  // R4: the rest is given away
        } else if (kind == CONFIG && !without(BUG_CFG_NOCLOSE) && !without(BUG_CFG_BYSLOT)) {
            my.top = u8(k);  // R10
        }
        const int b = my.ballot;
        go(t, [&] {
            return node(p) + " proposes (b" + str(b) + ", slot " + str(k) + "): " +
                   name({u8(b), kind});
        });
    }

    // apply(): level 0 slot by slot, else what matters to this node (R-D).
    void apply(int p) {
        const Proposer& me = s.proposer[p];
        const auto to_me = [&](int k) {
            const u8 kind = d.at[k].kind;
            return is_steal(kind) && target(kind) == p && (is_current(kind) || without(BUG_NO_INC));
        };
        if (LEVEL == 1 && me.suspended && d.prefix >= me.suspended) apply_slot(p, me.suspended);
        int k = me.applied + 1;
        while (LEVEL > 0 && k <= d.prefix && !to_me(k)) ++k;
        if (k > d.prefix) return;
        apply_slot(p, k);
        if (to_me(k) && k < S) take_over(p, k);
    }

    void note_applied(State& t, int p, int k) {
        Proposer& my = t.proposer[p];
        const u8 kind = d.at[k].kind;
        if (LEVEL < 2) my.applied = u8(std::max<int>(my.applied, k));
        if (my.suspended && my.suspended <= k) {
            my.suspended = 0;
            if (!is_steal(kind)) saw(VOIDED);
        }
        if (is_steal(kind)) my.holds = target(kind) == p && is_current(kind);
        if (LEVEL == 2) t.fixed[k - 1] = NOTHING;
    }

    void apply_slot(int p, int k) {
        State t = s;
        note_applied(t, p, k);
        go(t, [&] { return node(p) + " applies slot " + str(k) + ": " + name(d.at[k]); });
    }

    // takeover(): go on under the ballot the entry names, above the entry's slot (R5, R6, R6b).
    void take_over(int p, int k) {
        const int named = d.at[k].origin;
        for (int b = 1; b <= B; ++b) {
            bool take = b == named;
            if (without(BUG_NAIVE_FRESH_BALLOT))
                take = b > named && !s.owner[b - 1] && b > highest_ballot(p);
            if (without(BUG_CHOSEN_BALLOT))
                take = s.origin[b - 1][k - 1] == named &&
                       count_votes(s, s.config[b - 1], b, k) >= QUORUM;
            if (!take) continue;
            State t = s;
            note_applied(t, p, k);
            Proposer& my = t.proposer[p];
            lose_role(my);
            my.role = LEADER;
            my.ballot = u8(b);
            my.next = u8(k + 1);
            my.top = S;
            if (without(BUG_CHAIN_NORANGE) && my.gave == b) my.next = my.gave_next;
            if (!s.owner[b - 1]) t.owner[b - 1] = u8(p + 1);
            if (LEVEL < 2) t.handed[b - 1] = u8(k);
            saw(TAKEN_OVER);
            go(t, [&] {
                return node(p) + " applies slot " + str(k) + ": " + name(d.at[k]) +
                       " and takes ballot " + str(b) + " over from slot " + str(my.next) + " on";
            });
        }
    }

    void crash(int p) {
        if (!CRASHES || int(s.crashes) == CRASHES) return;
        State t = s;
        if (CRASHES < 9) ++t.crashes;  // 9: any number
        Proposer& my = t.proposer[p];
        my = Proposer{};
        my.restarted = without(BUG_REUSE_BALLOT);
        my.holds = without(BUG_RESTART_ACT) && p == 0;  // replayed: it was the first master
        if (!without(BUG_NO_INC)) {
            for (auto& row : t.kind)
                for (u8& kind : row)
                    if (is_current(kind) && target(kind) == p) kind = steal(p, false);
            for (u8& fixed : t.fixed)
                if (fixed > NOTHING && (fixed - 2) / B == p) fixed = NOTHING;
        }
        go(t, [&] { return node(p) + " crashes and restarts"; });
    }

    // -- acceptors --------------------------------------------------------------------------------

    void promise(int a) {
        const Acceptor& me = s.acceptor[a];
        for (int b = 1; b <= B; ++b) {
            const int owner = s.owner[b - 1] - 1;
            if (owner < 0 || b <= me.promised) continue;
            if (!is_member(s.config[b - 1], a)) continue;
            State t = s;
            t.acceptor[a].promised = u8(b);
            if (s.proposer[owner].role == PREPARING && s.proposer[owner].ballot == b)
                t.acceptor[a].answered |= u8(1 << b);
            go(t, [&] { return "A" + str(a) + " promises ballot " + str(b); });
        }
    }

    void vote(int a) {
        for (int b = 1; b <= B; ++b)
            for (int k = 1; k <= S; ++k) {
                if (!s.origin[b - 1][k - 1] || !open(s, a, b, k)) continue;
                if (!is_member(config_for(s, d, b, k), a)) continue;
                State t = s;
                t.acceptor[a].promised = u8(b);
                t.acceptor[a].votes |= bit(b, k);
                go(t, [&] { return voting(a, b, k); });
            }
    }

    // A slot is decided: the members that are missing for a quorum vote (R-B).
    void decide() {
        for (int k = 1; k <= S; ++k)
            for (int b = 1; b <= B && !d.is(k); ++b) {
                if (!s.origin[b - 1][k - 1]) continue;
                if (without(BUG_CFG_BYSLOT) && d.prefix < k - 1) continue;
                const int config = config_for(s, d, b, k);
                complete(s, b, k, config, count_votes(s, config, b, k), 0, "");
            }
    }

    void complete(const State& from, int b, int k, int config, int votes, int first,
                  const std::string& said) {
        if (votes == QUORUM) {
            go(from, [&] {
                return said + "slot " + str(k) + " is decided at ballot " + str(b) + ": " +
                       name(proposed(from, b, k));
            });
            return;
        }
        for (int a = first; a < A; ++a) {
            if (!is_member(config, a) || !open(from, a, b, k)) continue;
            raise(from, a, b, [&](const State& raised, const std::string& lower) {
                State t = raised;
                t.acceptor[a].votes |= bit(b, k);
                complete(t, b, k, config, votes + 1, a + 1,
                         said + lower + voting(a, b, k) + "; ");
            });
        }
    }

    void forget() {  // without R18: a crash takes what was told and not synced
        for (int a = 0; a < A; ++a) {
            const Acceptor& me = s.acceptor[a];
            int highest = 0;
            for (int b = 1; b <= B; ++b)
                for (int k = 1; k <= S; ++k) {
                    if (!voted(s, a, b, k)) continue;
                    highest = b;
                    if (!without(BUG_NOFSYNC_ACCEPT) || (me.forgotten & bit(b, k))) continue;
                    State t = s;
                    t.acceptor[a].forgotten |= bit(b, k);
                    go(t, [&] { return "A" + str(a) + " crashes and has lost its vote (b" + str(b) +
                                       ", slot " + str(k) + ")"; });
                }
            if (!without(BUG_NOFSYNC_PROMISE) || highest >= me.promised) continue;
            State t = s;
            t.acceptor[a].promised = u8(highest);
            go(t, [&] { return "A" + str(a) + " crashes and has lost its promise of ballot " +
                               str(me.promised); });
        }
    }

    const State& s;
    Emit& emit;
    const Decided d;
};

struct Model {
    using State = ::State;

    static std::string title() {
        return std::string(MEMBERS ? "members" : "log") + " (" + str(P) + " proposers, " + str(B) +
               " ballots, " + str(S) + " slots, " +
               (CRASHES >= 9 ? "any number of" : str(CRASHES)) + " crashes" +
               (DRAIN ? ", drained" : "") + (LEVEL ? "" : ", unreduced") + ")";
    }
    static std::vector<Flag>& flags() {
        static std::vector<Flag> none;
        return LEVEL < 2 ? RULES : none;
    }
    static std::vector<Witness>& witnesses() { return WITNESSES; }

    static State initial() {
        State s{};
        s.proposer[0].holds = 1;
        return s;
    }

    template <class Emit>
    static void successors(const State& s, Emit&& emit) {
        Steps<Emit>(s, emit).all();
    }

    static void canonical(State& s) {
        if (LEVEL == 0) return;
        sort_acceptors(s);
        if (P == 3) {
            State t = swap_rivals(s);
            if (std::memcmp(&t, &s, sizeof s) < 0) s = t;
        }
    }

    static const char* violated(const State& s) {
        switch (s.broken) {
            case TWO_PROPOSED: return "I1: two values are proposed at one ballot and slot";
            case TWO_DECIDED: return "I2: two values are decided in one slot";
            case MAY_DECIDE_AGAIN: return "I2: another value can be decided in a decided slot";
            case WRONG_LEARNED: return "I3: a follower learns a value that was not decided";
        }
        int masters = 0;
        for (const Proposer& p : s.proposer) masters += acting(p);
        return masters > 1 ? "I4: two nodes act as master" : nullptr;
    }

    // Which slots are decided, and who acts then: a rival, if need be, under either name.
    static u64 outcome(const State& s) {
        const Decided d = decided(s);
        u64 slots = 0, masters = 0;
        for (int k = 1; k <= S; ++k) slots |= u64(d.is(k)) << k;
        for (int p = 0; p < P; ++p) masters |= u64(acting(s.proposer[p])) << (p ? 1 : 0);
        return slots << 8 | masters;
    }

    static std::string describe(const State& s) {
        const Decided d = decided(s);
        std::string text;
        for (int k = 1; k <= S; ++k) {
            text += "  slot " + str(k) + ": ";
            for (int b = 1; b <= B; ++b)
                if (s.origin[b - 1][k - 1]) {
                    text += "b" + str(b) + " " + name(proposed(s, b, k)) + " voted by";
                    for (int a = 0; a < A; ++a)
                        if (voted(s, a, b, k)) text += " A" + str(a);
                    text += "; ";
                }
            text += d.is(k) ? "decided: " + name(d.at[k]) + "\n" : "undecided\n";
        }
        text += "  promised:";
        for (int a = 0; a < A; ++a) text += " A" + str(a) + "=" + str(s.acceptor[a].promised);
        text += "; acting:";
        for (int p = 0; p < P; ++p)
            if (acting(s.proposer[p])) text += " " + node(p);
        return text + "\n";
    }
};

}  // namespace

int main(int argc, char** argv) { return explore<Model>(argc, argv); }
