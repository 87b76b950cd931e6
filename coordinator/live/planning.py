"""The plan of a group with broker-side assignment: who is to have which partition, and since when.

Every change of members, subscriptions or topics raises the group's epoch and makes a new plan at
once; how members get there is `assigning`'s part.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import attrs

from coordinator.live.assigned_requests import RefusedError, chosen
from coordinator.live.live_assigned import LiveAssigned
from coordinator.live.tenure import Tenure
from coordinator.model import ErrorCode, MemberId
from coordinator.replicated.assignor import MemberSubscription, share_out
from coordinator.topics import Topics

Match: TypeAlias = Callable[[str, Iterable[str]], frozenset[str]]
"""The names that a pattern matches as a whole.

Raises:
    ValueError: if it is not a valid pattern.
"""


class Planning:
    """`topics` and `match` are the broker's; they are called whenever their answer may matter."""

    def __init__(self, tenure: Tenure, topics: Callable[[], Topics], match: Match) -> None:
        self._tenure = tenure
        self.topics = topics
        self._match = match

    def topics_in_use(self, group: LiveAssigned) -> frozenset[str] | None:
        """The topics that members subscribe to; None if their patterns cannot be matched, as after
        a limit was lowered."""
        ids = self.topics().ids
        names = {topic_id: name for name, (topic_id, _) in ids.items()}
        try:
            wanted = self._wanted(group, ids).values()
        except RefusedError:
            return None
        return frozenset(names[topic_id] for topics in wanted for topic_id in topics)

    def plan_if_possible(self, group: LiveAssigned, *, changed: bool) -> None:
        """Plan after an event that no request caused (time is up, topics have grown): there is no
        request to refuse.

        If no plan can be made, members keep their present shares.
        """
        try:
            self.plan_again(group, changed=changed)
        except RefusedError as refused:
            self._tenure.notice(group.name, "plan_refused", str(refused))

    def plan_again(self, group: LiveAssigned, *, changed: bool) -> None:
        """Make a new epoch and a new plan, if the input of the last plan has changed."""
        topics = self.topics()
        if not changed and group.topics_version == topics.version:
            return
        group.topics_version = topics.version
        subscriptions = {
            name: MemberSubscription(wanted, group.members[name].target)
            for name, wanted in self._wanted(group, topics.ids).items()
        }
        wanted = frozenset(topic for one in subscriptions.values() for topic in one.topics)
        partitions = {
            topic_id: count for topic_id, count in topics.ids.values() if topic_id in wanted
        }
        if not changed and partitions == group.topics:
            return
        if sum(partitions.values()) > self._tenure.config.assigned_partitions_max:
            raise RefusedError(ErrorCode.POLICY_VIOLATION, "too many partitions for one group")
        assignor = chosen(group.members.values())
        shares = share_out(assignor, subscriptions, partitions)
        group.epoch += 1
        group.assignor = assignor
        group.topics = partitions
        group.version += 1
        self._tenure.counters.rebalances += 1
        for name, share in shares.items():
            group.put(attrs.evolve(group.members[name], target=share))
        detail = f"epoch {group.epoch}: {len(group.members)} members"
        self._tenure.notice(group.name, "rebalance", detail)

    def _wanted(
        self, group: LiveAssigned, ids: Mapping[str, tuple[bytes, int]]
    ) -> dict[MemberId, frozenset[bytes]]:
        """The ids of the existing topics that each member subscribes to.

        Most members subscribe alike: a pattern is matched against all topics once for all of them.
        """
        members = group.members.values()
        patterns = {member.subscription.pattern for member in members} - {None}
        if len(patterns) > self._tenure.config.patterns_per_group_max:
            raise RefusedError(ErrorCode.POLICY_VIOLATION, "too many patterns in one group")
        meant: dict[tuple[tuple[str, ...], str | None], frozenset[bytes]] = {}
        wanted = {}
        for member in members:
            topics, pattern = said = (member.subscription.topics, member.subscription.pattern)
            if said not in meant:
                names = {*topics, *(self._matched(pattern, ids) if pattern else ())}
                meant[said] = frozenset(ids[name][0] for name in names if name in ids)
            wanted[member.member_id] = meant[said]
        return wanted

    def _matched(self, pattern: str, names: Iterable[str]) -> frozenset[str]:
        try:
            return self._match(pattern, names)
        except ValueError as error:
            raise RefusedError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error
