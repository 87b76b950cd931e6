"""The steal tokens and the steals that used them; part of the registry's state (E10, E16).

There is one token for the whole cluster, or as many as the policy's budget allows; never two that
name the same node or group. A token has an absolute expiry, written by the node that requested it.
It can be taken over when it is free: given back, or expired by more than the margin on the clock of
the next requester, whose reading is in its request. The holder stops on its own boot clock, counted
from BEFORE its request (E6), so within the clock bound it has always stopped first.
"""

from collections.abc import Mapping
from types import MappingProxyType

from balancer.registry.commands import (
    AcquireStealToken,
    Refusal,
    ReleaseStealToken,
    TokenGranted,
    TokenRefused,
    TokenReleased,
)
from balancer.registry.records import HISTORY_MAX, STEAL_US_MAX, Outcome, StealRecord, StealToken
from paxos.ids import GroupId, Slot


class StealTokens:
    def __init__(
        self,
        tokens: tuple[StealToken, ...] = (),
        history: tuple[StealRecord, ...] = (),
        next_token: int = 1,
        stolen_versions: Mapping[GroupId, Slot] = MappingProxyType({}),
        cancelled: frozenset[int] = frozenset(),
    ) -> None:
        self.tokens = tokens
        """Granted and not given back, oldest first; some may have expired."""
        self.history = history
        """Oldest first, at most HISTORY_MAX; a new tuple at every change."""
        self.next_token = next_token
        self.stolen_versions = stolen_versions
        """The lease version from which each group was last stolen: such a steal cannot happen
        twice. Replaced, never changed in place, like everything that an image is made of."""
        self.cancelled = cancelled
        """The tokens among `tokens` that an operator has cancelled."""

    @property
    def token(self) -> StealToken | None:
        """The oldest: with the default budget of one, the only one."""
        return self.tokens[0] if self.tokens else None

    def acquire(self, command: AcquireStealToken, budget: int) -> TokenGranted | TokenRefused:
        """Grant a token if one is free; the registry has already checked plan, node and pause."""
        now = command.now_wall_ns
        for one in self.tokens:
            if _same_request(one, command):
                return TokenGranted(one)
        held = [one for one in self.tokens if not one.free_at(now)]
        in_the_way = [one for one in held if _meets(one, command)] or held[budget - 1 : budget]
        if in_the_way:
            return TokenRefused(Refusal.TOKEN_HELD, command.group, command.attempt, in_the_way[0])
        if command.master_version <= self.stolen_versions.get(command.group, -1):
            return TokenRefused(Refusal.STALE_MASTER, command.group, command.attempt)
        for one in self.tokens:
            if one.free_at(now):
                self._remember(one, Outcome.EXPIRED, one.expires_wall_ns)
        granted = StealToken(
            token=self.next_token,
            group=command.group,
            source=command.source,
            target=command.target,
            target_incarnation=command.target_incarnation,
            attempt=command.attempt,
            master_version=command.master_version,
            placement_version=command.placement_version,
            acquired_wall_ns=now,
            expires_wall_ns=now + command.duration_ns,
        )
        self.tokens = (*held, granted)
        self.next_token += 1
        return TokenGranted(granted)

    def release(self, command: ReleaseStealToken) -> TokenReleased:
        held = self.find(command.token)
        if held is None:
            return TokenReleased(command.token, was_held=False)
        self.tokens = tuple(one for one in self.tokens if one is not held)
        finished = held.acquired_wall_ns + min(max(command.duration_us, 0), STEAL_US_MAX) * 1_000
        self._remember(held, command.outcome, finished)
        return TokenReleased(command.token, was_held=True)

    def find(self, number: int) -> StealToken | None:
        return next((one for one in self.tokens if one.token == number), None)

    def cancel(self, number: int) -> bool:
        """Cancel the token; False if there is none, or it was already cancelled."""
        if self.find(number) is None or number in self.cancelled:
            return False
        self.cancelled |= {number}
        return True

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
        self.cancelled -= {token.token}
        if outcome == Outcome.DONE:
            stolen = {**self.stolen_versions, token.group: token.master_version}
            self.stolen_versions = dict(sorted(stolen.items()))


def _meets(held: StealToken, command: AcquireStealToken) -> bool:
    """Whether two steals share a group or a node: a node takes part in one at a time."""
    return held.group == command.group or bool(
        {held.source, held.target} & {command.source, command.target}
    )


def _same_request(held: StealToken, command: AcquireStealToken) -> bool:
    return (
        held.group == command.group
        and held.target == command.target
        and held.target_incarnation == command.target_incarnation
        and held.attempt == command.attempt
    )
