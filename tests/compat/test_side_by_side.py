"""The comparison with Apache Kafka, without one: what it compares, and that the page is its."""

from pathlib import Path

import attrs
import pytest

from tests.compat import cells
from tests.compat.side_by_side import page
from tests.compat.side_by_side.comparison import Difference, Reason, compare, reasons, unexplained
from tests.compat.side_by_side.peer import Answer, NoAnswer, common
from tests.compat.side_by_side.plain import plain
from wire.error_codes import ErrorCode
from wire.messages.membership import HeartbeatRequest, HeartbeatResponse
from wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from wire.messages.produce import ProduceResponse, TopicProduceResponse
from wire.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse

NOTHING = MetadataRequest(topics=[])


def topics(*rows: MetadataResponseTopic, version: int = 12) -> Answer:
    tree = plain(MetadataResponse(topics=list(rows)), version, NOTHING)
    return Answer("story: Metadata", version, tree)


def test_equal_answers_have_no_difference() -> None:
    one = topics(MetadataResponseTopic(name="t", topic_id=b"1" * 16))
    other = topics(MetadataResponseTopic(name="t", topic_id=b"2" * 16))
    assert compare([one], [other]) == []


def test_an_error_is_told_by_its_name() -> None:
    wrong = MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name="t")
    (found,) = compare([topics(wrong)], [topics(MetadataResponseTopic(name="t"))])
    assert found.field == "topics.t.error_code"
    assert (found.kafka, found.evenkeel) == ("UNKNOWN_TOPIC_OR_PARTITION", "NONE")


def test_the_order_of_a_list_is_not_compared_but_its_elements_are() -> None:
    a, b = MetadataResponseTopic(name="a"), MetadataResponseTopic(name="b")
    assert compare([topics(a, b)], [topics(b, a)]) == []
    (missing,) = compare([topics(a, b)], [topics(a)])
    assert (missing.field, missing.evenkeel) == ("topics.b", "absent")
    (twice,) = compare([topics(a)], [topics(a, a)])
    assert (twice.field, twice.kafka) == ("topics.a (2)", "absent")


def test_an_empty_list_is_not_null() -> None:
    request = NOTHING
    trees = [plain(ProduceResponse(one), 9, request) for one in ([], [TopicProduceResponse()])]
    assert trees[0] != trees[1]


def test_only_fields_of_the_version_are_compared() -> None:
    one = topics(MetadataResponseTopic(name="t", is_internal=True), version=0)
    assert compare([one], [topics(MetadataResponseTopic(name="t"), version=0)]) == []


def test_an_id_that_a_side_draws_is_only_there_or_not() -> None:
    request = InitProducerIdRequest(None, 1, 5, 0)
    trees = [
        plain(InitProducerIdResponse(producer_id=drawn), 4, request) for drawn in (-1, 5, 77, 78)
    ]
    assert [tree["producer_id"] for tree in trees] == [  # type: ignore[index]
        *("none", "the one asked for", "some", "some")
    ]


def test_no_answer_is_an_answer() -> None:
    closed = Answer("s", 0, plain(NoAnswer.CLOSED, 0, NOTHING))
    told = Answer("s", 0, plain(HeartbeatResponse(), 0, HeartbeatRequest()))
    (found,) = compare([closed], [told])
    assert (found.field, found.kafka, found.evenkeel) == (
        "answer", "the connection is closed", "present, NONE",
    )  # fmt: skip


def test_versions_with_one_difference_are_one_line() -> None:
    rows = {version: MetadataResponseTopic(name="t") for version in (1, 2, 3)}
    bad = MetadataResponseTopic(error_code=3, name="t")
    kafka = [topics(row, version=version) for version, row in rows.items()]
    (found,) = compare(kafka, [topics(bad, version=version) for version in rows])
    assert found.versions == "v1-3"


def test_a_question_that_only_one_side_was_asked_is_a_difference() -> None:
    (found,) = compare([topics()], [])
    assert found.evenkeel == "not asked"


def test_reasons_explain_and_idle_ones_are_named() -> None:
    seen = Difference("groups, joining: JoinGroup, x", "error_code", "NONE", "UNKNOWN", "v9")
    fits = Reason(where="groups, .*JoinGroup.*", field="error_code", why="so it is")
    idle = Reason(where="records.*", field=".*", why="it was so once")
    assert unexplained([seen], [fits, idle]) == ([], [idle])
    other = attrs.evolve(fits, evenkeel="NONE")
    assert unexplained([seen], [other]) == ([seen], [other])


def test_common_versions_are_those_of_both_and_of_our_codec() -> None:
    produce = common({0: range(0, 13)}, {0: range(9)})
    assert produce == {0: range(3, 9)}
    assert common({0: range(12, 13)}, {0: range(9)}) == {}
    assert common({1_000: range(1)}, {1_000: range(1)}) == {}


def test_the_page_holds_what_the_table_says() -> None:
    """`make side-by-side` writes it; whoever changes a reason runs it, or this page's writer."""
    text = page.PAGE.read_text()
    assert page.with_section(text, reasons()) == text


def test_a_section_is_replaced_where_it_stands() -> None:
    row = Reason(where=".", field=".", why="because.", topic="things")
    text = f"# Page\n\n{page.TITLE}\n\nold\n\n## Next\n\nkept\n"
    written = page.with_section(text, [row])
    assert "old" not in written
    assert "| things | because. |" in written
    assert written.endswith("## Next\n\nkept\n")
    assert page.with_section(written, [row]) == written


@pytest.mark.parametrize("language", ["Java", "Go"])
def test_a_run_of_one_language_keeps_the_sections_of_others(tmp_path: Path, language: str) -> None:
    report = tmp_path / "compat.md"
    report.write_text("# Old head\n\n## Java\n\n| old |\n\n## Python\n\n| kept |\n")
    cells.write({language: "| new |\n"}, report)
    text = report.read_text()
    assert text.startswith(cells.HEAD)
    assert f"## {language}\n\n| new |" in text
    assert "## Python\n\n| kept |" in text
    assert ("| old |" in text) == (language != "Java")
