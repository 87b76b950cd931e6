"""The hand-packed answer is, byte for byte, what the generated encoder writes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wire.apis import ApiKey, RequestHeader, encode_response
from wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from wire.produce_answer import TOPIC_NAME_BYTES_MAX, one_partition


@settings(max_examples=200, deadline=None, database=None)
@given(
    version=st.integers(3, 10),
    correlation_id=st.integers(-(1 << 31), (1 << 31) - 1),
    topic=st.text("abü", max_size=60),
    index=st.integers(0, 1 << 30),
    error_code=st.integers(-1, 133),
    base_offset=st.integers(-1, 1 << 60),
    log_start_offset=st.integers(-1, 1 << 60),
)
def test_both_ways_give_the_same_bytes(
    version: int,
    correlation_id: int,
    topic: str,
    index: int,
    error_code: int,
    base_offset: int,
    log_start_offset: int,
) -> None:
    header = RequestHeader(ApiKey.PRODUCE, version, correlation_id, None, 0)
    partition = PartitionProduceResponse(
        index, error_code, base_offset, log_start_offset=log_start_offset
    )
    generic = encode_response(header, ProduceResponse([TopicProduceResponse(topic, [partition])]))
    packed = one_partition(header, topic, index, error_code, base_offset, log_start_offset)
    assert packed == b"".join(generic)


@pytest.mark.parametrize("version", range(3, 11))
def test_the_longest_name_and_one_more(version: int) -> None:
    header = RequestHeader(ApiKey.PRODUCE, version, 1, None, 0)
    longest = one_partition(header, "t" * TOPIC_NAME_BYTES_MAX, 0, 0, 0, 0)
    assert longest is not None
    assert longest.count(b"t") == TOPIC_NAME_BYTES_MAX
    assert one_partition(header, "t" * (TOPIC_NAME_BYTES_MAX + 1), 0, 0, 0, 0) is None
