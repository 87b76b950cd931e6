"""The operator's policy for the balancer, and the balancer's decisions: the registry's records of
both.

All are bounded: the policy has a handful of fields, the last PLANS_MAX plans keep their first
PLAN_MOVES_MAX moves each, and there is one weight for each group.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import attrs

from balancer.planner.problem import CAPACITY_NORMAL, TOLERANCE_PERCENT, Evenness, Objectives
from balancer.registry.packing import (
    FLAG,
    I32,
    I64,
    STRING,
    U16,
    U32,
    Field,
    enum,
    mapping,
    optional,
    record,
    sequence,
)
from balancer.registry.records import GROUPS_MAX, NODES_MAX, WALL_NS_MAX, ZONE_CHARS_MAX
from paxos.ids import GroupId, NodeId

PREFERRED_ZONES_MAX: Final = 16
PERCENT_MAX: Final = 10_000
STEALS_MAX: Final = 8
"""Most steals at the same time in the whole cluster, whatever the policy says."""
PLANS_MAX: Final = 32
PLAN_MOVES_MAX: Final = 64
CODE_CHARS_MAX: Final = 40
TEXT_CHARS_MAX: Final = 200
WEIGHT_MAX: Final = 1_000_000_000
P99_MS_MAX: Final = 3_600_000
_NO_CAPACITIES: Final[Mapping[NodeId, int]] = {}


@attrs.frozen
class Policy:
    """Set as a whole, by compare-and-set."""

    automatic: bool = True
    """The planner replaces the placement by itself; off once an operator has set one."""
    evenness: Evenness = Evenness.COUNT
    spread_zones: bool = False
    preferred_zones: tuple[str, ...] = ()
    tolerance_percent: int = TOLERANCE_PERCENT
    trigger_percent: int = 3 * TOLERANCE_PERCENT
    """By weight: nothing is planned before a node exceeds its share by this much (hysteresis)."""
    topic_excess_max: int | None = None
    steals_max: int = 1
    """Steals at the same time in the cluster; a node takes part in only one at a time."""
    produce_p99_ms_max: int = 2_000
    """A node whose produce requests take longer is no target, and steals are paced meanwhile."""
    capacities: Mapping[NodeId, int] = _NO_CAPACITIES
    """In percent of a normal node; nodes that are missing here are normal."""

    @property
    def objectives(self) -> Objectives:
        return Objectives(
            evenness=self.evenness,
            spread_zones=self.spread_zones,
            preferred_zones=self.preferred_zones,
            tolerance_percent=self.tolerance_percent,
            topic_excess_max=self.topic_excess_max,
        )

    def capacity(self, node: NodeId) -> int:
        return self.capacities.get(node, CAPACITY_NORMAL)


def policy_problem(policy: Policy) -> str | None:
    """What is wrong with a policy; None if nothing is."""
    zones = policy.preferred_zones
    if len(zones) > PREFERRED_ZONES_MAX or any(len(zone) > ZONE_CHARS_MAX for zone in zones):
        return f"at most {PREFERRED_ZONES_MAX} zones of at most {ZONE_CHARS_MAX} characters"
    if not 0 <= policy.tolerance_percent <= policy.trigger_percent <= PERCENT_MAX:
        return f"0 <= tolerance <= trigger <= {PERCENT_MAX} percent"
    if policy.topic_excess_max is not None and not 0 <= policy.topic_excess_max <= PERCENT_MAX:
        return f"the bound of partitions of a topic is 0 to {PERCENT_MAX}, or nothing"
    if not 1 <= policy.steals_max <= STEALS_MAX:
        return f"1 to {STEALS_MAX} steals at once"
    if not 1 <= policy.produce_p99_ms_max <= P99_MS_MAX:
        return f"a produce latency of 1 to {P99_MS_MAX} ms"
    if any(not 0 <= capacity <= PERCENT_MAX for capacity in policy.capacities.values()):
        return f"a capacity is 0 to {PERCENT_MAX} percent"
    return None


class PlanMove(NamedTuple):
    group: GroupId
    source: NodeId | None
    target: NodeId
    reason: str
    """A planner.PlanReason, with its detail after a colon."""


@attrs.frozen
class PlanRecord:
    """One adopted plan: its author, time and reason, and its moves."""

    wall_ns: int
    node: NodeId
    trigger: str
    evenness: Evenness
    weights: str
    """The source of the weights: `counts`, `built-in`, or the source that published them."""
    moves: tuple[PlanMove, ...]
    moves_count: int
    """The number of all moves; `moves` keeps the first PLAN_MOVES_MAX."""
    at_least: int
    """The number of moves that every plan as even needs, according to its certificate."""
    proof: str


def record_problem(record: PlanRecord) -> str | None:
    """What is wrong with a plan's record; None if nothing is."""
    if not 0 <= record.wall_ns <= WALL_NS_MAX:
        return "the time is out of range"
    codes = (record.weights, record.proof, *(move.reason for move in record.moves))
    if len(record.trigger) > TEXT_CHARS_MAX or any(len(code) > CODE_CHARS_MAX for code in codes):
        return "a text is too long"
    if not len(record.moves) <= record.moves_count <= GROUPS_MAX + 1:
        return f"{record.moves_count} moves"
    return None


@attrs.frozen
class Weights:
    """The published weight of each group, in thousandths of an average one."""

    source: str = ""
    computed_wall_ns: int = 0
    weights: Mapping[GroupId, int] = attrs.field(factory=dict)


def weights_problem(weights: Weights) -> str | None:
    """What is wrong with published weights; None if nothing is."""
    if not 0 < len(weights.source) <= CODE_CHARS_MAX:
        return f"a source has 1 to {CODE_CHARS_MAX} characters"
    if not 0 <= weights.computed_wall_ns <= WALL_NS_MAX:
        return "the time is out of range"
    if any(not 0 <= weight <= WEIGHT_MAX for weight in weights.weights.values()):
        return f"a weight is 0 to {WEIGHT_MAX}"
    return None


POLICY: Final[Field[Policy]] = record(
    Policy,
    FLAG,
    enum(Evenness),
    FLAG,
    sequence(STRING, PREFERRED_ZONES_MAX),
    I32,
    I32,
    optional(I32),
    I32,
    I32,
    mapping(I32, I32, NODES_MAX),
)
PINS: Final[Field[Mapping[GroupId, NodeId]]] = mapping(U32, I32, GROUPS_MAX + 1)
_MOVE: Final[Field[PlanMove]] = record(PlanMove, U32, optional(I32), I32, STRING)
PLAN_RECORD: Final[Field[PlanRecord]] = record(
    PlanRecord,
    I64,
    I32,
    STRING,
    enum(Evenness),
    STRING,
    sequence(_MOVE, PLAN_MOVES_MAX),
    U16,
    U16,
    STRING,
)
WEIGHTS: Final[Field[Weights]] = record(Weights, STRING, I64, mapping(U32, I32, GROUPS_MAX + 1))
