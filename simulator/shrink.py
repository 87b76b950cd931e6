"""A failing world made small: fewer strikes, clients, groups and nodes, the same checker objects.

Strikes of the nemesis are left out by delta debugging (Zeller and Hildebrandt, TSE 2002): each has
its own dice, so the remaining ones do what they did before. Then the options are simplified one by
one, and then the strikes are reduced once more. The result is as small as the allowance of worlds
permits, and is replayed with `--set`, bit for bit.
"""

from collections.abc import Callable, Iterator
from typing import Final

import attrs

from paxos.ids import MS
from simulator.environment.options import Clocks, DiskKind, Options, Temper, as_settings
from simulator.swarm import Job, Verdict, options_of, run_world

SIMULATED_S_MAX: Final = 3_000
"""The allowance: about half a minute of one core."""
STOP_FACTOR: Final = 2
"""A smaller world may take this much longer to fail; one that heals first is another failure."""


@attrs.define
class Shrunk:
    """`settings` for `--set` turn the world of `job.seed` into this small one."""

    options: Options
    verdict: Verdict
    worlds: int
    struck_before: int
    settings: tuple[str, ...]

    def lines(self, job: Job) -> Iterator[str]:
        kept = self.options.kept or ()
        yield (
            f"shrunk in {self.worlds} worlds from {self.struck_before} strikes to {len(kept)}: "
            f"{self.verdict.failure}"
        )
        yield from self.verdict.notes
        smaller = attrs.evolve(job, settings=(*job.settings, *self.settings))
        yield f"  replay: {smaller.replay_command()}"


class Shrinker:
    def __init__(self, job: Job, failed: Verdict) -> None:
        assert failed.failure
        self._job = job
        self._original = options_of(job)
        self._wanted = failed.checker
        self._stop_ns = STOP_FACTOR * failed.at_ns + 1_000 * MS
        self._left_s = float(SIMULATED_S_MAX)
        self._best = failed
        self.worlds = 0

    def run(self) -> Shrunk:
        struck = len(self._best.struck)
        options = self._fewer_strikes(attrs.evolve(self._original, kept=self._strikes_of_best()))
        for plainer in _plainer(options):
            changed = plainer(options)
            if changed is not None and self._fails(changed):
                options = self._fewer_strikes(attrs.evolve(changed, kept=self._strikes_of_best()))
        settings = as_settings(self._original, options)
        return Shrunk(options, self._best, self.worlds, struck, settings)

    def _strikes_of_best(self) -> frozenset[int]:
        return frozenset(self._best.struck)

    def _fails(self, options: Options) -> bool:
        """Whether this world fails at the same checker; False once the allowance is used up."""
        if self._left_s <= 0:
            return False
        self.worlds += 1
        verdict = run_world(self._job, options=options, stop_ns=self._stop_ns)
        self._left_s -= verdict.at_ns / 1e9
        if verdict.checker != self._wanted:
            return False
        self._best = verdict
        return True

    def _fewer_strikes(self, options: Options) -> Options:
        """Leave out halves, quarters, ..., single strikes, as long as it still fails."""
        if not self._fails(attrs.evolve(options, kept=frozenset())):
            kept = sorted(options.kept or ())
            size = len(kept)
            while size > 1:
                size = (size + 1) // 2
                kept = self._without_chunks(options, kept, size)
                size = min(size, len(kept))
            return attrs.evolve(options, kept=frozenset(kept))
        return attrs.evolve(options, kept=frozenset())

    def _without_chunks(self, options: Options, kept: list[int], size: int) -> list[int]:
        at = 0
        while at < len(kept):
            fewer = kept[:at] + kept[at + size :]
            if self._fails(attrs.evolve(options, kept=frozenset(fewer))):
                kept = [strike for strike in fewer if strike in self._best.struck]
            else:
                at += size
        return kept


Plainer = Callable[[Options], Options | None]


def _plainer(options: Options) -> Iterator[Plainer]:
    """Changes that make a world easier to read; each is None if it would change nothing."""
    yield _set(clients_per_group=1)
    yield _set(client_window=1)
    yield _set(operators=0)
    yield _set(operators=1)
    yield _set(writers=0)
    yield _set(writers=1)
    for group in options.groups[1:]:
        yield lambda o, group=group: attrs.evolve(  # type: ignore[misc] # a default binds it
            o, groups=tuple(one for one in o.groups if one != group)
        )
    yield _set(balancing=False)
    yield _set(members=3)
    yield _set(nodes=3, members=3)
    yield _set(disk=DiskKind.RECORDS)
    yield _set(clocks=Clocks.EXACT, boot_ppm_max=0)
    yield _set(batch_wait_ns=0)
    yield _set(temper=Temper.CALM)
    yield lambda o: attrs.evolve(o, steal_gap_ns=8 * o.steal_gap_ns)


def _set(**changes: object) -> Plainer:
    def change(options: Options) -> Options | None:
        changed = attrs.evolve(options, **changes)  # type: ignore[arg-type] # names of fields
        return None if changed == options else changed

    return change


def shrink(job: Job, failed: Verdict) -> Shrunk:
    return Shrinker(job, failed).run()
