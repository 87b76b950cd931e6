"""Messages between members as bytes: type, length, fixed fields, and entries passed through.

Encoding appends buffers to a list and never copies an entry; decoding slices the frame it is given,
so the frame's memory must stay valid and unchanged for as long as the entries are kept. Version of
this format: `FORMAT`, exchanged in the link's hello; peers of another format are refused.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from paxos import entry as entries
from paxos.entry import ENTRY_BYTES_MAX, Buffer, Entry, EntryError
from paxos.ids import (
    INCARNATION_MAX,
    ROUND_MAX,
    Ballot,
    GroupId,
    Incarnation,
    NodeId,
    Slot,
)
from paxos.messages import (
    Accept,
    Accepted,
    Behind,
    Commit,
    Learn,
    Learned,
    Message,
    Nack,
    Prepare,
    Progress,
    Promise,
    RejoinAnswer,
    RejoinAsk,
    StealAbort,
    StealRequest,
    Trimmed,
)

FORMAT: Final = 3
ENTRIES_MAX: Final = 4096
BALLOTS_KEPT: Final = 4096
"""Decoded ballots in the cache: nearly every message of a group carries the same one."""
REASON_BYTES_MAX: Final = 200


class PeerError(ValueError):
    """A peer sent bytes that are not a message: drop the connection, nothing else is harmed."""


_HEAD: Final = struct.Struct(">BI")
_PREPARE: Final = struct.Struct(">IQiQ")
_PROMISE: Final = struct.Struct(">IQiI")
_VOTE: Final = struct.Struct(">QQiI")
_TWO_BALLOTS: Final = struct.Struct(">IQiQi")
_BALLOT_SLOT: Final = struct.Struct(">IQiQ")
_ACCEPT: Final = struct.Struct(">IQiQQQ")
_COMMIT: Final = struct.Struct(">IQiQQ")
_GROUP_SLOT: Final = struct.Struct(">IQ")
_TRIMMED: Final = struct.Struct(">IQQ")
_LEARNED: Final = struct.Struct(">IQI")
_LENGTH: Final = struct.Struct(">I")
_PROGRESS: Final = struct.Struct(">IQQQiQq")
_REJOIN_ASK: Final = struct.Struct(">IQ")
_REJOIN_ANSWER: Final = struct.Struct(">IQQiQQ")
_STEAL_REQUEST: Final = struct.Struct(">IQQQQ")
_STEAL_ABORT: Final = struct.Struct(">IQH")

_TYPES: Final[tuple[type[Any], ...]] = (
    Accept,
    Accepted,
    Commit,
    Prepare,
    Promise,
    Nack,
    Behind,
    Learn,
    Learned,
    Progress,
    RejoinAsk,
    RejoinAnswer,
    StealRequest,
    StealAbort,
    Trimmed,
)
_CODE: Final = {kind: code for code, kind in enumerate(_TYPES, start=1)}


# -- encoding ---------------------------------------------------------------------------------


def encode(message: Message, out: list[Buffer]) -> int:
    """Append the encoding of one message to `out`; returns its length in bytes."""
    kind = type(message)
    if kind is Accept:
        return _encode_accept(message, out)  # type: ignore[arg-type] # `is` does not narrow here
    at = len(out)
    out.append(b"")
    size = _ENCODERS[kind](message, out)
    out[at] = _HEAD.pack(_CODE[kind], size)
    return size + _HEAD.size


def _encode_accept(m: Accept, out: list[Buffer]) -> int:
    size = _ACCEPT.size + m.entry.size
    ballot = m.ballot
    head = _HEAD.pack(_CODE[Accept], size)
    out.append(
        head + _ACCEPT.pack(m.group, ballot[0], ballot[1], m.slot, m.counted_from, m.counted_to)
    )
    out.extend(m.entry.chunks)
    return size + _HEAD.size


def _fixed(
    layout: struct.Struct, values: Callable[[Any], tuple[int, ...]]
) -> Callable[[Any, list[Buffer]], int]:
    def encode_fixed(message: Any, out: list[Buffer]) -> int:  # noqa: ANN401 # dispatched by type
        out.append(layout.pack(*values(message)))
        return layout.size

    return encode_fixed


def _encode_promise(m: Promise, out: list[Buffer]) -> int:
    out.append(_PROMISE.pack(m.group, *m.ballot, len(m.votes)))
    size = _PROMISE.size
    for slot, ballot, entry in m.votes:
        out.append(_VOTE.pack(slot, *ballot, entry.size))
        out.extend(entry.chunks)
        size += _VOTE.size + entry.size
    return size


def _encode_learned(m: Learned, out: list[Buffer]) -> int:
    out.append(_LEARNED.pack(m.group, m.start, len(m.entries)))
    size = _LEARNED.size
    for entry in m.entries:
        out.append(_LENGTH.pack(entry.size))
        out.extend(entry.chunks)
        size += _LENGTH.size + entry.size
    return size


def _encode_steal_abort(m: StealAbort, out: list[Buffer]) -> int:
    reason = m.reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore").encode()
    out.append(_STEAL_ABORT.pack(m.group, m.lease_ver, len(reason)) + reason)
    return _STEAL_ABORT.size + len(reason)


_ENCODERS: Final[Mapping[type[Any], Callable[[Any, list[Buffer]], int]]] = {
    Accepted: _fixed(_BALLOT_SLOT, lambda m: (m.group, *m.ballot, m.slot)),
    Commit: _fixed(_COMMIT, lambda m: (m.group, *m.ballot, m.counted_from, m.counted_to)),
    Prepare: _fixed(_PREPARE, lambda m: (m.group, *m.ballot, m.start)),
    Promise: _encode_promise,
    Nack: _fixed(_TWO_BALLOTS, lambda m: (m.group, *m.ballot, *m.promised)),
    Behind: _fixed(_BALLOT_SLOT, lambda m: (m.group, *m.ballot, m.applied)),
    Learn: _fixed(_GROUP_SLOT, lambda m: (m.group, m.applied)),
    Learned: _encode_learned,
    Progress: _fixed(
        _PROGRESS,
        lambda m: (m.group, m.applied, m.chosen_to, *m.witnessed, m.incarnation, m.chain),
    ),
    RejoinAsk: _fixed(_REJOIN_ASK, lambda m: (m.group, m.incarnation)),
    RejoinAnswer: _fixed(
        _REJOIN_ANSWER,
        lambda m: (m.group, m.incarnation, *m.promised, m.last_voted, m.applied),
    ),
    StealRequest: _fixed(
        _STEAL_REQUEST, lambda m: (m.group, m.incarnation, m.lease_ver, m.applied, m.token)
    ),
    StealAbort: _encode_steal_abort,
    Trimmed: _fixed(_TRIMMED, lambda m: (m.group, m.first, m.applied)),
}


# -- decoding ---------------------------------------------------------------------------------


def decode_all(frame: memoryview) -> Iterator[Message]:
    """The messages of a frame, in order.

    Raises:
        PeerError: at the first thing that is not a message; those before it have been yielded.
    """
    at, end = 0, len(frame)
    while at < end:
        if end - at < _HEAD.size:
            raise PeerError(f"{end - at} stray bytes after the last message")
        code, size = _HEAD.unpack_from(frame, at)
        at += _HEAD.size
        if size > end - at:
            raise PeerError(f"a message claims {size} bytes, {end - at} are left")
        decoder = _DECODERS.get(code)
        if decoder is None:
            raise PeerError(f"unknown message type {code}")
        try:
            yield decoder(frame[at : at + size])
        except (struct.error, EntryError, UnicodeDecodeError) as error:
            raise PeerError(f"malformed {_TYPES[code - 1].__name__}: {error}") from error
        at += size


def _exact(layout: struct.Struct, body: memoryview) -> tuple[int, ...]:
    if len(body) != layout.size:
        raise PeerError(f"expected {layout.size} bytes, got {len(body)}")
    return layout.unpack(body)


def _decode_accept(body: memoryview) -> Accept:
    group, round_, node, slot, first, last = _ACCEPT.unpack_from(body)
    entry = entries.decode(body[_ACCEPT.size :])
    return Accept(group, _ballot(round_, node), _slot(slot), entry, _bound(first), _bound(last))


@lru_cache(BALLOTS_KEPT)
def _ballot(round_: int, node: int) -> Ballot:
    if round_ >= ROUND_MAX:
        raise PeerError(f"round {round_} is out of range")
    return Ballot(round_, NodeId(node))


def _incarnation(number: int) -> Incarnation:
    if number >= INCARNATION_MAX:
        raise PeerError(f"incarnation {number} is out of range")
    return Incarnation(number)


def _slot(slot: int) -> Slot:
    if not 0 < slot < 1 << 62:
        raise PeerError(f"slot {slot} is out of range")
    return Slot(slot)


def _bound(slot: int) -> Slot:
    if slot >= 1 << 62:
        raise PeerError(f"slot {slot} is out of range")
    return Slot(slot)


def _decode_accepted(body: memoryview) -> Accepted:
    group, round_, node, slot = _exact(_BALLOT_SLOT, body)
    return Accepted(GroupId(group), _ballot(round_, node), _slot(slot))


def _decode_commit(body: memoryview) -> Commit:
    group, round_, node, first, last = _exact(_COMMIT, body)
    ballot = _ballot(round_, node)
    return Commit(GroupId(group), ballot, _bound(first), _bound(last))


def _decode_prepare(body: memoryview) -> Prepare:
    group, round_, node, start = _exact(_PREPARE, body)
    return Prepare(GroupId(group), _ballot(round_, node), _slot(start))


def _decode_promise(body: memoryview) -> Promise:
    group, round_, node, count = _PROMISE.unpack_from(body)
    at = _PROMISE.size
    _count(count, len(body) - at, _VOTE.size + 1)
    votes: list[tuple[Slot, Ballot, Entry]] = []
    for _ in range(count):
        slot, vote_round, vote_node, size = _VOTE.unpack_from(body, at)
        at += _VOTE.size
        entry = entries.decode(_take(body, at, size))
        votes.append((_slot(slot), _ballot(vote_round, vote_node), entry))
        at += size
    _nothing_left(body, at)
    return Promise(GroupId(group), _ballot(round_, node), tuple(votes))


def _decode_learned(body: memoryview) -> Learned:
    group, start, count = _LEARNED.unpack_from(body)
    at = _LEARNED.size
    _count(count, len(body) - at, _LENGTH.size + 1)
    found: list[Entry] = []
    for _ in range(count):
        (size,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        found.append(entries.decode(_take(body, at, size)))
        at += size
    _nothing_left(body, at)
    return Learned(GroupId(group), _slot(start), tuple(found))


def _count(count: int, left: int, least: int) -> None:
    if count > ENTRIES_MAX or count * least > left:
        raise PeerError(f"{count} entries cannot be in {left} bytes")


def _take(body: memoryview, at: int, size: int) -> memoryview:
    if not 0 < size <= ENTRY_BYTES_MAX or size > len(body) - at:
        raise PeerError(f"an entry claims {size} bytes, {len(body) - at} are left")
    return body[at : at + size]


def _nothing_left(body: memoryview, at: int) -> None:
    if at != len(body):
        raise PeerError(f"{len(body) - at} stray bytes")


def _decode_nack(body: memoryview) -> Nack:
    group, round_, node, promised_round, promised_node = _exact(_TWO_BALLOTS, body)
    promised = _ballot(promised_round, promised_node)
    return Nack(GroupId(group), _ballot(round_, node), promised)


def _decode_behind(body: memoryview) -> Behind:
    group, round_, node, applied = _exact(_BALLOT_SLOT, body)
    return Behind(GroupId(group), _ballot(round_, node), _bound(applied))


def _decode_learn(body: memoryview) -> Learn:
    group, applied = _exact(_GROUP_SLOT, body)
    return Learn(GroupId(group), _bound(applied))


def _decode_progress(body: memoryview) -> Progress:
    group, applied, chosen_to, round_, node, incarnation, chain = _exact(_PROGRESS, body)
    witnessed, to = _ballot(round_, node), _incarnation(incarnation)
    return Progress(GroupId(group), _bound(applied), _bound(chosen_to), witnessed, to, chain)


def _decode_rejoin_ask(body: memoryview) -> RejoinAsk:
    group, incarnation = _exact(_REJOIN_ASK, body)
    return RejoinAsk(GroupId(group), _incarnation(incarnation))


def _decode_rejoin_answer(body: memoryview) -> RejoinAnswer:
    group, incarnation, round_, node, voted, applied = _exact(_REJOIN_ANSWER, body)
    return RejoinAnswer(
        GroupId(group),
        _incarnation(incarnation),
        _ballot(round_, node),
        _bound(voted),
        _bound(applied),
    )


def _decode_steal_request(body: memoryview) -> StealRequest:
    group, incarnation, lease_ver, applied, token = _exact(_STEAL_REQUEST, body)
    return StealRequest(
        GroupId(group), _incarnation(incarnation), _bound(lease_ver), _bound(applied), token
    )


def _decode_steal_abort(body: memoryview) -> StealAbort:
    group, lease_ver, size = _STEAL_ABORT.unpack_from(body)
    reason = body[_STEAL_ABORT.size :]
    if len(reason) != size or size > REASON_BYTES_MAX:
        raise PeerError(f"a reason claims {size} bytes, {len(reason)} are left")
    return StealAbort(GroupId(group), _bound(lease_ver), str(reason, "utf-8"))


def _decode_trimmed(body: memoryview) -> Trimmed:
    group, first, applied = _exact(_TRIMMED, body)
    if first > applied + 1:
        raise PeerError(f"a log that begins at {first} and is applied to {applied}")
    return Trimmed(GroupId(group), _slot(first), _bound(applied))


_BY_TYPE: Final[Mapping[type[Any], Callable[[memoryview], Message]]] = {
    Accept: _decode_accept,
    Accepted: _decode_accepted,
    Commit: _decode_commit,
    Prepare: _decode_prepare,
    Promise: _decode_promise,
    Nack: _decode_nack,
    Behind: _decode_behind,
    Learn: _decode_learn,
    Learned: _decode_learned,
    Progress: _decode_progress,
    RejoinAsk: _decode_rejoin_ask,
    RejoinAnswer: _decode_rejoin_answer,
    StealRequest: _decode_steal_request,
    StealAbort: _decode_steal_abort,
    Trimmed: _decode_trimmed,
}
_DECODERS: Final = {_CODE[kind]: decoder for kind, decoder in _BY_TYPE.items()}
