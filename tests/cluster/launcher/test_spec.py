"""The description of a local cluster: what it keeps stable, and what it refuses."""

import json
import os
import socket
from pathlib import Path

import attrs
import pytest

from cluster.spec import FREE_PORTS, SpecError, grown, is_free, plan, read, save, shrunk
from runtime.config.config import Address, ConfigError


def test_every_node_can_read_its_own_file(tmp_path: Path) -> None:
    spec, _ = plan(tmp_path / 'a "b"', node_count=3, groups=48, fixed_ports=False)
    configs = save(spec, ["paxos.window=4"], {})
    assert sorted(configs) == [1, 2, 3]
    for node in spec.nodes:
        config = configs[node.id]
        assert config.node.id == node.id
        assert config.node.data_dir == tmp_path / 'a "b"' / f"node-{node.id}"
        assert config.listen.kafka == node.kafka
        assert config.peers == {peer.id: peer.peer for peer in spec.nodes}
        assert (config.groups.count, config.paxos.window) == (48, 4)
    assert len({config.node.data_dir for config in configs.values()}) == 3
    assert len({config.node.cluster_id for config in configs.values()}) == 1


def test_a_wrong_override_is_refused_before_anything_starts(tmp_path: Path) -> None:
    spec, _ = plan(tmp_path, node_count=1, fixed_ports=False)
    with pytest.raises(ConfigError, match=r"did you mean paxos\.window"):
        save(spec, ["paxos.windw=4"], {})


def test_ports_are_free_distinct_and_below_the_ephemeral_ones(tmp_path: Path) -> None:
    spec, _ = plan(tmp_path, node_count=5, fixed_ports=False)
    addresses = [address for node in spec.nodes for address in (node.kafka, node.peer, node.http)]
    assert len(set(addresses)) == 15
    assert all(address.port in FREE_PORTS and is_free(address) for address in addresses)
    assert spec.bootstrap == ",".join(f"127.0.0.1:{node.kafka.port}" for node in spec.nodes)


def test_a_cluster_is_the_same_when_started_again(tmp_path: Path) -> None:
    spec, _ = plan(tmp_path, node_count=2, groups=5, fixed_ports=False)
    save(spec, [], {})
    assert plan(tmp_path) == (spec, "")
    assert plan(tmp_path, node_count=2, groups=5) == (spec, "")


def test_nodes_may_be_on_hosts_of_their_own(tmp_path: Path) -> None:
    """As in network namespaces; administration stays on loopback, on ports that all differ."""
    hosts = ["10.64.0.1", "10.64.0.2"]
    spec, note = plan(tmp_path, hosts=hosts)
    assert not note
    assert [node.kafka.host for node in spec.nodes] == hosts
    assert [node.peer.host for node in spec.nodes] == hosts
    assert [node.http.host for node in spec.nodes] == ["127.0.0.1"] * 2
    assert len({node.http.port for node in spec.nodes}) == 2
    save(spec, [], {})
    assert read(tmp_path) == spec


def test_ports_taken_by_others_are_replaced(tmp_path: Path) -> None:
    spec, _ = plan(tmp_path, node_count=2, fixed_ports=False)
    save(spec, [], {})
    with socket.create_server(spec.nodes[1].peer):
        again, note = plan(tmp_path)
    assert "new ones" in note
    assert spec.nodes[1].peer not in [node.peer for node in again.nodes]
    assert attrs.evolve(again, nodes=spec.nodes) == spec


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"node_count": 3}, "holds a cluster of 2 nodes, not 3; omit the option"),
        ({"groups": 6}, "5 Paxos groups, not 6"),
        ({"node_count": 1, "groups": 6}, "2 nodes, not 1 and 5 Paxos groups, not 6"),
    ],
)
def test_a_directory_of_another_cluster_is_refused(
    tmp_path: Path, options: dict[str, int], message: str
) -> None:
    spec, _ = plan(tmp_path, node_count=2, groups=5, fixed_ports=False)
    save(spec, [], {})
    with pytest.raises(SpecError, match=message):
        plan(tmp_path, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, 33])
def test_a_local_cluster_has_a_limit(tmp_path: Path, count: int) -> None:
    with pytest.raises(SpecError, match="a local cluster has 1 to 32"):
        plan(tmp_path, node_count=count)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cluster_id": "a", "groups": 1, "nodes": [1]}'])
def test_a_damaged_spec_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(SpecError, match="cannot be read as a cluster"):
        plan(tmp_path)


def test_a_relative_directory_is_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec, _ = plan(Path("here"), node_count=1, fixed_ports=False)
    assert spec.data_dir == Path(os.getcwd()) / "here"


def test_an_unknown_node_is_named(tmp_path: Path) -> None:
    spec, _ = plan(tmp_path, node_count=2, fixed_ports=False)
    with pytest.raises(SpecError, match="there is no node 9: this cluster has 1, 2"):
        spec.node(9)


def test_an_address_in_use_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(Address(*server.getsockname()))


def test_targets_follow_the_nodes(tmp_path: Path) -> None:
    """Prometheus' targets include all nodes of the cluster, also those that are down."""
    spec, _ = plan(tmp_path, node_count=2, fixed_ports=False)

    def targets() -> dict[str, str]:
        (found,) = tmp_path.glob("prometheus/*")
        return {
            one["labels"]["node"]: one["targets"][0]
            for one in json.loads(found.read_text())
            if one["labels"]["cluster"] == spec.cluster_id and len(one["targets"]) == 1
        }

    save(spec, [], {})
    assert targets() == {"1": str(spec.node(1).http), "2": str(spec.node(2).http)}
    more = grown(spec)
    save(more, [], {})
    assert targets() == {str(node.id): str(node.http) for node in more.nodes}
    assert len(targets()) == 3
    save(shrunk(more, 1), [], {})
    assert sorted(targets()) == ["2", "3"]
