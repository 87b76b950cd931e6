"""Whatever is written has a row that says from which cluster version on it may be written."""

from pathlib import Path
from typing import Any

import pytest

from balancer.registry import codec as registry_codec
from balancer.registry.commands import (
    CreatePartitions,
    Decided,
    DrainNode,
    PinGroup,
    Refusal,
    Refused,
)
from balancer.registry.credentials import AlterCredentials
from balancer.registry.image import IMAGE_VERSION
from balancer.registry.listeners import SetListeners
from balancer.registry.quotas import AlterQuotas
from balancer.registry.rules import CreateRules, DeleteRules
from balancer.registry.versions import HoldClusterVersion, NoteReads, RaiseClusterVersion, Reads
from broker.formats import RAISES, ROWS, FormatGate, Place
from broker.proposals.commands import CommandKind, opaque
from broker.state_machine import checkpoint_chunks
from coordinator.replicated import image as coordinator_image
from coordinator.replicated.commands import CommandKind as CoordinatorKind
from paxos import codec as paxos_codec
from paxos.ids import GroupId, NodeId, Slot
from runtime.membership.handshake import FORMAT
from runtime.membership.versions import LINK_NEWEST, LINK_OLDEST
from runtime.peers.frames import LINK_SINCE, Kind
from storage import checkpoints, identity
from storage import format as log_format
from storage.cold import format as cold_format
from wire.software import CLUSTER_VERSION_BASE, CLUSTER_VERSION_NEWEST

EXISTING: dict[Place, set[int]] = {
    Place.ENTRY: set(CommandKind),
    Place.REGISTRY: set(registry_codec.KINDS),
    Place.COORDINATOR: set(CoordinatorKind),
    Place.REGISTRY_IMAGE: set(range(7, IMAGE_VERSION + 1)),
    Place.COORDINATOR_IMAGE: {coordinator_image.VERSION},
    Place.CHUNK: {kind << 8 | one for kind, one in checkpoint_chunks.VERSIONS.items()},
    Place.LOG_RECORD: {
        value
        for name, value in vars(log_format).items()
        if name in ("PROMISE", "ACCEPT", "LEARNED", "VOTING", "STATE", "RETIRE", "DAMAGE")
    },
    Place.SEGMENT: {log_format.FORMAT_VERSION},
    Place.CHECKPOINT: {checkpoints.FORMAT_VERSION},
    Place.COLD_SEGMENT: {cold_format.FORMAT_VERSION},
    Place.DIRECTORY: {identity.FORMAT_VERSION, identity.WITH_CLUSTER_VERSION},
    Place.PAXOS: {paxos_codec.FORMAT},
}
"""What this program writes, from the modules that write it."""


@pytest.mark.parametrize("place", Place)
def test_what_is_written_has_a_row(place: Place) -> None:
    """A new kind, or a new version of a format, belongs into broker/formats.py: from which cluster
    version on may it be written? Nodes of before cannot read it."""
    assert set(ROWS[place]) == EXISTING[place]


def test_the_kinds_of_log_records_are_all_known() -> None:
    """They are plain numbers, and a new one must be named above, too."""
    lines = Path(log_format.__file__).read_text().splitlines()
    begin = lines.index("PROMISE: Final = 1")
    end = next(at for at, line in enumerate(lines) if line.startswith("FLAG_VOTING"))
    named = [line for line in lines[begin:end] if ": Final = " in line]
    assert len(named) == len(EXISTING[Place.LOG_RECORD])


def test_every_row_is_of_a_cluster_version_that_exists() -> None:
    versions = {version for rows in ROWS.values() for version in rows.values()}
    assert versions == set(range(CLUSTER_VERSION_BASE, CLUSTER_VERSION_NEWEST + 1))


def test_every_message_between_nodes_has_a_row() -> None:
    """From which version of the link on it may be sent; peers of before close the link at it."""
    assert set(LINK_SINCE) == set(Kind)
    assert set(LINK_SINCE.values()) <= set(range(LINK_OLDEST, LINK_NEWEST + 1))
    assert LINK_OLDEST == FORMAT, "what HELLO says"


# -- may I write this? ----------------------------------------------------------------------------

NODE, GROUP = NodeId(1), GroupId(1)
OF_VERSION_2: list[Any] = [
    CreatePartitions("t", 6, (GROUP,)),
    PinGroup(GROUP, NODE, (NODE,)),
    HoldClusterVersion(True),
    NoteReads(NODE, Reads(1, 2, "0.3.0")),
]
OF_VERSION_3: list[Any] = [
    SetListeners(NODE, ()),
    AlterCredentials((), bytes(32)),
    CreateRules(()),
    DeleteRules(()),
    AlterQuotas(()),
]
OF_VERSION_1: list[Any] = [CreatePartitions("t", 6), PinGroup(GROUP, NODE), DrainNode(NODE, True)]


def told(gate: FormatGate, command: Any) -> Any:
    (chunk,) = opaque(CommandKind.REGISTRY, registry_codec.encode_command(command))
    refusal = gate.refusal(chunk)
    return None if refusal is None else registry_codec.decode_result(refusal)


@pytest.mark.parametrize(
    ("command", "since"),
    [*((one, 2) for one in OF_VERSION_2), *((one, 3) for one in OF_VERSION_3)],
    ids=lambda one: type(one).__name__,
)
def test_what_an_older_node_cannot_read_is_refused_in_words(command: Any, since: int) -> None:
    gate = FormatGate(lambda: since - 1, lambda: "node 2 runs 0.2.0")
    for asked in (command, Decided(Slot(5), command)):
        result = told(gate, asked)
        assert isinstance(result, Refused)
        assert result.reason is Refusal.CLUSTER_VERSION
        told_so = f"needs cluster version {since}, and the cluster is at {since - 1}: node 2 runs"
        assert told_so in result.detail
    assert told(FormatGate(lambda: since), command) is None


@pytest.mark.parametrize("command", OF_VERSION_3, ids=lambda one: type(one).__name__)
def test_security_needs_the_third_version(command: Any) -> None:
    result = told(FormatGate(lambda: 2), command)
    assert "needs cluster version 3, and the cluster is at 2" in result.detail
    assert told(FormatGate(lambda: 3), command) is None


@pytest.mark.parametrize("command", OF_VERSION_1, ids=lambda one: type(one).__name__)
def test_what_every_node_reads_is_written(command: Any) -> None:
    assert told(FormatGate(lambda: 1), command) is None
    assert told(FormatGate(lambda: 1), Decided(Slot(5), command)) is None


def test_the_raise_itself_is_written_before_the_version_it_raises_to() -> None:
    assert registry_codec.kind_of(registry_codec.encode_command(RaiseClusterVersion(2))) == RAISES
    assert told(FormatGate(lambda: 1), RaiseClusterVersion(2)) is None


def test_a_command_of_a_later_program_is_not_written_for_another_node() -> None:
    """A newer node forwards to us what we could not read back."""
    later = bytes((1, registry_codec.KINDS[-1] + 1, 0))
    (chunk,) = opaque(CommandKind.REGISTRY, later)
    refusal = FormatGate(lambda: 9).refusal(chunk)
    assert refusal is not None
    result = registry_codec.decode_result(refusal)
    assert isinstance(result, Refused)
    assert "not known to this version" in result.detail


def test_bytes_that_are_no_registry_command_are_left_to_others() -> None:
    for chunk in (b"", b"\0\0\0\1", *opaque(CommandKind.CONSUMER_GROUP, b"\1\xff")):
        assert FormatGate(lambda: 1).refusal(chunk) is None
    (chunk,) = opaque(CommandKind.REGISTRY, b"\xff\xff")
    assert FormatGate(lambda: 1).refusal(chunk) is None, "the registry says that it is malformed"
