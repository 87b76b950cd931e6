"""Every limit of the group coordinator, with its name and the answer when it is exceeded.

The configured limits apply on the live coordinator, on the master. The constants are part of the
replicated state machine: every replica must agree on them, so they are not configurable.
"""

from typing import Final

import attrs
from attrs.validators import ge, gt

COMMAND_BYTES_MAX: Final = 8 * 1024 * 1024
"""One command in the log, well below an entry (paxos.entry.ENTRY_BYTES_MAX): CommandError."""
TEXT_BYTES_MAX: Final = 32_767
"""A string in a command, Kafka's own limit of an int16 length: CommandError."""
MEMBERS_MAX: Final = 10_000
"""Members in one snapshot of a group: CommandError."""
PROTOCOLS_MAX: Final = 64
"""Protocols of one member: CommandError."""
TOPICS_MAX: Final = 100_000
PARTITIONS_MAX: Final = 100_000
"""Topics and partitions in one command: CommandError."""
OFFSETS_PER_GROUP_MAX: Final = 100_000
"""Committed offsets of one group; applying a commit beyond this refuses it:
INVALID_COMMIT_OFFSET_SIZE."""
WAITS_MAX: Final = 5_000
"""Waits that a coordinator records for the next one, those that end first: CommandError."""
IMAGE_BYTES_MAX: Final = 1024 * 1024 * 1024
"""One group in a checkpoint: its snapshot, and at most OFFSETS_PER_GROUP_MAX offsets with
metadata. CommandError."""

DAY_MS: Final = 24 * 3600 * 1000


@attrs.frozen(kw_only=True)
class CoordinatorConfig:
    """The live coordinator's settings; in brackets the error for a request that exceeds one."""

    initial_rebalance_delay_ms: int = attrs.field(default=100, validator=ge(0))
    """How long an empty group waits for more members before its first generation (Kafka: 3 s)."""

    session_timeout_ms_min: int = attrs.field(default=6_000, validator=gt(0))
    session_timeout_ms_max: int = attrs.field(default=1_800_000, validator=gt(0))
    """[INVALID_SESSION_TIMEOUT]"""

    consumer_session_timeout_ms: int = attrs.field(default=45_000, validator=gt(0))
    consumer_heartbeat_interval_ms: int = attrs.field(default=1_000, validator=gt(0))
    """For groups with broker-side assignment (KIP-848): the coordinator announces both, members do
    not choose them. Each step of a change costs one interval (Kafka: 5 s)."""

    subscriptions_per_member_max: int = attrs.field(default=10_000, validator=gt(0))
    """Topics that one such member names, and partitions it reports as owned. [INVALID_REQUEST]"""

    assigned_partitions_max: int = attrs.field(default=50_000, validator=gt(0))
    """Partitions of one such group, so that a snapshot of it fits an entry. [POLICY_VIOLATION]"""

    patterns_per_group_max: int = attrs.field(default=64, validator=gt(0))
    """Different patterns of a group's members: each is matched against all topics whenever these
    change. [POLICY_VIOLATION]"""

    pause_ms_max: int = attrs.field(default=3_000, validator=gt(1))
    """Silence between two calls after which we, not the members, count as having been away."""

    grace_ms: int = attrs.field(default=2_000, validator=ge(0))
    """What a wait that is nearly over gets after a pause or a move, once: time to read what is left
    in our sockets, or for clients to find the new address."""

    wait_records_every_ms: int = attrs.field(default=1_000, validator=gt(0))
    """How often the remaining time of unusual waits is recorded, if there are any."""

    groups_max: int = attrs.field(default=10_000, validator=gt(0))
    """Consumer groups of one coordinator, counted live and stored. Groups still on their way into
    the log are not counted, so they can exceed the limit. [POLICY_VIOLATION]"""

    members_per_group_max: int = attrs.field(default=1_000, validator=gt(0))
    """[GROUP_MAX_SIZE_REACHED]"""

    members_max: int = attrs.field(default=100_000, validator=gt(0))
    """Members of all groups of one coordinator, including clients that were only given an id to
    join with: a lent id costs its client one request, and us a kilobyte for a while. If there is no
    room, the oldest lent id is taken back. [GROUP_MAX_SIZE_REACHED]"""

    lent_ms_max: int = attrs.field(default=60_000, validator=gt(0))
    """The longest time a lent id waits for its client to join with it."""

    protocols_per_member_max: int = attrs.field(default=32, validator=gt(0))
    """[INVALID_REQUEST]"""

    group_id_bytes_max: int = attrs.field(default=1_024, validator=gt(0))
    """[INVALID_GROUP_ID]"""

    text_bytes_max: int = attrs.field(default=1_024, validator=gt(0))
    """Client id, host, instance id, protocol names. [INVALID_REQUEST]"""

    topic_bytes_max: int = attrs.field(default=249, validator=gt(0))
    """[INVALID_TOPIC_EXCEPTION]"""

    member_metadata_bytes_max: int = attrs.field(default=512 * 1024, validator=gt(0))
    """All protocols of a member together. [INVALID_REQUEST]"""

    group_bytes_max: int = attrs.field(default=4 * 1024 * 1024, validator=gt(0))
    """All members, metadata and assignments of a group, so that a snapshot of it fits an entry.
    [JoinGroup: GROUP_MAX_SIZE_REACHED, SyncGroup: POLICY_VIOLATION]"""

    offset_metadata_bytes_max: int = attrs.field(default=4_096, validator=ge(0))
    """[OFFSET_METADATA_TOO_LARGE]"""

    commit_partitions_max: int = attrs.field(default=10_000, validator=gt(0))
    """[INVALID_COMMIT_OFFSET_SIZE]"""

    commit_bytes_max: int = attrs.field(default=4 * 1024 * 1024, validator=gt(0))
    """[INVALID_COMMIT_OFFSET_SIZE]"""

    pending_max: int = attrs.field(default=50_000, validator=gt(0))
    """Requests waiting for the log or for other members. [COORDINATOR_LOAD_IN_PROGRESS]"""

    offsets_retention_ms: int = attrs.field(default=7 * DAY_MS, validator=gt(0))
    """How long the offsets of a group without members are kept (offsets.retention.minutes)."""

    idle_group_ms: int = attrs.field(default=600_000, validator=ge(0))
    """How long a group with neither members nor offsets is remembered."""

    def __attrs_post_init__(self) -> None:
        if self.session_timeout_ms_min > self.session_timeout_ms_max:
            raise ValueError("session_timeout_ms_min is above session_timeout_ms_max")
        if 2 * self.pause_ms_max > self.session_timeout_ms_min:
            raise ValueError(
                "a pause must be noticed well within a session: "
                "2 * pause_ms_max <= session_timeout_ms_min"
            )
        if self.members_per_group_max > MEMBERS_MAX:
            raise ValueError(f"members_per_group_max is above {MEMBERS_MAX}")
        if self.protocols_per_member_max > PROTOCOLS_MAX:
            raise ValueError(f"protocols_per_member_max is above {PROTOCOLS_MAX}")
        if self.commit_partitions_max > PARTITIONS_MAX:
            raise ValueError(f"commit_partitions_max is above {PARTITIONS_MAX}")
        if 2 * max(self.group_bytes_max, self.commit_bytes_max) > COMMAND_BYTES_MAX:
            raise ValueError(
                f"group_bytes_max and commit_bytes_max are at most half of a command, "
                f"{COMMAND_BYTES_MAX // 2} bytes"
            )
        texts = (
            self.group_id_bytes_max,
            self.text_bytes_max,
            self.topic_bytes_max,
            self.offset_metadata_bytes_max,
        )
        if max(texts) > TEXT_BYTES_MAX // 2:
            raise ValueError(f"limits of strings are at most {TEXT_BYTES_MAX // 2} bytes")


def text_fits(text: str, bytes_max: int) -> bool:
    """Whether `text` can be written down: valid Unicode and not longer than `bytes_max`."""
    try:
        return len(text) <= bytes_max and len(text.encode()) <= bytes_max
    except UnicodeEncodeError:
        return False
