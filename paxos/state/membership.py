"""A wanted change of members that waits for what is in flight (paxos/changes/membership.py)."""

import attrs

from paxos.ids import NodeId


@attrs.frozen
class Change:
    """The members to come, once all that is in flight is applied; until then nothing is begun."""

    members: tuple[NodeId, ...]
    since_boot_ns: int
