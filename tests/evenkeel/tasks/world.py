"""A simulated world of members: one ledger, many clocks, and everything that can go wrong.

Members are the real state machines. Their notes take time or are lost, and what they read comes
late; their processes are paused, cut off and killed; their clocks run at different rates; the group
coordinator tells some of them of a generation later than others, or never. Virtual time advances in
steps of a millisecond, and every draw comes from one seed.

The world checks what must never happen: a task starts while another member may still run it, or two
members that have read equally far, read or restored, know different things (ADR 19). A run is over
when it has ended, or when its member's own clock has reached the end of its lease.
"""

import random
from typing import Any, Final

import attrs

from evenkeel.tasks.config import MS, Timing
from evenkeel.tasks.ledger import Ledger
from evenkeel.tasks.member import (
    CoordinatorView,
    Effect,
    Member,
    Over,
    Phase,
    Start,
    Stop,
    Trim,
    Write,
)
from evenkeel.tasks.notes import Note, decode, encode
from evenkeel.tasks.sharding import Contiguous, Election, Sharding, coordinators_choice

TIMING: Final = Timing(
    lease_ms=1000, renew_ms=200, drift_ms_max=60, stop_ms=200, ack_timeout_ms=400
)
DRIFT: Final = 0.02
"""How far clocks run too fast or too slow; 2 x 2 % of a lease is less than drift_ms_max."""
COMPARE_EVERY: Final = 7
"""Notes between two comparisons of ledgers."""
SESSION_MS: Final = 700
"""After this time the coordinator gives up a member that it cannot hear."""


@attrs.define(eq=False)
class Process:
    """A process with a member in it."""

    name: str
    rate: float
    member: Member
    session: int = 0
    paused_until: int = 0
    cut_until: int = 0
    dead: bool = False
    closing: bool = False
    read_at: int = 0
    """Offset of the next record it reads."""
    inbox: list[tuple[int, CoordinatorView]] = attrs.Factory(list)
    outbox: list[tuple[int, Note]] = attrs.Factory(list)
    stops: dict[str, tuple[int, int]] = attrs.Factory(dict)
    heard_ms: int = 0
    """When the coordinator last heard of it."""
    starts: int = 0
    restored: int = 0
    """How often it continued from a snapshot, because it had missed what came before."""

    @property
    def in_group(self) -> bool:
        return not self.dead and self.member.phase is Phase.IN and not self.closing


@attrs.frozen
class Started:
    """What the world's history remembers of one run."""

    at_ms: int
    task: str
    token: int
    by: str


class World:
    """`trouble` is how much goes wrong, from 0 to 1."""

    def __init__(
        self,
        seed: int,
        *,
        trouble: float = 0.0,
        sharding: Sharding | None = None,
        election: Election = coordinators_choice,
        stop_all: bool = False,
    ) -> None:
        self.dice = random.Random(seed)
        self.trouble = trouble
        self.sharding = Contiguous() if sharding is None else sharding
        self.election = election
        self.stop_all = stop_all
        self.now_ms = 0
        self.records: list[bytes] = []
        self.first_offset = 0
        self.processes: dict[str, Process] = {}
        self.generation = 0
        self.in_generation: tuple[str, ...] = ()
        self.history: list[Started] = []
        self.known: dict[int, dict[str, Any]] = {}
        """The state of the first process that had read so far."""
        self.trace: list[tuple[int, str, dict[str, int]]] = []

    # -- what a test does -------------------------------------------------------------------------

    def add(self, name: str, **metadata: object) -> Process:
        rate = 1 + self.dice.uniform(-DRIFT, DRIFT)
        process = Process(name, rate, self._member(name, 0, metadata))
        self.processes[name] = process
        self._carry_out(process, process.member.tick(self._clock(process)))
        return process

    def write(self, note: Note) -> None:
        self.records.append(encode(note))

    def run(self, ms: int) -> None:
        for _ in range(ms):
            self.step()

    def close(self, name: str) -> None:
        process = self.processes[name]
        process.closing = True
        self._carry_out(process, process.member.close(self._clock(process)))

    def owners(self) -> dict[str, set[str]]:
        """Who runs what at this moment."""
        found: dict[str, set[str]] = {}
        for process in self.processes.values():
            for task, run in process.member.runs.items():
                if not process.dead and not run.stopping:
                    found.setdefault(task, set()).add(process.name)
        return found

    # -- time -------------------------------------------------------------------------------------

    def step(self) -> None:
        self.now_ms += 1
        if self.dice.random() < self.trouble * 0.01:
            self._make_trouble()
        self._coordinate()
        for process in self.processes.values():
            if not process.dead and self.now_ms >= process.paused_until:
                self._live(process)

    def _clock(self, process: Process) -> int:
        return int(self.now_ms * MS * process.rate)

    def _member(self, name: str, session: int, metadata: dict[str, object]) -> Member:
        return Member(
            f"{name}-{session}",
            self.sharding,
            TIMING,
            metadata=metadata,
            stop_all=self.stop_all,
        )

    def _live(self, process: Process) -> None:
        """One step of a process: what is due happens in a random order."""
        now_ns = self._clock(process)
        acts = [self._send, self._read, self._hear, self._finish_stops]
        self.dice.shuffle(acts)
        if now_ns >= process.member.deadline_ns:
            self._carry_out(process, process.member.tick(now_ns))
        for act in acts:
            act(process)

    def _cut(self, process: Process) -> bool:
        return self.now_ms < process.cut_until

    def _send(self, process: Process) -> None:
        while process.outbox and process.outbox[0][0] <= self.now_ms and not self._cut(process):
            _, note = process.outbox.pop(0)
            fate = self.dice.random()
            if fate > self.trouble * 0.05:
                self.records.append(encode(note))
            if fate < self.trouble * 0.1:  # it may be there nevertheless
                self._carry_out(process, process.member.failed(self._clock(process), note))

    def _read(self, process: Process) -> None:
        if self._cut(process) or self.dice.random() < 0.5:
            return
        for _ in range(self.dice.randrange(4)):
            process.read_at = max(process.read_at, self.first_offset)
            at = process.read_at
            if at < len(self.records) and process.member.phase is not Phase.OVER:
                process.read_at += 1
                note = decode(self.records[at])
                before = process.member.ledger.next_offset
                self._carry_out(process, process.member.read(self._clock(process), at, note))
                process.restored += before < at < process.member.ledger.next_offset
                self._compare(process.member.ledger)

    def _hear(self, process: Process) -> None:
        while process.inbox and process.inbox[0][0] <= self.now_ms and not self._cut(process):
            _, view = process.inbox.pop(0)
            if process.in_group:
                self._carry_out(
                    process, process.member.on_coordinator_view(self._clock(process), view)
                )

    def _finish_stops(self, process: Process) -> None:
        for task, (when, token) in list(process.stops.items()):
            if when <= self.now_ms:
                del process.stops[task]
                self._carry_out(
                    process,
                    process.member.ended(self._clock(process), task, token, finished=False),
                )

    def _carry_out(self, process: Process, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Write(note):
                    slow = self.dice.random() < self.trouble * 0.1
                    after = self.dice.randrange(400 if slow else 5)
                    last = process.outbox[-1][0] if process.outbox else 0
                    process.outbox.append((max(last, self.now_ms + after), note))
                case Start(task, token):
                    self._check_start(process, task, token)
                case Stop(task, token):
                    takes = self.dice.randrange(TIMING.stop_ms // 2)
                    process.stops[task] = (self.now_ms + takes, token)
                case Trim(before):
                    self.first_offset = max(self.first_offset, before)
                case Over(_, again):
                    self._over(process, again)

    def _over(self, process: Process, again: bool) -> None:
        assert not process.stops
        if again and not process.closing:
            process.session += 1
            process.inbox = []
            old, metadata = process.member.ledger, dict(process.member._metadata)
            process.member = self._member(process.name, process.session, metadata)
            if self.dice.random() < 0.5:
                process.member.ledger = old  # continues from what it has read
            else:
                process.read_at = 0
            self._carry_out(process, process.member.tick(self._clock(process)))

    # -- the group coordinator --------------------------------------------------------------------

    def _coordinate(self) -> None:
        """A new generation whenever membership has changed; a silent process is no member."""
        there = []
        for process in self.processes.values():
            reachable = self.now_ms >= process.paused_until and not self._cut(process)
            if process.in_group and reachable:
                process.heard_ms = self.now_ms
            if process.in_group and self.now_ms - process.heard_ms < SESSION_MS:
                there.append(process)
        names = tuple(one.member.name for one in there)
        if names == self.in_generation or not names:
            return
        self.in_generation = names
        self.generation = 1 if self.dice.random() < self.trouble * 0.1 else self.generation + 1
        candidates = [one.member.ledger.candidate(one.member.name) for one in there]
        leader = self.election(candidates, names[0])
        read_up_to = max(one.member.ledger.members[one.member.name].joined for one in there) + 1
        view = CoordinatorView(self.generation, leader, names, read_up_to)
        for process in there:
            late = self.dice.randrange(300 if self.dice.random() < self.trouble * 0.2 else 5)
            last = process.inbox[-1][0] if process.inbox else 0
            process.inbox.append((max(last, self.now_ms + late), view))

    # -- trouble, and what must never be ----------------------------------------------------------

    def _make_trouble(self) -> None:
        process = self.dice.choice(list(self.processes.values()))
        long = self.dice.randrange(50, 3 * TIMING.lease_ms)
        match self.dice.randrange(5):
            case 0:
                process.paused_until = self.now_ms + long
            case 1 | 2:
                process.cut_until = self.now_ms + long
            case 3 if sum(not one.dead for one in self.processes.values()) > 2:
                process.dead = True
            case 4 if len(self.processes) < 8:
                self.add(f"late{len(self.processes)}")
            case _:
                pass

    def heal(self) -> None:
        self.trouble = 0.0
        for process in self.processes.values():
            process.paused_until = process.cut_until = 0

    def _compare(self, ledger: Ledger) -> None:
        at = ledger.next_offset
        if at % COMPARE_EVERY == 0:
            state = {**ledger.snapshot("anyone").state, "in order": list(ledger.members)}
            known = self.known.setdefault(at, state)
            assert state == known, f"two ledgers differ after {at} notes: {state}, {known}"

    def _check_start(self, process: Process, task: str, token: int) -> None:
        for other in self.processes.values():
            run = None if other is process else other.member.runs.get(task)
            may_run = run is not None and self._clock(other) < other.member.until_ns
            assert other.dead or not may_run, (
                f"at {self.now_ms} ms {process.name} starts {task} by {token}, "
                f"and {other.name} runs it by {run and run.token}"
            )
        older = [one.token for one in self.history if one.task == task]
        assert all(token >= one for one in older), "an older token after a newer one"
        self.history.append(Started(self.now_ms, task, token, process.name))
        process.starts += 1
