"""The steal token and the steals that used it; part of the registry's state (E10, E16).

One token for the whole cluster, with an absolute expiry written by the node that asked for it. It
is taken over when it is free: given back, or expired by more than the margin on the clock of the
node that asks next, whose reading is in its request. The holder stops on its own boot clock,
counted from BEFORE it asked (E6), so within the clock bound it has always stopped first.
"""

from balancer.records import HISTORY_MAX, STEAL_US_MAX, Outcome, StealRecord, StealToken
from balancer.registry_commands import (
    AcquireStealToken,
    Refusal,
    ReleaseStealToken,
    TokenGranted,
    TokenRefused,
    TokenReleased,
)
from paxos.ids import GroupId, Slot


class TokenDesk:
    def __init__(
        self,
        token: StealToken | None = None,
        history: tuple[StealRecord, ...] = (),
        next_token: int = 1,
        stolen_versions: dict[GroupId, Slot] | None = None,
    ) -> None:
        self.token = token
        self.history = history
        """Oldest first, at most HISTORY_MAX; a new tuple at every change."""
        self.next_token = next_token
        self.stolen_versions = {} if stolen_versions is None else stolen_versions
        """Lease version from which each group was last stolen: such a steal cannot happen twice."""

    def acquire(self, command: AcquireStealToken) -> TokenGranted | TokenRefused:
        """Grant the token if it is free; the registry has already checked plan, node and pause."""
        held = self.token
        if held is not None and _same_request(held, command):
            return TokenGranted(held)
        if held is not None and not held.free_at(command.now_wall_ns):
            return TokenRefused(Refusal.TOKEN_HELD, command.group, command.attempt, held)
        if command.master_version <= self.stolen_versions.get(command.group, -1):
            return TokenRefused(Refusal.STALE_MASTER, command.group, command.attempt)
        if held is not None:
            self._remember(held, Outcome.EXPIRED, held.expires_wall_ns)
        self.token = StealToken(
            token=self.next_token,
            group=command.group,
            source=command.source,
            target=command.target,
            target_incarnation=command.target_incarnation,
            attempt=command.attempt,
            master_version=command.master_version,
            placement_version=command.placement_version,
            acquired_wall_ns=command.now_wall_ns,
            expires_wall_ns=command.now_wall_ns + command.duration_ns,
        )
        self.next_token += 1
        return TokenGranted(self.token)

    def release(self, command: ReleaseStealToken) -> TokenReleased:
        held = self.token
        if held is None or held.token != command.token:
            return TokenReleased(command.token, was_held=False)
        self.token = None
        finished = held.acquired_wall_ns + min(max(command.duration_us, 0), STEAL_US_MAX) * 1_000
        self._remember(held, command.outcome, finished)
        return TokenReleased(command.token, was_held=True)

    def _remember(self, token: StealToken, outcome: Outcome, finished_wall_ns: int) -> None:
        one = StealRecord(
            token=token.token,
            group=token.group,
            source=token.source,
            target=token.target,
            master_version=token.master_version,
            placement_version=token.placement_version,
            outcome=outcome,
            finished_wall_ns=finished_wall_ns,
            duration_us=(finished_wall_ns - token.acquired_wall_ns) // 1_000,
        )
        self.history = (*self.history, one)[-HISTORY_MAX:]
        if outcome == Outcome.DONE:
            self.stolen_versions[token.group] = token.master_version


def _same_request(held: StealToken, command: AcquireStealToken) -> bool:
    return (
        held.group == command.group
        and held.target == command.target
        and held.target_incarnation == command.target_incarnation
        and held.attempt == command.attempt
    )
