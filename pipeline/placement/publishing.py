"""From costs to a decision: published, or not and why. No failure here ends the job.

The registry only accepts weights that are not older than its own, so publishing the same twice, or
late, changes nothing: a repeated micro-batch is harmless. Weights that could not be published are
dropped: half a minute later there are newer ones.
"""

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import attrs

from balancer.problem_json import ProblemError
from pipeline.placement.admin import AdminError, Nodes, RefusedError
from pipeline.placement.logic import GroupCost, Nothing, Rules, Weighed, weigh
from pipeline.placement.outlook import Outlook, groups_of, outlook

SOURCE: Final = "placement"
"""The name of these weights in `evenkeel balance show`, unless given."""


class Outcome(StrEnum):
    PUBLISHED = "published"
    DRY = "dry"
    """They would have been published."""
    NOTHING = "nothing"
    """There is too little data, or it is too old."""
    REFUSED = "refused"
    """The registry has newer ones, or a node finds them invalid."""
    FAILED = "failed"
    """No node, or no majority of nodes, has answered."""


@attrs.frozen(kw_only=True)
class Decision:
    """The outcome of one computation."""

    as_of_ms: int
    """The version of the weights."""
    outcome: Outcome
    why: str = ""
    weighed: Weighed | None = None
    outlook: Outlook | None = None

    @property
    def went_well(self) -> bool:
        return self.outcome in (Outcome.PUBLISHED, Outcome.DRY)

    def to_json(self) -> dict[str, Any]:
        """As written to the decisions topic; `moves` is what the balancer would do."""
        value: dict[str, Any] = {
            "as_of_ms": self.as_of_ms,
            "outcome": self.outcome.value,
            "why": self.why,
        }
        if self.weighed is not None:
            value["weights"] = {str(one): weight for one, weight in self.weighed.weights.items()}
            value["unknown"] = list(self.weighed.unknown)
        if self.outlook is not None:
            found = self.outlook
            value |= {
                "moves": [
                    {
                        "group": one.group,
                        "source": one.source,
                        "target": one.target,
                        "reason": one.reason.value,
                    }
                    for one in found.plan.moves
                ],
                "ratio_now": round(found.ratio[0], 4),
                "ratio_planned": round(found.ratio[1], 4),
                "balancer": found.acts,
            }
        return value

    def encode(self) -> bytes:
        return json.dumps(self.to_json(), separators=(",", ":")).encode()

    def __str__(self) -> str:
        """A line for the log."""
        when = datetime.fromtimestamp(self.as_of_ms / 1_000, UTC).strftime("%H:%M:%S")
        text = f"as of {when} UTC: {self.outcome.value}"
        if self.why:
            text += f", {self.why}"
        if self.weighed is not None:
            text += f", weights of {len(self.weighed.weights)} groups"
            if self.weighed.unknown:
                text += f" ({len(self.weighed.unknown)} of them unknown, so average)"
        if self.outlook is not None:
            before, after = self.outlook.ratio
            text += f"; fullest node to its share {before:.2f}, planned {after:.2f}"
            text += f"; balancer: {self.outlook.acts}"
        return text


@attrs.frozen(kw_only=True)
class Publisher:
    """Asks the nodes for the problem, and publishes weights to them."""

    nodes: Nodes
    rules: Rules
    now_ms: Callable[[], int]
    source: str = SOURCE
    dry: bool = False
    """Only report what would be published."""

    def decide(self, costs: Iterable[GroupCost], as_of_ms: int) -> Decision:
        """Weigh, and publish if there is something to publish. Errors from outside are not raised:
        they become the decision."""
        try:
            told = self.nodes.get("/problem")
            weighed = weigh(costs, as_of_ms, groups_of(told), self.now_ms(), self.rules)
            if isinstance(weighed, Nothing):
                return Decision(as_of_ms=as_of_ms, outcome=Outcome.NOTHING, why=weighed.why)
            found = outlook(told, weighed.weights)
        except AdminError as error:
            return Decision(as_of_ms=as_of_ms, outcome=Outcome.FAILED, why=str(error))
        except ProblemError as error:
            why = f"a node of another version? GET /problem: {error}"
            return Decision(as_of_ms=as_of_ms, outcome=Outcome.FAILED, why=why)
        outcome, why = (Outcome.DRY, "") if self.dry else self._publish(weighed)
        return Decision(as_of_ms=as_of_ms, outcome=outcome, why=why, weighed=weighed, outlook=found)

    def _publish(self, weighed: Weighed) -> tuple[Outcome, str]:
        body = {
            "source": self.source,
            "computed_wall_ms": weighed.as_of_ms,
            "weights": {str(group): weight for group, weight in weighed.weights.items()},
        }
        try:
            self.nodes.post("/admin/weights", body)
        except RefusedError as error:
            return Outcome.REFUSED, str(error)
        except AdminError as error:
            return Outcome.FAILED, str(error)
        return Outcome.PUBLISHED, ""
