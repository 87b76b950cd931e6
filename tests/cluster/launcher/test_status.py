"""The picture of the cluster, made from every node's report, fits 80 columns."""

import json
from typing import Any

import pytest

from cluster.spec import NodeSpec
from cluster.status import COLUMNS, ClusterView, NodeRow, merge, render, to_json
from runtime.config.config import Address


def spec(node: int) -> NodeSpec:
    return NodeSpec(node, *(Address("127.0.0.1", base + node) for base in (9091, 7091, 8091)))


def group(number: int, master: int | None, **more: Any) -> dict[str, Any]:
    return {
        "group": number,
        "master": master,
        "acting": True,
        "ideal": 1,
        "lease_left_ms": 2000.0,
        "ballot": [3, 1],
        "applied": 10,
        "chosen": 11,
        "role": "F",
        "lag": {},
        **more,
    }


def answer(node: int, groups: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "node": node,
        "incarnation": 1,
        "cluster_id": "c",
        "version": "0.1.0",
        "durability": "fsync",
        "groups_count": len(groups) - 1,
        "uptime_s": 12.0,
        "placement_version": 4,
        "balancer": {"enabled": True, "paused": False, "state": "idle", "token": None},
        "groups": groups,
        "steals": [],
        "rss_bytes": 63_000_000,
        **more,
    }


def row(node: int, status: dict[str, Any] | None) -> NodeRow:
    state = "running" if status is not None else "silent"
    return NodeRow(spec=spec(node), state=state, pid=100 + node, status=status)


def view(*rows: NodeRow) -> ClusterView:
    return merge("c", rows)


def test_the_master_is_who_says_so_itself() -> None:
    """Node 2 still takes node 3, which is dead, for the master; node 1 reports itself."""
    one = answer(1, [group(0, 1, ballot=[5, 1], lag={"2": 4, "3": 900})])
    two = answer(2, [group(0, 3, ballot=[4, 3])])
    (seen,) = view(row(1, one), row(2, two), row(3, None)).groups
    assert (seen.master, seen.ballot, seen.lag) == (1, (5, 1), {2: 4, 3: 900})


def test_hearsay_is_no_master() -> None:
    (seen,) = view(row(1, answer(1, [group(0, 3)])), row(3, None)).groups
    assert (seen.master, seen.last_known) == (None, 3)


def test_a_holder_that_does_not_act_is_none() -> None:
    """Its lease is from before its restart, is expiring, or is being handed over."""
    (seen,) = view(row(1, answer(1, [group(0, 1, acting=False)]))).groups
    assert seen.master is None


def test_of_two_who_claim_it_the_higher_ballot_is_shown() -> None:
    """A paused node may claim it for a moment; the ballots show which claim is old."""
    late = answer(1, [group(0, 1, ballot=[5, 1])])
    new = answer(2, [group(0, 2, ballot=[6, 2])])
    assert view(row(1, late), row(2, new)).masters() == {0: 2}


def test_the_newest_registry_tells_the_ideal_placement() -> None:
    old = answer(1, [group(0, 1)], placement_version=4)
    new = answer(2, [group(0, 1, ideal=2)], placement_version=5)
    seen = view(row(1, old), row(2, new))
    assert (seen.placement_version, seen.groups[0].ideal) == (5, 2)
    assert not seen.all_at_ideal
    assert seen.count_by_master() == {1: 1, 2: 0}


def test_steals_that_several_nodes_remember_are_shown_once_and_in_order() -> None:
    first, second = ({"group": at, "finished_wall_ms": at, "outcome": "done"} for at in (1, 2))
    one = answer(1, [group(0, 1)], steals=[second, first])
    two = answer(2, [group(0, 1)], steals=[second])
    assert view(row(1, one), row(2, two)).steals == (first, second)


def test_nothing_answers() -> None:
    seen = view(row(1, None), row(2, None))
    assert not seen.all_at_ideal
    text = render(seen)
    assert "(no node answers)" in text
    assert "balancer unknown" in text


def test_what_is_not_known_is_said_to_be_unknown() -> None:
    """Without a majority, for a group without a master, and for a group no node reports."""
    whole = view(row(1, answer(1, [group(0, 1), group(1, 1)])), row(2, None), row(3, None))
    assert whole.unknown() == [
        "no majority answers (silent: node 2, 3): other nodes may report old data about them"
    ]
    unled = view(row(1, answer(1, [group(0, 3), group(1, 1)])), row(2, answer(2, [])), row(3, None))
    assert unled.unknown() == ["no answering node is the master of Paxos group 0"]
    untold = view(row(1, answer(1, [group(0, 1)], groups_count=4)))
    assert untold.unknown() == ["no node answers for 4 of 5 Paxos groups"]
    for seen in (whole, unled, untold):
        assert to_json(seen)["unknown"] == seen.unknown()
        assert "\nUNKNOWN: " in render(seen)
    healthy = view(row(1, answer(1, [group(0, 1)])), row(2, answer(2, [])), row(3, None))
    assert healthy.unknown() == []
    assert "UNKNOWN" not in render(healthy)


def wide() -> ClusterView:
    groups = [
        group(
            number,
            1 if number % 2 else 2,
            ballot=[123_456, 1],
            chosen=123_456_789_012,
            applied=123_456_789_012,
            lag={"2": 10**9, "3": 10**9},
        )
        for number in range(49)
    ]
    return view(*(row(node, answer(node, groups)) for node in (1, 2, 3)))


def test_it_fits_80_columns() -> None:
    assert max(len(line) for line in render(wide()).splitlines()) <= COLUMNS


def test_a_small_table_reads_well() -> None:
    groups = [group(0, 1, lag={"2": 0, "3": 7}), group(1, 2)]
    text = render(view(row(1, answer(1, groups)), row(2, answer(2, groups)), row(3, None)))
    lines = text.splitlines()
    assert lines[:2] == ["cluster c, placement version 4", "balancer on, idle"]
    expected = "   1  running        1  127.0.0.1:9092   127.0.0.1:8092   63 MB   fsync"
    assert expected in lines
    assert "   3  silent         0  127.0.0.1:9094   127.0.0.1:8094   -       -" in lines
    assert "    0  1       1      2.0 s       3.1      11         10         3:7" in lines
    assert "    1  2 *     1      2.0 s       3.1      11         10         -" in lines


@pytest.mark.parametrize(
    ("balancer", "line"),
    [
        ({"enabled": False, "paused": False, "state": "idle"}, "balancer off"),
        ({"enabled": True, "paused": True, "state": "idle"}, "balancer paused; resume it"),
        ({"enabled": True, "paused": False, "state": "stealing"}, "balancer on, stealing"),
    ],
)
def test_the_balancer_is_told(balancer: dict[str, Any], line: str) -> None:
    assert line in render(view(row(1, answer(1, [group(0, 1)], balancer=balancer))))


def test_unsafe_is_loud() -> None:
    one = answer(1, [group(0, 1)], durability="unsafe-none")
    text = render(view(row(1, one), row(2, answer(2, [group(0, 1)]))))
    assert "UNSAFE: without fsync, a power cut takes back acknowledged messages (node 1)" in text
    assert "UNSAFE" not in render(view(row(2, answer(2, [group(0, 1)]))))


def test_the_json_is_json_and_says_the_same() -> None:
    value = json.loads(json.dumps(to_json(wide())))
    assert value["nodes"][0]["durability"] == "fsync"
    assert value["groups"][1]["master"] == 1
    assert value["groups"][1]["ballot"] == [123_456, 1]


def on_machines(zones: dict[int, str], members: dict[str, list[int]]) -> ClusterView:
    rows = [{"id": node, "kafka": "k:1", "zone": zone} for node, zone in zones.items()]
    groups = [group(0, 1), group(1, 2)]
    more = {"nodes": rows, "group_members": members}
    answers = {node: answer(node, groups, **more) for node in (1, 2)}
    return view(*(row(node, answers.get(node)) for node in zones))


def test_machines_are_shown_with_what_their_loss_would_stop() -> None:
    """Three copies on two machines: two of them are on one."""
    seen = on_machines({1: "a", 2: "b", 3: "a", 4: "b"}, {"0": [1, 2, 3, 4], "1": [1, 2, 3]})
    one, other = seen.machines()
    assert (one["machine"], one["nodes"], one["answering"]) == ("a", [1, 3], [1])
    assert (one["masters"], other["masters"]) == (1, 1)
    assert (one["crowded"], one["stopped_without"]) == ([0, 1], [0, 1])
    assert (other["crowded"], other["stopped_without"]) == ([0], [0])
    text = render(seen)
    assert "a                 1,3             1/2        1             2" in text
    assert "note: 2 Paxos groups have two or more copies on machine a" in text
    assert all(len(line) <= COLUMNS for line in text.splitlines())
    document = json.loads(json.dumps(to_json(seen)))
    assert [one["zone"] for one in document["nodes"]] == ["a", "b", "a", "b"]
    assert [one["machine"] for one in document["machines"]] == ["a", "b"]


def test_what_is_apart_needs_no_note_and_nodes_without_zones_no_table() -> None:
    apart = on_machines({1: "a", 2: "b", 3: "c"}, {"0": [1, 2, 3], "1": [1, 2, 3]})
    assert "note:" not in render(apart)
    assert "machine " in render(apart)
    assert "machine " not in render(on_machines({1: "", 2: "", 3: ""}, {"0": [1, 2, 3]}))
    old = view(row(1, answer(1, [group(0, 1)], nodes=[{"id": 1, "kafka": "k:1"}])))
    assert old.machines() == [], "a node of an older version names no zones"
