"""`evenkeel node`: what it shows, what it refuses, and the file it prints for another machine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cli import node as node_cli
from cluster.spec import SpecError, grown, plan, read, save, shrunk
from runtime.config.config import Config, load
from runtime.membership.lost_directory import what_would_be_lost

VIEW: dict[str, Any] = {
    "nodes": [
        {
            "id": number,
            "life": life,
            "alive": number != 3,
            "zone": "a-zone-with-a-long-name" if number == 2 else "",
            "peer": f"10.0.0.{number}:7092",
            "http": None,
            "masters": 4,
            "groups": 13,
            "to_get": 2 if number == 4 else 0,
            "to_leave": number - 1 if number < 3 else 0,
        }
        for number, life in ((1, "active"), (2, "leaving"), (3, "active"), (4, "added"))
    ],
    "removed": list(range(5, 60)),
    "replicas": 3,
    "founders": [1, 2, 3],
    "moves_left": 3,
    "misplaced": 1,
}


def test_the_list_fits_a_terminal() -> None:
    lines = node_cli.render(VIEW).splitlines()
    assert all(len(line) <= node_cli.COLUMNS for line in lines)
    assert [line.split()[:3] for line in lines[1:5]] == [
        ["1", "active", "yes"],
        ["2", "leaving", "yes"],
        ["3", "active", "no"],
        ["4", "added", "yes"],
    ]
    assert lines[2].endswith("-1")
    assert lines[4].endswith("+2")
    assert lines[5].startswith("removed: 5, 6")


def test_the_printed_file_is_one_that_a_node_takes(tmp_path: Path) -> None:
    """It is complete except for the names of the host, which nobody here knows."""
    status = {"cluster_id": "prod", "groups_count": 48}
    path = tmp_path / "node.toml"
    text = node_cli.configuration(status, VIEW, 4, "b").replace("THIS-HOST", "bus-4.lan")
    path.write_text(text, encoding="utf-8")
    config: Config = load(path, {})
    assert (config.node.id, config.node.zone, config.groups.count) == (4, "b", 48)
    assert config.founders == (1, 2, 3)
    assert sorted(config.peers) == [1, 2, 3, 4]


def test_progress_is_told_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a condition must hold for a moment: the planner thinks between two steps."""
    monkeypatch.setattr(node_cli, "QUIET_S", 0.2)
    monkeypatch.setattr(node_cli, "LOOK_EVERY_S", 0.05)
    views = [VIEW, VIEW, {**VIEW, "moves_left": 0, "misplaced": 0, "nodes": []}]
    asked: list[str] = []
    said: list[str] = []

    class Fake(node_cli.Cluster):
        def ask(self, method: str, path: str, body: object = None) -> Any:
            asked.append(path)
            return views[min(len(asked), len(views)) - 1]

    watch = node_cli.Watch(Fake([]), 30.0, said.append)
    watch.until("nothing is left to move", lambda view: not view["moves_left"])
    assert watch.seconds >= node_cli.QUIET_S
    assert [line.split("s  ")[1] for line in said] == [
        "2 copies to make, 1 to drop, 1 masters to move",
        "0 copies to make, 0 to drop, 0 masters to move",
    ]
    with pytest.raises(node_cli.NodeError, match="not within 0 s: node 9 is here"):
        node_cli.Watch(Fake([]), 0.0, said.append).until("node 9 is here", lambda _view: False)


def views(groups: Mapping[int, tuple[int, ...]], silent: Mapping[int, int]) -> dict[int, Any]:
    """Each node's report about its groups; `silent`: a group in which a node does not vote."""
    nodes = sorted({node for members in groups.values() for node in members})
    return {
        node: {
            "groups": [
                {"group": group, "members": list(members), "voting": silent.get(node) != group}
                for group, members in groups.items()
            ]
        }
        for node in nodes
    }


@pytest.mark.parametrize(
    ("groups", "silent", "down", "problem"),
    [
        ({0: (1, 2, 3)}, {}, (), ""),
        ({0: (1, 2, 3)}, {}, (2,), ""),  # it is away itself: the two others vote
        ({0: (1, 2, 3)}, {}, (3,), "only [1] would vote, and 2 others"),
        ({0: (1, 2, 3), 4: (1, 2, 3)}, {1: 4}, (), "Paxos group 4 would stand still for ever"),
        ({0: (1, 3), 5: (2,)}, {}, (), "node 2 alone has Paxos group 5"),
        ({0: (1, 2)}, {}, (), ""),  # the other one reports everything
        ({0: (1, 2)}, {}, (1,), "only none would vote, and 1 others"),
        ({0: (1, 3)}, {}, (), ""),
        ({0: (1, 2)}, {}, (1, 2), "no node answers"),
    ],
)
def test_a_directory_is_not_taken_away_that_the_others_cannot_do_without(
    groups: Mapping[int, tuple[int, ...]],
    silent: Mapping[int, int],
    down: tuple[int, ...],
    problem: str,
) -> None:
    told = {node: one for node, one in views(groups, silent).items() if node not in down}
    found = what_would_be_lost(2, told)
    assert (problem in found) if problem else not found


def test_a_node_that_is_down_may_be_the_only_one_that_has_a_group() -> None:
    """No node that answers is a member, but the registry has the group (whole nodes, seed 673)."""
    told = views({0: (1, 2, 3)}, {})
    del told[2]
    assert not what_would_be_lost(2, told)
    for view in told.values():
        view["group_members"] = {"0": [1, 2, 3], "5": [2]}
    why = "no member of Paxos group 5 answers, and node 2 is one of [2]"
    assert why in what_would_be_lost(2, told)
    assert not what_would_be_lost(3, told | {2: views({0: (1, 2, 3), 5: (2,)}, {})[2]})


# -- the cluster on this machine ------------------------------------------------------------------


def test_numbers_are_never_used_again(tmp_path: Path) -> None:
    spec, _ = plan(tmp_path, node_count=3, groups=6, fixed_ports=False)
    four = grown(spec)
    assert [node.id for node in four.nodes] == [1, 2, 3, 4]
    assert four.founders == (1, 2, 3)
    without = shrunk(shrunk(four, 4), 1)
    assert [node.id for node in without.nodes] == [2, 3]
    assert [node.id for node in grown(without).nodes] == [2, 3, 5]
    for number, why in ((1, "was removed"), (3, "exists already")):
        with pytest.raises(SpecError, match=f"node {number} {why}"):
            grown(without, number)
    configs = save(without, [], {})
    assert read(tmp_path) == without
    assert {config.founders for config in configs.values()} == {(1, 2, 3)}
    assert {tuple(config.peers) for config in configs.values()} == {(2, 3)}
