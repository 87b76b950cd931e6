"""A change of members that is wanted, and waits for what is under way (changes/membership.py)."""

import attrs

from paxos.ids import NodeId


@attrs.frozen
class Change:
    """Members that are to be, once what is under way is applied: nothing new is begun till then."""

    members: tuple[NodeId, ...]
    since_boot_ns: int
