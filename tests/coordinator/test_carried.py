"""Requests and responses as bytes: what comes out is what went in, and nothing else is believed."""

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator import carried, model
from coordinator.carried import CARRIED
from coordinator.model import ErrorCode, MemberId
from coordinator.replicated.codec import CommandError

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
OR_NONE = st.none() | TEXT
BYTES = st.binary(max_size=40)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
ERROR = st.sampled_from(ErrorCode)
FLAG = st.booleans()


def several(one: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(one, max_size=4).map(tuple)


NUMBERS = several(INT32)
OF_TOPIC = st.builds(model.TopicPartitions, TEXT, NUMBERS)
OF_ID = st.builds(model.TopicIdPartitions, BYTES, NUMBERS)
OFFSETS = several(
    st.builds(
        model.TopicOffsets,
        TEXT,
        several(st.builds(model.PartitionOffset, INT32, INT64, INT32, TEXT, INT64)),
    )
)
ERRORS = several(
    st.builds(model.TopicErrors, TEXT, several(st.builds(model.PartitionError, INT32, ERROR)))
)
COMMIT = st.builds(
    model.OffsetCommit, group=TEXT, generation=INT32, member_id=TEXT, instance_id=OR_NONE,
    commit_wall_ms=st.just(7), topics=OFFSETS,
)  # fmt: skip
PAIRS: dict[type, tuple[st.SearchStrategy[Any], st.SearchStrategy[Any]]] = {
    model.JoinGroup: (
        st.builds(
            model.JoinGroup, group=TEXT, member_id=TEXT, instance_id=OR_NONE, client_id=TEXT,
            client_host=TEXT, session_timeout_ms=INT32, rebalance_timeout_ms=INT32,
            protocol_type=TEXT, protocols=several(st.builds(model.Protocol, TEXT, BYTES)),
            require_known_member_id=FLAG, supports_skip_assignment=FLAG,
        ),
        st.builds(
            model.JoinGroupResponse, error=ERROR, generation=INT32, protocol_type=OR_NONE,
            protocol_name=OR_NONE, leader=TEXT, member_id=TEXT, skip_assignment=FLAG,
            members=several(st.builds(model.JoinedMember, TEXT, OR_NONE, BYTES)),
        ),
    ),
    model.SyncGroup: (
        st.builds(
            model.SyncGroup, group=TEXT, generation=INT32, member_id=TEXT, instance_id=OR_NONE,
            protocol_type=OR_NONE, protocol_name=OR_NONE,
            assignments=several(st.builds(model.Assignment, TEXT, BYTES)),
        ),
        st.builds(
            model.SyncGroupResponse, error=ERROR, protocol_type=OR_NONE, protocol_name=OR_NONE,
            assignment=BYTES,
        ),
    ),
    model.Heartbeat: (
        st.builds(
            model.Heartbeat, group=TEXT, generation=INT32, member_id=TEXT, instance_id=OR_NONE
        ),
        st.builds(model.HeartbeatResponse, error=ERROR),
    ),
    model.LeaveGroup: (
        st.builds(
            model.LeaveGroup, group=TEXT,
            members=several(st.builds(model.LeavingMember, TEXT, OR_NONE, TEXT)),
        ),
        st.builds(
            model.LeaveGroupResponse, error=ERROR,
            members=several(st.builds(model.LeftMember, TEXT, OR_NONE, ERROR)),
        ),
    ),
    model.AssignedHeartbeat: (
        st.builds(
            model.AssignedHeartbeat, group=TEXT, member_id=TEXT, epoch=INT32, instance_id=OR_NONE,
            rack_id=OR_NONE, client_id=TEXT, client_host=TEXT, rebalance_timeout_ms=INT32,
            topics=st.none() | several(TEXT), pattern=OR_NONE, assignor=OR_NONE,
            owned=st.none() | several(OF_ID), names_itself=FLAG,
        ),
        st.builds(
            model.AssignedHeartbeatResponse, error=ERROR, message=OR_NONE, member_id=TEXT,
            epoch=INT32, interval_ms=INT32, assignment=st.none() | several(OF_ID),
        ),
    ),
    model.OffsetCommit: (COMMIT, st.builds(model.OffsetCommitResponse, topics=ERRORS)),
    model.OffsetFetch: (
        st.builds(
            model.OffsetFetch, group=TEXT, topics=st.none() | several(OF_TOPIC), member_id=TEXT,
            epoch=INT32,
        ),
        st.builds(model.OffsetFetchResponse, error=ERROR, topics=OFFSETS),
    ),
}  # fmt: skip


def test_all_kinds_are_tried_here() -> None:
    assert set(PAIRS) == CARRIED


@pytest.mark.parametrize("kind", PAIRS, ids=lambda kind: kind.__name__)
def test_every_field_of_a_kind_is_carried(kind: type) -> None:
    """A field that is new in the model, and forgotten here, would get its default on the way."""
    names = {field.name for field in attrs.fields(kind)} - {"commit_wall_ms"}
    assert _fields_of(carried._KINDS[kind][1]) == names


def _fields_of(shape: carried._Field) -> set[str]:
    closure = shape.write.__closure__
    assert closure is not None
    (fields,) = [cell.cell_contents for cell in closure if isinstance(cell.cell_contents, dict)]
    return set(fields)


@given(st.data())
@pytest.mark.parametrize("kind", PAIRS, ids=lambda kind: kind.__name__)
def test_what_comes_out_is_what_went_in(kind: type, data: st.DataObject) -> None:
    requests, responses = PAIRS[kind]
    request, response = data.draw(requests), data.draw(responses)
    assert carried.decode_request(carried.encode_request(request), 7) == request
    assert carried.decode_response(request, carried.encode_response(request, response)) == response


@given(st.data())
def test_damaged_bytes_are_refused_or_say_something_else(data: st.DataObject) -> None:
    """Never another exception than CommandError, whatever is cut off or changed."""
    kind = data.draw(st.sampled_from(list(PAIRS)))
    request, response = (data.draw(one) for one in PAIRS[kind])
    for written, read in (
        (carried.encode_request(request), lambda found: carried.decode_request(found, 7)),
        (
            carried.encode_response(request, response),
            lambda found: carried.decode_response(request, found),
        ),
    ):
        at = data.draw(st.integers(0, len(written) - 1))
        changed = bytearray(written)
        changed[at] ^= data.draw(st.integers(1, 255))
        for found in (bytes(changed), written[:at], written + b"\0"):
            try:
                read(found)
            except CommandError:
                continue
            assert found == bytes(changed)


def test_what_is_too_long_is_not_carried() -> None:
    beat = model.Heartbeat(group=model.ConsumerGroupId("g"), generation=1, member_id=MemberId("m"))
    for wrong in ("x" * 40_000, "\ud800"):
        with pytest.raises(CommandError):
            carried.encode_request(attrs.evolve(beat, member_id=MemberId(wrong)))
    share = model.Assignment(MemberId("m"), bytes(carried.REQUEST_BYTES_MAX))
    sync = model.SyncGroup(
        group=model.ConsumerGroupId("g"),
        generation=1,
        member_id=MemberId("m"),
        assignments=(share,),
    )
    with pytest.raises(CommandError):
        carried.encode_request(sync)
    response = model.SyncGroupResponse(
        error=ErrorCode.NONE, assignment=bytes(carried.RESPONSE_BYTES_MAX)
    )
    with pytest.raises(CommandError):
        carried.encode_response(sync, response)


def test_ten_thousand_partitions_are_a_matter_of_milliseconds() -> None:
    """They are written in columns: the whole commit has a few bytes more for each than it must."""
    partitions = tuple(model.PartitionOffset(one, one, 3, "", one) for one in range(10_000))
    commit = model.OffsetCommit(
        group=model.ConsumerGroupId("g"),
        commit_wall_ms=7,
        topics=(model.TopicOffsets("t", partitions),),
    )
    written = carried.encode_request(commit)
    assert len(written) < 10_000 * 24 + 100
    assert carried.decode_request(written, 7) == commit


def test_the_bytes_are_those_of_the_first_release() -> None:
    """Nodes of different releases talk to each other: a change needs another FORM."""
    beat = model.Heartbeat(
        group=model.ConsumerGroupId("g"), generation=3, member_id=MemberId("m"), instance_id=None
    )
    assert carried.encode_request(beat) == b"\x01\x03\0\x01g\0\0\0\x03\0\x01m\xff\xff"
    told = model.HeartbeatResponse(error=ErrorCode.REBALANCE_IN_PROGRESS)
    assert carried.encode_response(beat, told) == b"\x01\x03\0\x1b"
    commit = model.OffsetCommit(
        group=model.ConsumerGroupId("g"),
        generation=3,
        member_id=MemberId("m"),
        commit_wall_ms=0,
        topics=(model.TopicOffsets("t", (model.PartitionOffset(1, 2, 3, "note", 4),)),),
    )
    assert carried.encode_request(commit) == (
        b"\x01\x06\0\x01g\0\0\0\x03\0\x01m\xff\xff\0\0\0\x01\0\x01t\0\0\0\x01"
        b"\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x03\x01\0\x04note\0\0\0\0\0\0\0\x04"
    )
