"""Targets of wire/: requests and responses of every API, record batches, framing."""

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import ClassVar, Final

from crc32c import crc32c

from tests.broker.batches import batch
from tests.fuzz.engine import Target
from tests.fuzz.kafka import (
    lay_out_request,
    lay_out_response,
    random_message,
    random_request,
    versions_of,
)
from tests.fuzz.mutate import Mark, Sample
from wire.apis import (
    APIS,
    Api,
    RequestHeader,
    UnsupportedVersion,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    encode_unsupported,
    parse_request_header,
    response_correlation_id,
)
from wire.codec.schema import fields_of
from wire.error_codes import ErrorCode
from wire.errors import ProtocolError
from wire.framing import FRAME_BYTES_MAX, KIB, MIB, FrameAssembler, FrameLimits
from wire.records.batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    Batch,
    BatchError,
    Compression,
    Record,
    iterate_records,
    split,
    validate,
)
from wire.records.batch_writer import build_batch

SAMPLES_PER_VERSION: Final = 4


def same(one: object, other: object) -> bool:
    """Equal, but for numbers that are none: NaN differs from itself."""
    return one == other or ("nan" in repr(one) and repr(one) == repr(other))


def _body(chunks: list[bytes | bytearray | memoryview]) -> memoryview:
    return memoryview(b"".join(chunks))[4:]


def shape(message: object) -> str:
    """Which fields of a message hold something: coarse enough to occur again."""
    cls = type(message)
    return "".join("01"[bool(getattr(message, field.name))] for field in fields_of(cls))


def _check_error(error: ProtocolError, size: int) -> None:
    """It says what is wrong, in which field, and where."""
    assert error.what
    assert error.where
    assert 0 <= error.at <= size, f"the error is at byte {error.at}"


class Requests(Target):
    """One API's requests, every version: what decodes encodes again to something equal."""

    declared = (ProtocolError,)

    def __init__(self, api: Api) -> None:
        self.api = api
        self.name = f"request-{api.name}"  # type: ignore[misc]  # one target for each API

    def samples(self, dice: Random) -> Iterator[Sample]:
        for version in versions_of(self.api):
            for _ in range(SAMPLES_PER_VERSION):
                yield random_request(self.api, version, dice)

    def run(self, data: bytes) -> Iterable[str]:
        view = memoryview(data)
        try:
            header = parse_request_header(view)
            if isinstance(header, UnsupportedVersion):
                answer = encode_unsupported(header)
                return (f"unsupported, {'silent' if answer is None else 'answered'}",)
            message = decode_request(header, view)
        except ProtocolError as error:
            _check_error(error, len(data))
            raise
        version = header.api_version
        again = _body(encode_request(message, version, header.correlation_id, header.client_id))
        second = parse_request_header(again)
        assert isinstance(second, RequestHeader)
        assert second[:4] == header[:4]
        assert same(decode_request(second, again), message), "it decodes to another message"
        return (f"{type(message).__name__} v{version} {shape(message)}",)

    def marked(self, data: bytes) -> Sample:
        view = memoryview(data)
        try:
            header = parse_request_header(view)
            if isinstance(header, UnsupportedVersion):
                return Sample(data)
            message = decode_request(header, view)
        except ProtocolError:
            return Sample(data)
        api = APIS[header.api_key]
        return lay_out_request(api, header.api_version, message, header.client_id)


class Responses(Target):
    """All responses, as our own client and the tests read them.

    The first byte is the number of the API in the table, the second is the version; the response
    follows.
    """

    name = "responses"
    declared = (ProtocolError,)
    _rows: ClassVar = tuple(APIS.values())

    def samples(self, dice: Random) -> Iterator[Sample]:
        for number, api in enumerate(self._rows):
            for version in versions_of(api):
                message = random_message(api.response, version, dice)
                yield self._prefixed(number, version, lay_out_response(api, version, message))

    @staticmethod
    def _prefixed(number: int, version: int, sample: Sample) -> Sample:
        marks = tuple(Mark(at + 2, size, kind) for at, size, kind in sample.marks)
        return Sample(bytes((number, version)) + sample.data, marks)

    def run(self, data: bytes) -> Iterable[str]:
        if len(data) < 2:
            return ("too short",)
        api = self._rows[data[0] % len(self._rows)]
        versions = versions_of(api)
        version = versions[data[1] % len(versions)] if data[1] not in versions else data[1]
        frame = memoryview(data)[2:]
        correlation_id = response_correlation_id(frame)
        message = decode_response(api.key, version, frame)
        header = RequestHeader(api.key, version, correlation_id, None, 0)
        unsupported = getattr(message, "error_code", 0) == ErrorCode.UNSUPPORTED_VERSION
        if api.name == "ApiVersions" and unsupported:
            header = header._replace(api_version=0)
        again = _body(encode_response(header, message))
        assert same(decode_response(api.key, version, again), message), (
            "it decodes to another message"
        )
        return (f"{type(message).__name__} v{version} {shape(message)}",)


class Batches(Target):
    """A records field: split into batches, each validated and searched as for offsets-for-times."""

    name = "record-batches"
    declared = (BatchError,)

    def samples(self, dice: Random) -> Iterator[Sample]:
        headers = (("k", b"v"), ("n", None))
        rich = [Record(b"v", b"k", 5, headers), Record(None, None, -5), Record(b"", b"", 9)]
        for data in (
            batch("one"),
            batch("a", "b", "c", pid=7, epoch=1, seq=3),
            batch("z" * 500, compression=Compression.GZIP),
            build_batch(rich, base_offset=42, leader_epoch=3),
            batch("p") + batch("q", "r"),
        ):
            yield self.marked(data)

    def marked(self, data: bytes) -> Sample:
        """The fields of the first header."""
        marks, at = [], 0
        for size in (8, 4, 4, 1, 4, 2, 4, 8, 8, 8, 2, 4, 4):
            marks.append(Mark(at, size, f"i{size}"))
            at += size
        return Sample(data, tuple(marks) if len(data) >= HEADER_BYTES else ())

    def mutate(self, sample: Sample, dice: Random, pool: Sequence[Sample]) -> bytes:
        """Mostly with the length and the checksum corrected, or no change gets far."""
        data = super().mutate(sample, dice, pool)
        if len(data) < HEADER_BYTES or dice.random() < 0.2:
            return data
        out = bytearray(data)
        if dice.random() < 0.8:
            out[8:12] = (len(out) - LOG_OVERHEAD_BYTES).to_bytes(4, "big")
        if dice.random() < 0.8:
            out[16] = 2
        if dice.random() < 0.5:  # one record, as the header says
            out[23:27], out[57:61] = bytes(4), (1).to_bytes(4, "big")
        size = LOG_OVERHEAD_BYTES + int.from_bytes(out[8:12], "big")
        out[17:21] = crc32c(bytes(out[21:size])).to_bytes(4, "big")
        return bytes(out)

    def run(self, data: bytes) -> Iterable[str]:
        view = memoryview(data)
        whole = split(view, partial_tail=True)
        features = {f"{min(len(whole), 4)} batches"}
        for one in whole:
            code = validate(one)
            features.add(code.name)
            features.add(self._walk(one, valid=code is ErrorCode.NONE))
        assert split(view[: sum(len(one.data) for one in whole)]) == whole
        split(view)
        return features

    def _walk(self, one: Batch, *, valid: bool) -> str:
        header = one.header
        plain = not header.attributes & COMPRESSION_MASK
        assert not (valid and plain) or header.record_count <= len(one.data), "offsets for nothing"
        try:
            records = list(iterate_records(one))
        except BatchError as error:
            return f"walk {error.code.name} {valid}"
        assert len(records) == header.record_count
        if not valid or not records:
            return "walked, not valid"
        for record in records:
            assert header.base_offset <= record.offset <= header.last_offset, "an offset outside"
            assert -(1 << 63) <= record.timestamp_ms < 1 << 63, "a time that no answer can hold"
        again = build_batch(records, base_offset=header.base_offset)
        (other,) = split(memoryview(again))
        log_append = list(iterate_records(other))
        assert [record._replace(offset=-1) for record in log_append] == [
            record._replace(offset=-1) for record in records
        ]
        return f"walked {Compression(header.attributes & COMPRESSION_MASK).name}"


class Framing(Target):
    """A byte stream in chunks: whatever the chunks, the same frames as a naive reader finds.

    The first byte chooses the limits; the second is the number of chunk sizes that follow (one byte
    each, times 37); then comes the stream.
    """

    name = "framing"
    declared = (ProtocolError,)
    _limits: ClassVar[tuple[FrameLimits, ...]] = (
        FrameLimits(default=FRAME_BYTES_MAX, by_key={0: 16 * MIB}),
        FrameLimits(default=64 * KIB),
        FrameLimits(default=100, by_key={0: 40_000, 1: 300}),
        FrameLimits(default=0),
    )

    def samples(self, dice: Random) -> Iterator[Sample]:
        for sizes in ((0, 1, 5), (100, 20_000, 3), (16_384, 16_385), (40_000, 7), (65_000,)):
            stream = b"".join(
                size.to_bytes(4, "big") + dice.randbytes(size)[:size] for size in sizes
            )
            for which in range(len(self._limits)):
                chunks = dice.randbytes(3)
                data = bytes((which, 3)) + chunks + stream[:60_000]
                yield Sample(data, (Mark(5, 4, "len4"), Mark(9, 2, "i2")))

    def run(self, data: bytes) -> Iterable[str]:
        if len(data) < 2:
            return ("too short",)
        limits = self._limits[data[0] % len(self._limits)]
        chunks = data[2 : 2 + data[1] % 8] or b"\xff"
        stream = data[2 + data[1] % 8 :]
        expected, verdict = naive_frames(stream, limits)
        assembler = FrameAssembler(limits)
        frames: list[bytes] = []
        kept: list[tuple[memoryview, bytes]] = []
        at = turn = 0
        failed = None
        try:
            while at < len(stream):
                room = assembler.buffer_to_fill()
                assert len(room), "no room to receive into"
                piece = stream[at : at + min(len(room), 37 * chunks[turn % len(chunks)] + 1)]
                room[: len(piece)] = piece
                assembler.received(len(piece))
                at, turn = at + len(piece), turn + 1
                while (frame := assembler.take()) is not None:
                    frames.append(bytes(frame.data))
                    if frame.owned:
                        kept.append((frame.data, frames[-1]))
        except ProtocolError as error:
            failed = error
        assert frames == expected, f"{len(frames)} frames, not {len(expected)}"
        assert all(view == copied for view, copied in kept), "an owned frame has changed"
        assert (failed is not None) == (verdict == "refused"), f"{failed}, but {verdict}"
        if failed is not None:
            raise failed
        assert verdict != "partial" or assembler.partial_bytes > 0
        sizes = {len(frame).bit_length() for frame in frames}
        return [f"{verdict} {data[0] % len(self._limits)}", *(f"size 2^{bits}" for bits in sizes)]


def naive_frames(stream: bytes, limits: FrameLimits) -> tuple[list[bytes], str]:
    """The frames of a whole stream; and "refused", "partial" or "whole"."""
    frames, at = [], 0
    while at < len(stream):
        if len(stream) - at < 4:
            return frames, "partial"
        size = int.from_bytes(stream[at : at + 4], "big")
        body = stream[at + 4 : at + 4 + size]
        if size > limits.default:
            if size > limits.largest:
                return frames, "refused"
            if len(stream) - at - 4 < 2:
                return frames, "partial"
            key = int.from_bytes(stream[at + 4 : at + 6], "big", signed=True)
            if size > limits.by_key.get(key, limits.default):
                return frames, "refused"
        if len(body) < size:
            return frames, "partial"
        frames.append(body)
        at += 4 + size
    return frames, "whole"


def wire_targets() -> list[Target]:
    requests: list[Target] = [Requests(api) for api in APIS.values()]
    return [*requests, Responses(), Batches(), Framing()]
