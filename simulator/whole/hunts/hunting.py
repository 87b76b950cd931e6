"""Where planted bugs are looked for in worlds of whole nodes: small ones that have what each needs.

A bug counts as found where a world fails with it in place and the same world is clean without it.
"""

import signal
from collections.abc import Mapping
from time import process_time
from types import FrameType
from typing import Any, Final

import attrs

from paxos.ids import MS
from simulator.environment.violation import Violation
from simulator.mutants.planting import Mutant, plant
from simulator.whole.options import Fault, WholeOptions, draw
from simulator.whole.world import World

WORLD_CPU_S_MAX: Final = 60.0
"""A planted bug may make a world that never ends."""
SEEDS: Final = 10


def small(seed: int, **changes: object) -> WholeOptions:
    """A short one of three nodes."""
    usual: dict[str, Any] = dict(
        nodes=3,
        replicas=3,
        duration_ns=9_000 * MS,
        recovery_ns=9_000 * MS,
        producers=1,
        consumers=1,
        operators=1,
        reborn=False,
        trimmed=False,
        compacted=False,
        readers=(),
        tight=False,
    )
    return attrs.evolve(draw(seed), **{**usual, **changes})


class EndlessWorldError(Exception):
    """A world took longer than any good one does."""


@attrs.frozen
class Hunt:
    """One planted bug, and the worlds in which it is looked for."""

    point: str
    """Of issue 22 or 23, or what it was that went wrong."""
    mutant: Mutant
    faults: frozenset[Fault] = frozenset()
    changes: Mapping[str, object] = attrs.Factory(dict)
    seeds: int = SEEDS
    swarm: int | None = None
    """A seed of the whole swarm, whose worlds are longer: where small ones do not show it."""
    why_not: str = ""
    """Why these worlds do not show it."""
    elsewhere: str = ""
    """What shows it then."""

    def options(self, seed: int) -> WholeOptions:
        return small(seed, **{"faults": self.faults, "fault_gap_ns": 600 * MS, **self.changes})


@attrs.frozen
class Verdict:
    failure: str
    cpu_s: float


def run(options: WholeOptions, mutant: Mutant | None = None) -> Verdict:
    """One world, with this bug in place."""
    if mutant is not None:
        with plant(mutant):
            return run(options)
    signal.signal(signal.SIGVTALRM, _give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, WORLD_CPU_S_MAX)
    began_s, failure = process_time(), ""
    world = World(options)
    try:
        world.run()
    except EndlessWorldError:
        failure = "endless"
    except Violation as wrong:
        failure = str(wrong)
    except Exception as error:  # noqa: BLE001  whatever it is, it is the finding
        failure = f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return Verdict(failure, process_time() - began_s)


def _give_up(_signal: int, _frame: FrameType | None) -> None:
    raise EndlessWorldError
