// explore.h - breadth-first search through every state a model can reach.
//
// A model is a struct with
//   State                plain bytes without padding: states are compared byte by byte
//   initial()            the one initial state
//   successors(s, emit)  calls emit(next, text) for every step; text() tells a reader what it is
//   canonical(s)         replaces s by the representative of the states it is equivalent to
//   violated(s)          the invariant that s breaks, or nullptr
//   outcome(s)           what must not depend on reductions: runs that differ in nothing else must
//                        print the same number of outcomes, and the same digest of them
//   describe(s)          a few lines about s, printed under a counterexample
//   flags(), witnesses() rules that can be taken away; what must happen somewhere
//
// The search keeps a 64-bit fingerprint of every state it has seen (as TLC and SPIN's hash
// compaction do) and whole states of two levels only. Two states may share a fingerprint; the bound
// on the chance that this hid one is printed. A violation is found at the least depth at which
// there is one; then the search runs again, remembering who came from whom, to print that shortest
// way.
//
// Exit codes: 0 holds, 1 violated, 2 wrong usage, 3 out of memory or over --limit, 4 something the
// model must be able to do was never done (it would hold for want of behaviour).
#pragma once
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

enum Exit { HOLDS = 0, VIOLATED = 1, USAGE = 2, LIMIT = 3, STARVED = 4 };

// A rule that can be taken away, by its name on the command line.
struct Flag {
    const char* name;
    const char* rule;
    const char* without;
    bool on = false;
};

// Something that must happen somewhere, or the model says nothing.
struct Witness {
    const char* what;
    bool seen = false;
};

inline std::string str(int value) { return std::to_string(value); }

// Fingerprints in open addressing; zero means empty. Grows by doubling.
class Seen {
  public:
    explicit Seen(u64 expected) {
        while (capacity_ * 3 / 4 < expected) capacity_ *= 2;
        table_ = allocate(capacity_);
    }
    ~Seen() { munmap(table_, capacity_ * sizeof(u64)); }
    Seen(const Seen&) = delete;
    Seen& operator=(const Seen&) = delete;

    void prefetch(u64 print) const { __builtin_prefetch(&table_[print & (capacity_ - 1)]); }

    bool add(u64 print) {
        if (count_ + 1 > capacity_ / 4 * 3) grow();
        if (!put(table_, capacity_, print)) return false;
        ++count_;
        return true;
    }
    u64 count() const { return count_; }

  private:
    static u64* allocate(u64 capacity) {
        void* memory = mmap(nullptr, capacity * sizeof(u64), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) {
            std::printf("out of memory for %llu fingerprints\n", (unsigned long long)capacity);
            std::exit(LIMIT);
        }
        madvise(memory, capacity * sizeof(u64), MADV_HUGEPAGE);
        return static_cast<u64*>(memory);
    }
    static bool put(u64* table, u64 capacity, u64 print) {
        u64 at = print & (capacity - 1);
        while (table[at]) {
            if (table[at] == print) return false;
            at = (at + 1) & (capacity - 1);
        }
        table[at] = print;
        return true;
    }
    void grow() {
        u64* larger = allocate(capacity_ * 2);
        for (u64 at = 0; at < capacity_; ++at)
            if (table_[at]) put(larger, capacity_ * 2, table_[at]);
        munmap(table_, capacity_ * sizeof(u64));
        table_ = larger;
        capacity_ *= 2;
    }

    u64 capacity_ = u64(1) << 16;
    u64 count_ = 0;
    u64* table_;
};

// One level of the search, in chunks that are given back as soon as they are used up.
template <class State>
class Level {
  public:
    static constexpr std::size_t CHUNK = 1 << 15;

    void push(const State& state) {
        if (chunks_.empty() || chunks_.back().size() == CHUNK) {
            chunks_.emplace_back();
            chunks_.back().reserve(CHUNK);
        }
        chunks_.back().push_back(state);
        ++count_;
    }
    template <class Use>
    bool consume(Use use) {
        for (auto& chunk : chunks_) {
            for (const State& state : chunk)
                if (!use(state)) return false;
            std::vector<State>().swap(chunk);
        }
        return true;
    }
    u64 count() const { return count_; }

  private:
    std::vector<std::vector<State>> chunks_;
    u64 count_ = 0;
};

template <class Model>
class Explorer {
    using State = typename Model::State;
    static_assert(std::has_unique_object_representations_v<State>, "states are compared as bytes");

  public:
    u64 limit = ~u64(0);
    u64 expected = 0;
    bool loud = false;

    int run(const std::string& title) {
        const bool broken = search(false);
        std::printf("%s: ", title.c_str());
        if (broken) {
            std::printf("VIOLATED: %s\n", violation_);
            report("violated");
            search(true);
            print_way();
            return VIOLATED;
        }
        if (seen_ > limit) {
            std::printf("incomplete: more than %llu states, none of them wrong\n",
                        (unsigned long long)limit);
            report("incomplete");
            return LIMIT;
        }
        std::vector<const char*> never;
        for (const Witness& witness : Model::witnesses())
            if (!witness.seen) never.push_back(witness.what);
        if (!never.empty()) {
            std::printf("STARVED: it never happens that");
            for (const char* what : never) std::printf(" [%s]", what);
            std::printf("\n");
            report("starved");
            return STARVED;
        }
        std::printf("holds; every state was looked at\n");
        report("holds");
        return HOLDS;
    }

  private:
    struct Pending {
        State state;
        u64 print;
        u32 parent;
    };
    static constexpr std::size_t AHEAD = 64;  // successors whose table slots are fetched meanwhile

    static u64 fingerprint(const State& state) {
        const u8* data = reinterpret_cast<const u8*>(&state);
        u64 hash = 0x9E3779B97F4A7C15ull ^ sizeof(State);
        std::size_t at = 0;
        for (; at + 8 <= sizeof(State); at += 8) {
            u64 word;
            std::memcpy(&word, data + at, 8);
            hash = mix(hash ^ word);
        }
        u64 rest = 0;
        std::memcpy(&rest, data + at, sizeof(State) - at);
        hash = mix(hash ^ rest);
        return hash ? hash : 1;
    }
    static u64 mix(u64 value) {
        const unsigned __int128 product = (unsigned __int128)(value ^ 0x2D358DCCAA6C78A5ull) *
                                          0x8BB84B93962EACC9ull;
        u64 hash = (u64)product ^ (u64)(product >> 64);
        hash *= 0xFF51AFD7ED558CCDull;
        return hash ^ (hash >> 32);
    }

    // The whole search, or up to the first violation; with `way`, noting every state's parent.
    bool search(bool way) {
        const auto began = std::chrono::steady_clock::now();
        const auto elapsed = [&] {
            return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
        };
        Seen seen(way ? 0 : expected);
        Level<State> level, next;
        std::vector<Pending> pending;
        pending.reserve(2 * AHEAD);
        prints_.clear();
        parents_.clear();
        outcomes_.clear();
        bool broken = false;
        u64 first = 0, transitions = 0;
        depth_ = 0;
        const auto absorb = [&] {
            for (const Pending& one : pending) {
                if (!seen.add(one.print)) continue;
                if (way) {
                    prints_.push_back(one.print);
                    parents_.push_back(one.parent);
                }
                next.push(one.state);
                outcomes_.insert(Model::outcome(one.state));
                violation_ = Model::violated(one.state);
                if (violation_) {
                    broken = true;
                    break;
                }
            }
            pending.clear();
            return !broken;
        };
        const auto offer = [&](State state, u32 parent) {
            Model::canonical(state);
            const u64 print = fingerprint(state);
            seen.prefetch(print);
            pending.push_back({state, print, parent});
        };
        offer(Model::initial(), 0);
        absorb();
        while (next.count() && !broken && seen.count() <= limit) {
            std::swap(level, next);
            next = Level<State>();
            u64 index = 0;
            level.consume([&](const State& state) {
                const u32 parent = u32(first + index++);
                Model::successors(state, [&](const State& successor, auto&&) {
                    ++transitions;
                    offer(successor, parent);
                });
                return pending.size() < AHEAD || (absorb() && seen.count() <= limit);
            });
            if (!broken) absorb();
            first += level.count();
            ++depth_;
            if (loud)
                std::fprintf(stderr, "depth %d: %llu new, %llu in all, %.0f s\n", depth_,
                             (unsigned long long)next.count(), (unsigned long long)seen.count(),
                             elapsed());
        }
        if (!broken && !next.count()) --depth_;
        seen_ = seen.count();
        transitions_ = transitions;
        seconds_ = elapsed();
        return broken;
    }

    void report(const char* verdict) const {
        rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        u64 digest = 0;
        for (const u64 outcome : outcomes_) digest = mix(digest ^ outcome);
        const auto of = [](const timeval& time) { return time.tv_sec + time.tv_usec / 1e6; };
        std::printf("  verdict=%s states=%llu transitions=%llu depth=%d seconds=%.1f cpu=%.1f "
                    "memory_mb=%ld missed_at_most=%.0e outcomes=%zu:%04x\n",
                    verdict, (unsigned long long)seen_, (unsigned long long)transitions_, depth_,
                    seconds_, of(usage.ru_utime) + of(usage.ru_stime), usage.ru_maxrss / 1024, double(seen_) * double(seen_) / 3.7e19,
                    outcomes_.size(), unsigned(digest & 0xFFFF));
    }

    // Replayed on states that were not canonicalised, so that names keep their meaning: a model's
    // steps treat equivalent states alike, hence some successor has the wanted representative.
    void print_way() {
        std::vector<u64> way;
        for (u64 at = prints_.size() - 1; at; at = parents_[at]) way.push_back(prints_[at]);
        std::reverse(way.begin(), way.end());
        State state = Model::initial();
        int number = 0;
        for (const u64 wanted : way) {
            bool found = false;
            State after = state;
            std::string said;
            Model::successors(state, [&](const State& successor, auto&& text) {
                if (found) return;
                State representative = successor;
                Model::canonical(representative);
                if (fingerprint(representative) != wanted) return;
                found = true;
                after = successor;
                said = text();
            });
            if (!found) {
                std::printf("  (not replayable: the reductions are not sound)\n");
                std::exit(USAGE);
            }
            std::printf("  %2d. %s\n", ++number, said.c_str());
            state = after;
        }
        std::printf("%s", Model::describe(state).c_str());
    }

    const char* violation_ = nullptr;
    std::vector<u64> prints_;
    std::vector<u32> parents_;
    std::set<u64> outcomes_;
    u64 seen_ = 0, transitions_ = 0;
    int depth_ = 0;
    double seconds_ = 0;
};

// model [--limit STATES] [--expect STATES] [--loud] [--flags] [BUG_... ...]
template <class Model>
int explore(int argc, char** argv) {
    Explorer<Model> explorer;
    std::string title = Model::title();
    for (int at = 1; at < argc; ++at) {
        const std::string word = argv[at];
        if (word == "--flags") {
            for (const Flag& flag : Model::flags())
                std::printf("%s\t%s\t%s\n", flag.name, flag.rule, flag.without);
            return HOLDS;
        }
        if (word == "--loud") {
            explorer.loud = true;
        } else if ((word == "--limit" || word == "--expect") && at + 1 < argc) {
            (word == "--limit" ? explorer.limit : explorer.expected) =
                std::strtoull(argv[++at], nullptr, 10);
        } else {
            bool known = false;
            for (Flag& flag : Model::flags())
                if (word == flag.name) {
                    flag.on = known = true;
                    title += std::string(" without ") + flag.rule + " (" + flag.without + ")";
                }
            if (!known) {
                std::fprintf(stderr, "unknown: %s (--flags lists the rules)\n", argv[at]);
                return USAGE;
            }
        }
    }
    return explorer.run(title);
}
