"""The cluster version over HTTP, on any node: who reads what, raising and holding it."""

from collections.abc import Awaitable, Callable
from typing import Any

from balancer.registry.commands import Command
from balancer.registry.versions import HoldClusterVersion, RaiseClusterVersion
from runtime.http.server import Answer, BadRequest, Route, json_answer
from runtime.membership.raising import Raising
from wire.software import CLUSTER_VERSION_NEWEST as NEWEST


class VersionAdmin:
    def __init__(self, raising: Raising, propose: Callable[[Command], Awaitable[Answer]]) -> None:
        self._raising, self._propose = raising, propose

    def routes(self) -> dict[tuple[str, str], Route]:
        return {
            ("GET", "/cluster/version"): self.show,
            ("POST", "/admin/cluster-version"): self.change,
        }

    async def show(self, _body: Any) -> Answer:  # noqa: ANN401 # JSON
        return json_answer(version_view(self._raising))

    async def change(self, body: dict[str, Any]) -> Answer:
        """{"set": N}, or {"hold": true | false}."""
        raising, wanted, held = self._raising, body.get("set"), body.get("hold")
        if isinstance(held, bool) and wanted is None:
            return await self._propose(HoldClusterVersion(held))
        if isinstance(wanted, bool) or not isinstance(wanted, int) or held is not None:
            raise BadRequest('expected {"set": a number}, or {"hold": true or false}')
        if wanted < raising.version:
            text = f"the cluster version is {raising.version}, and never falls"
            return json_answer({"error": text}, 409)
        if wanted > NEWEST:
            text = (
                f"this node runs a version of Evenkeel that knows cluster versions up to {NEWEST}"
            )
            return json_answer({"error": text}, 409)
        lacking = raising.lacking(wanted)
        if lacking:
            text = f"not every node can read cluster version {wanted}: {'; '.join(lacking)}"
            return json_answer({"error": text}, 409)
        return await self._propose(RaiseClusterVersion(wanted))


def version_view(raising: Raising) -> dict[str, Any]:
    rows = []
    for node in raising.members():
        reads = raising.reads(node)
        rows.append(
            {
                "id": node,
                "software": None if reads is None else reads.software or None,
                "oldest": None if reads is None else reads.oldest,
                "newest": None if reads is None else reads.newest,
            }
        )
    return {
        "version": raising.version,
        "newest": NEWEST,
        "possible": raising.possible(),
        "held": raising.registry.cluster_version.held,
        "waits_for": raising.waits_for(),
        "nodes": rows,
    }
