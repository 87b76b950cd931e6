"""Settings of a task group, as frozen values that are always valid."""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from evenkeel.errors import ConfigurationError
from evenkeel.tasks.notes import NoteError, checked_metadata
from evenkeel.tasks.sharding import Election, Sharding, Sticky, coordinators_choice

MS: Final = 1_000_000
NAME_BYTES_MAX: Final = 60
"""Of a member; a session's name adds a random number and the time."""


@attrs.frozen(kw_only=True)
class Timing:
    """A member may run tasks for `lease_ms` after it *asked* for its lease, less `drift_ms_max`; it
    begins to stop them `stop_ms` before that. Others may declare it expired `lease_ms` after they
    *heard* of it. So it has always stopped by then, provided that its clock and theirs drift apart
    by at most `drift_ms_max` within a lease, and that its tasks stop within `stop_ms`.

    A member that does not acknowledge a plan within `ack_timeout_ms` is evicted: its lease is not
    renewed.
    """

    lease_ms: int = 10_000
    renew_ms: int = 2_000
    drift_ms_max: int = 200
    stop_ms: int = 3_000
    ack_timeout_ms: int = 5_000

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(Timing):
            if getattr(self, field.name) < (field.name != "drift_ms_max"):
                raise ConfigurationError(f"{field.name} is {getattr(self, field.name)}")
        if 2 * self.renew_ms + self.drift_ms_max + self.stop_ms > self.lease_ms:
            raise ConfigurationError(
                "a lease must outlive one lost renewal, and the time that stopping takes",
                advice="2 * renew_ms + drift_ms_max + stop_ms <= lease_ms",
            )


@attrs.frozen(kw_only=True)
class TaskGroupConfig:
    """`sharding` and `election` must be the same for all members: others are refused.

    With `stop_all` every member stops everything before any of them starts tasks of a new plan.
    Without it only tasks that move are stopped, and all others continue.
    """

    name: str = ""
    """The member's name, for people; by default that of its machine. Need not be unique."""
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    """Shown to shardings and elections; JSON."""
    sharding: Sharding = attrs.Factory(Sticky)
    election: Election = coordinators_choice
    stop_all: bool = False
    timing: Timing = Timing()
    session_timeout_ms: int = 10_000
    heartbeat_ms: int = 1_000
    rebalance_timeout_ms: int = 10_000
    ledger: str = ""
    """The topic with the group's ledger; by default `evenkeel-tasks-` and the group's name."""
    replication: int = -1
    """Of the ledger, when it is created; -1 takes the cluster's default."""

    def __attrs_post_init__(self) -> None:
        if len(self.name.encode()) > NAME_BYTES_MAX:
            raise ConfigurationError(f"name is longer than {NAME_BYTES_MAX} bytes")
        try:
            checked_metadata(self.metadata)
        except NoteError as error:
            raise ConfigurationError("metadata cannot be used", why=str(error)) from error
        for name in ("session_timeout_ms", "heartbeat_ms", "rebalance_timeout_ms"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}")
        if 3 * self.heartbeat_ms > self.session_timeout_ms:
            raise ConfigurationError(
                "a session must outlive two lost heartbeats", advice="heartbeat_ms <= a third"
            )

    @property
    def protocol(self) -> str:
        """What members must have in common to join the group."""
        election = getattr(self.election, "__name__", type(self.election).__name__)
        return f"{type(self.sharding).__name__}-{election}"
