"""A machine's file: what follows from it for each node, and words for what is wrong with it."""

from pathlib import Path

import pytest

from cluster.machine.plan import MachinePlan, read
from runtime.config.config import ConfigError, load

TWO = """
[machine]
name = "b"
data_dir = "{folder}"
{more}
[node]
cluster_id = "c"
[listen]
kafka = "10.0.0.2:9092"
advertised_kafka = "b.example:19092"
peer = "10.0.0.2:7092"
[security]
insecure_listeners = true
[lease]
duration_ms = 9000
[groups]
count = 5
founders = [1, 2, 3, 4, 5, 6]
[machines]
a = {{ peer = "10.0.0.1:7092", nodes = [1, 4] }}
b = {{ peer = "10.0.0.2:7092", nodes = [2, 5] }}
c = {{ peer = "10.0.0.3:7192", nodes = [3, 6] }}
"""


def written(folder: Path, more: str = "", *changes: tuple[str, str]) -> MachinePlan:
    text = TWO.format(folder=folder / "state", more=more)
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    path = folder / "machine.toml"
    path.write_text(text)
    return read(path, {})


def refusal(folder: Path, more: str = "", *changes: tuple[str, str]) -> str:
    with pytest.raises(ConfigError) as refused:
        all_written(folder, more, *changes)
    return str(refused.value)


def all_written(folder: Path, more: str, *changes: tuple[str, str]) -> None:
    plan = written(folder, more, *changes)
    plan.write(plan.running(2), {}, folder / "state")


def test_everything_follows_from_the_file(tmp_path: Path) -> None:
    plan = written(tmp_path)
    (tmp_path / "state").mkdir()
    configs = []
    for node in plan.running(1):
        path = tmp_path / f"{node.id}.toml"
        path.write_text(plan.text(node, 2))
        configs.append(load(path, {}))
    assert [one.node.id for one in configs] == [2, 5]
    assert [one.node.zone for one in configs] == ["b", "b"]
    assert [one.node.processes for one in configs] == [2, 2]
    assert [str(one.listen.kafka) for one in configs] == ["10.0.0.2:9092", "10.0.0.2:9093"]
    told = [str(one.listen.told_to_clients) for one in configs]
    assert told == ["b.example:19092", "b.example:19093"]
    assert [str(one.listen.http) for one in configs] == ["127.0.0.1:8092", "127.0.0.1:8093"]
    assert [one.node.data_dir.name for one in configs] == ["node-2", "node-5"]
    assert configs[0].peers == configs[1].peers
    assert {node: str(address) for node, address in configs[0].peers.items()} == {
        1: "10.0.0.1:7092",
        2: "10.0.0.2:7092",
        3: "10.0.0.3:7192",
        4: "10.0.0.1:7093",
        5: "10.0.0.2:7093",
        6: "10.0.0.3:7193",
    }
    assert all(one.lease.duration_ms == 9000 and one.groups.count == 5 for one in configs)
    assert all(one.founders == (1, 2, 3, 4, 5, 6) for one in configs)


LISTENERS = """
[tls]
certificate = "/etc/bus/b.crt"
key = "/etc/bus/b.key"
[[listeners]]
name = "LOCAL"
bind = "127.0.0.1:9192"
protocol = "plaintext"
[[listeners]]
name = "CLIENTS"
bind = "10.0.0.2:9092"
advertised = "b.example:19092"
protocol = "sasl_ssl"
[security]
sasl_mechanisms = ["SCRAM-SHA-512"]
authorizer = "acl"
super_users = ["User:admin"]
audit_log = "/var/log/evenkeel/audit.log"
"""
INSTEAD = (
    ('kafka = "10.0.0.2:9092"\nadvertised_kafka = "b.example:19092"\n', ""),
    ("[security]\n", LISTENERS),
)


def test_each_node_has_the_listeners_its_ports_above(tmp_path: Path) -> None:
    plan = written(tmp_path, "", *INSTEAD)
    configs = plan.write(plan.running(2), {}, tmp_path / "files")
    found = [
        {one.name: (str(one.bind), str(one.told_to_clients)) for one in config.for_clients}
        for config in configs
    ]
    assert found == [
        {
            "CLIENTS": ("10.0.0.2:9092", "b.example:19092"),
            "LOCAL": ("127.0.0.1:9192", "127.0.0.1:9192"),
        },
        {
            "CLIENTS": ("10.0.0.2:9093", "b.example:19093"),
            "LOCAL": ("127.0.0.1:9193", "127.0.0.1:9193"),
        },
    ]
    assert [one.security.audit_log for one in configs] == [
        "/var/log/evenkeel/audit-2.log",
        "/var/log/evenkeel/audit-5.log",
    ]
    assert all(one.tls.key == Path("/etc/bus/b.key") for one in configs)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('protocol = "sasl_ssl"', 'protocol = "sasl"'), 'protocol = "sasl": expected'),
        (('protocol = "sasl_ssl"', 'protocl = "sasl_ssl"'), "unknown key protocl"),
        (('bind = "127.0.0.1:9192"', 'bind = "127.0.0.1:9093"'), "would both be 9093"),
        (("[lease]", '[listen]\nhttp = "127.0.0.1:9091"\n[lease]'), "not TOML"),
        (('peer = "10.0.0.2:7092"\n', 'kafka = "10.0.0.2:9000"\npeer = "10.0.0.2:7092"\n'),
         "listen.kafka: it is the short form of one listener"),
        (("certificate = ", "# certificate = "), "needs tls.certificate"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_listeners(change: tuple[str, str], said: str, tmp_path: Path) -> None:
    assert said in refusal(tmp_path, "", *INSTEAD, change)


@pytest.mark.parametrize(
    ("more", "cores", "with_data", "runs"),
    [
        ("", 1, [], [2, 5]),
        ("processes = 1", 4, [], [2]),
        ('processes = "cores"', 1, [], [2]),
        ('processes = "cores"', 8, [], [2, 5]),
        ('processes = "cores"', 1, [5], [2, 5]),
    ],
)
def test_how_many_run(
    more: str, cores: int, with_data: list[int], runs: list[int], tmp_path: Path
) -> None:
    """A smaller machine never leaves data behind."""
    plan = written(tmp_path, more)
    for node in with_data:
        (tmp_path / f"state/node-{node}/log").mkdir(parents=True)
    assert [node.id for node in plan.running(cores)] == runs


@pytest.mark.parametrize(
    ("more", "change", "said"),
    [
        ("processes = 1", None, "raise machine.processes"),
        ("processes = 1", None, "Raise machine.processes (1); or remove the node while it runs"),
        ("", ("nodes = [2, 5]", "nodes = [2]"), "Put 5 back into machines.b.nodes"),
        ("", ("nodes = [2, 5]", "nodes = [2, 7]"), "evenkeel node remove 5"),
    ],
)
def test_a_node_with_data_is_not_dropped_without_a_word(
    more: str, change: tuple[str, str] | None, said: str, tmp_path: Path
) -> None:
    (tmp_path / "state/node-5/log").mkdir(parents=True)
    told = refusal(tmp_path, more, *([change] if change else []))
    assert "node 5 has data in" in told
    assert said.lower() in told.lower()


def test_an_empty_directory_is_no_data(tmp_path: Path) -> None:
    (tmp_path / "state/node-5").mkdir(parents=True)
    assert [node.id for node in written(tmp_path, "processes = 1").running(2)] == [2]


@pytest.mark.parametrize(
    ("more", "change", "said"),
    [
        ("processes = 3", None, "machines.b.nodes names 2; to add one, admit it"),
        ("processes = 0", None, 'expected 1 to 2, or "cores"'),
        ("processes = true", None, "expected 1 to 2"),
        ("pin = 3", None, "machine.pin = 3: expected true or false"),
        ("cores = 3", None, "machine.cores: unknown; known are name, data_dir, processes, pin"),
        ("", ('name = "b"', 'name = "x"'), 'machine.name = "x": not in [machines] (a, b, c)'),
        ("", ("nodes = [3, 6]", "nodes = [3, 5]"), "node 5 is also of machine b"),
        ("", ("nodes = [3, 6]", "nodes = [3, 0]"), "0 is no node's number"),
        ("", ("nodes = [3, 6]", "nodes = []"), "machines.c: write a = {"),
        ("", ("10.0.0.3:7192", "10.0.0.3"), "machines.c.peer: expected host:port"),
        ("", ("10.0.0.3:7192", "10.0.0.3:65535"), "2 ports from 65535 on end above 65535"),
        ("", ('peer = "10.0.0.2:7092"\n', 'peer = "10.0.0.2:7000"\n'), "give both the same port"),
        ("", ("b.example:19092", "b.example"), "listen.advertised_kafka"),
        ("", ("[lease]", "[leases]"), "leases: expected the sections"),
        ("", ("duration_ms = 9000", "duration = 9000"), "did you mean lease.duration_ms?"),
        ("", ("duration_ms = 9000", "duration_ms = 1"), "lease.duration_ms = 1"),
        ("", ('cluster_id = "c"', "id = 3"), "node.id: it differs between nodes; set machines"),
        ("", ('cluster_id = "c"', 'zone = "x"'), "set machine.name"),
        ("", ("[lease]", "[peers]\n1 = \"a:1\"\n[lease]"), "[peers] follows from [machines]"),
        ("", ("[machine]", "[machine"), "not TOML"),
        ("", ('kafka = "10.0.0.2:9092"', 'kafka = "10.0.0.2:8091"'), "would both be 8092"),
        ("", ('kafka = "10.0.0.2:9092"', 'kafka = "10.0.0.2:65535"'), "would be 65536"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_words(
    more: str, change: tuple[str, str] | None, said: str, tmp_path: Path
) -> None:
    assert said in refusal(tmp_path, more, *([change] if change else []))


def test_what_differs_between_nodes_is_not_for_the_environment(tmp_path: Path) -> None:
    written(tmp_path)
    for variable in ("EVENKEEL_NODE__ID", "EVENKEEL_LISTEN__KAFKA", "EVENKEEL_PEERS__1"):
        with pytest.raises(ConfigError, match="the same for all nodes of the machine"):
            read(tmp_path / "machine.toml", {variable: "1"})
    read(
        tmp_path / "machine.toml", {"EVENKEEL_LEASE__DURATION_MS": "9000", "EVENKEEL_CONTEXT": "x"}
    )


def test_a_missing_file_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read(tmp_path / "none.toml")
