"""From costs to a decision: what is published, what is not, and no failure ends the job."""

import json
import socket
from collections.abc import Iterator

import pytest

from balancer.problem_json import ProblemError
from paxos.ids import MS, GroupId, NodeId
from pipeline.placement.admin import AdminError, Endpoint, Nodes, RefusedError, endpoints_of
from pipeline.placement.logic import GroupCost, Rules
from pipeline.placement.outlook import in_words, outlook
from pipeline.placement.publishing import Outcome, Publisher
from pipeline.placement.stream import reason_in
from tests.pipeline.placement.node import Node, served
from tests.pipeline.placement.reports import START_MS

COSTS = [
    GroupCost(GroupId(group), cost, cost, 20)
    for group, cost in enumerate([100, 10_000, 10_000, 10_000, 100, 100, 100])
]
"""Two hot groups are on node 1, and one on node 2."""


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def endpoint(node: Node) -> Iterator[Endpoint]:
    with served(node) as found:
        yield found


@pytest.fixture
def nobody() -> Iterator[Endpoint]:
    """An address that refuses connections: it is taken, but nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield Endpoint("127.0.0.1", taken.getsockname()[1])


def publisher(*endpoints: Endpoint, age_ms: int = 30_000, dry: bool = False) -> Publisher:
    return Publisher(
        nodes=Nodes(endpoints), rules=Rules(), now_ms=lambda: START_MS + age_ms, dry=dry
    )


# ---- decisions -----------------------------------------------------------------------------------


def test_weights_are_published_with_their_version(node: Node, endpoint: Endpoint) -> None:
    decision = publisher(endpoint).decide(COSTS, START_MS)
    assert decision.outcome is Outcome.PUBLISHED
    assert node.registry.weights.source == "placement"
    assert node.registry.weights.computed_wall_ns == START_MS * MS
    assert node.registry.weights.weights.keys() == set(range(7))
    assert node.registry.weights.weights[GroupId(1)] == 1_977


def test_the_same_again_changes_nothing_and_what_is_older_is_refused(
    node: Node, endpoint: Endpoint
) -> None:
    """A micro-batch is run again after a crash; a backlog is read after a pause."""
    job = publisher(endpoint)
    assert job.decide(COSTS, START_MS).outcome is Outcome.PUBLISHED
    before = node.registry.snapshot()
    assert job.decide(COSTS, START_MS).outcome is Outcome.PUBLISHED
    older = job.decide(COSTS, START_MS - 30_000)
    assert older.outcome is Outcome.REFUSED
    assert "STALE_WEIGHTS" in older.why
    assert node.registry.weights.computed_wall_ns == START_MS * MS
    assert len(node.registry.snapshot()) == len(before)
    assert job.decide(COSTS, START_MS + 30_000).outcome is Outcome.PUBLISHED


def test_what_is_too_old_or_too_little_is_not_published(node: Node, endpoint: Endpoint) -> None:
    old = publisher(endpoint, age_ms=500_000).decide(COSTS, START_MS)
    few = publisher(endpoint).decide(COSTS[:3], START_MS)
    assert (old.outcome, few.outcome) == (Outcome.NOTHING, Outcome.NOTHING)
    assert "500 s old" in str(old)
    assert "3 of 7 groups" in str(few)
    assert "POST /admin/weights" not in node.asked


def test_a_dry_run_publishes_nothing_and_shows_the_plan(node: Node, endpoint: Endpoint) -> None:
    decision = publisher(endpoint, dry=True).decide(COSTS, START_MS)
    assert (decision.outcome, decision.went_well) == (Outcome.DRY, True)
    assert node.registry.weights.weights == {}
    assert decision.outlook is not None
    words = in_words(decision.outlook, explain=True)
    assert "plan by these weights: 1 move(s)" in words
    assert "stays" in words


def test_a_decision_is_a_record(endpoint: Endpoint) -> None:
    told = json.loads(publisher(endpoint).decide(COSTS, START_MS).encode())
    assert (told["as_of_ms"], told["outcome"]) == (START_MS, "published")
    assert told["ratio_now"] > 1.5 > 1.1 > told["ratio_planned"]
    assert [one["source"] for one in told["moves"]] == [1]
    assert set(told["weights"]) == {str(group) for group in range(7)}


@pytest.mark.parametrize(
    ("fails", "outcome"),
    [
        ((503, b'{"error": "the registry did not answer in time"}'), Outcome.FAILED),
        ((200, b"<html>"), Outcome.FAILED),
        ((200, b"[]"), Outcome.FAILED),
        ((200, b'{"policy": {}, "problem": {"nodes": 7}}'), Outcome.FAILED),
        ((404, b'{"error": "no GET /problem; there is GET /metrics"}'), Outcome.FAILED),
        ((500, b"\xff"), Outcome.FAILED),
    ],
)
def test_a_node_that_answers_nonsense_is_told_of(
    node: Node, endpoint: Endpoint, fails: tuple[int, bytes], outcome: Outcome
) -> None:
    node.fails = fails
    decision = publisher(endpoint).decide(COSTS, START_MS)
    assert (decision.outcome, decision.went_well) == (outcome, False)
    assert decision.why


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (
            "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
            '  File "x.py", line 1\n    raise Refused: no\npackage.RefusedError: topic x\n SQL',
            "package.RefusedError: topic x",
        ),
        ("[CODE] something\nmore", "[CODE] something"),
        ("", "no reason was told"),
    ],
)
def test_of_a_failed_task_the_reason_is_told(told: str, reason: str) -> None:
    assert reason_in(told) == reason


# ---- finding a node ------------------------------------------------------------------------------


def test_another_node_is_asked_when_one_is_down_and_from_then_on_first(
    node: Node, endpoint: Endpoint, nobody: Endpoint
) -> None:
    other = Node()
    with served(other) as far:
        nodes = Nodes([nobody, endpoint, far])
        nodes.get("/problem")
        node.fails = (503, b"{}")
        nodes.get("/problem")
        nodes.get("/problem")
    assert (len(node.asked), len(other.asked)) == (2, 2)


def test_when_all_are_down_their_reasons_are_told(
    node: Node, endpoint: Endpoint, nobody: Endpoint
) -> None:
    node.fails = (503, b'{"error": "no majority"}')
    with pytest.raises(AdminError, match=r"ConnectionRefusedError.*503 no majority"):
        Nodes([nobody, endpoint]).get("/problem")


def test_who_is_refused_asks_nobody_else(node: Node, endpoint: Endpoint) -> None:
    """The registry has refused; another node would say the same."""
    node.fails = (409, b'{"error": "stale_weights"}')
    other = Node()
    with served(other) as far, pytest.raises(RefusedError, match="stale_weights") as refused:
        Nodes([endpoint, far]).post("/admin/weights", {})
    assert refused.value.status == 409
    assert other.asked == []


def test_addresses() -> None:
    found = endpoints_of("127.0.0.1:8092, here,[::1]:9,127.0.0.1:8092")
    assert [str(one) for one in found] == ["127.0.0.1:8092", "here:8092", "[::1]:9"]


@pytest.mark.parametrize("text", ["", ",", "here:", ":80", "here:0", "here:65536", "here:x"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|not like"):
        endpoints_of(text)


# ---- what the balancer would do ------------------------------------------------------------------


HEAVY = {
    GroupId(group): weight for group, weight in enumerate([250, 2_000, 2_000, 2_000, 250, 250, 250])
}


def test_the_outlook_has_both_loads_and_the_ratio_to_the_share(node: Node) -> None:
    found = outlook(node.told(), HEAVY)
    assert [(one.node, one.groups[0], one.weight[0]) for one in found.nodes] == [
        (1, 3, 4_250),
        (2, 2, 2_250),
        (3, 2, 500),
    ]
    assert found.ratio[0] == pytest.approx(4_250 * 3 / 7_000)
    assert found.ratio[1] == pytest.approx(2_500 * 3 / 7_000)
    assert found.weights == HEAVY


def test_a_node_of_twice_the_capacity_has_twice_the_share(node: Node) -> None:
    told = node.told()
    told["problem"]["nodes"][0]["capacity"] = 200
    assert outlook(told, HEAVY).ratio[0] == pytest.approx(2_250 * 4 / 7_000), "node 2 is fuller"


def test_nodes_that_are_gone_have_no_share(node: Node) -> None:
    told = node.told()
    told["problem"]["nodes"][2]["unfit"] = "dead"
    found = outlook(told, HEAVY)
    assert [one.node for one in found.nodes] == [1, 2]
    assert {one.group for one in found.plan.moves} >= {5, 6}


@pytest.mark.parametrize(
    ("policy", "paused", "weights", "why"),
    [
        ({}, False, HEAVY, "1 move"),
        ({}, True, HEAVY, "paused"),
        ({"evenness": "count"}, False, HEAVY, "by counts"),
        ({"automatic": False}, False, HEAVY, "by hand"),
        ({"trigger_percent": 1_000}, False, HEAVY, "no node is 1000 % above"),
        ({}, False, dict.fromkeys(HEAVY, 1), "nothing"),
    ],
)
def test_what_the_balancer_will_do_by_itself(
    node: Node, policy: dict[str, object], paused: bool, weights: dict[GroupId, int], why: str
) -> None:
    node.policy |= policy
    node.paused = paused
    assert why in outlook(node.told(), weights).acts


@pytest.mark.parametrize("told", [None, {}, {"policy": {}}, {"policy": 1, "problem": {}}])
def test_what_is_no_problem_is_refused(told: object) -> None:
    with pytest.raises(ProblemError):
        outlook(told, {})


def test_where_nothing_can_be_planned_it_says_so(node: Node) -> None:
    told = node.told()
    for one in told["problem"]["nodes"]:
        one["unfit"] = "draining"
    found = outlook(told, HEAVY)
    assert found.nodes == ()
    assert "nothing can be planned" in in_words(found, explain=True)
    assert NodeId(1) in {one.target for one in found.plan.decisions}
