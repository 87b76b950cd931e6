"""The configuration: every mistake has a message that says what to do."""

from pathlib import Path

import attrs
import pytest

from paxos.ids import MS
from runtime import settings
from runtime.config.config import SECTIONS, Address, Config, ConfigError, load, parse_address

GOOD = """
[node]
id = 1
cluster_id = "test"
data_dir = "/var/lib/evenkeel/1"
[peers]
1 = "127.0.0.1:7091"
2 = "127.0.0.1:7092"
3 = "127.0.0.1:7093"
"""


OPEN = "security.insecure_listeners=true"
"""Who reaches the address, and may do what, is not the question here."""


def read(tmp_path: Path, text: str = GOOD, env: dict[str, str] | None = None, *sets: str) -> Config:
    path = tmp_path / "node.toml"
    path.write_text(text)
    return load(path, {} if env is None else env, sets)


def refusal(tmp_path: Path, text: str = GOOD, env: dict[str, str] | None = None, *sets: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text, env, *sets)
    return str(caught.value).replace(str(tmp_path), "")


def test_a_file_with_the_necessary_gives_the_defaults(tmp_path: Path) -> None:
    config = read(tmp_path)
    assert config.node.id == 1
    assert config.node.data_dir == Path("/var/lib/evenkeel/1")
    assert config.peers[config.node.id] == Address("127.0.0.1", 7091)
    assert config.lease.duration_ms == 3000
    assert config.storage.durability == "fsync"
    assert config.listen.told_to_clients == config.listen.kafka == Address("127.0.0.1", 9092)


def test_flags_win_over_environment_and_environment_over_the_file(tmp_path: Path) -> None:
    text = GOOD + "[paxos]\nwindow = 2\nretransmit_ms = 100\ndrain_ms = 90\n"
    env = {"EVENKEEL_PAXOS__WINDOW": "3", "EVENKEEL_PAXOS__RETRANSMIT_MS": "70", "HOME": "/"}
    config = read(tmp_path, text, env, "paxos.window=4")
    assert (config.paxos.window, config.paxos.retransmit_ms, config.paxos.drain_ms) == (4, 70, 90)


def test_each_type_is_read_from_text(tmp_path: Path) -> None:
    env = {"EVENKEEL_PEERS__4": "[::1]:7094", "EVENKEEL_LISTEN__ADVERTISED_KAFKA": "bus.lan:9092"}
    sets = (
        "balancer.enabled=False",
        "node.zone=b",
        "node.data_dir=d",
        "listen.kafka=0.0.0.0:9092",
        OPEN,
    )
    config = read(tmp_path, GOOD, env, *sets)
    assert config.peers[4] == Address("::1", 7094)
    assert str(config.peers[4]) == "[::1]:7094"
    assert config.listen.told_to_clients == Address("bus.lan", 9092)
    assert (config.balancer.enabled, config.node.zone) == (False, "b")
    assert config.node.data_dir == Path("d")


def test_describe_is_the_configuration_itself(tmp_path: Path) -> None:
    sets = ("lease.duration_ms=9000", "listen.kafka=0.0.0.0:9092", "node.zone=rack-1", OPEN)
    advertised = "listen.advertised_kafka=10.0.0.1:9092"
    config = read(tmp_path, GOOD, None, *sets, advertised, r'node.data_dir=/tmp/a "b" \c')
    assert read(tmp_path, config.describe()) == config


def test_every_setting_is_described_with_its_meaning(tmp_path: Path) -> None:
    text = read(tmp_path).describe()
    for name, section_class in SECTIONS.items():
        lines = text.partition(f"[{name}]\n")[2].partition("\n\n")[0].splitlines()
        for field in attrs.fields(section_class):
            (line,) = (line for line in lines if line.startswith(f"{field.name} = "))
            assert line.endswith("# " + field.metadata["doc"])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("lease.durations_ms=1", "unknown key lease.durations_ms; did you mean lease.duration_ms?"),
        ("leese.duration_ms=1", "unknown section [leese]; did you mean lease?"),
        (
            "xyz.a=1",
            "unknown section [xyz]; known are balancer, broker, catchup, groups, http, lease, ",
        ),
        ("groups.q=1", "unknown key groups.q; known are groups.count"),
        ("lease.duration_ms", "expected --set section.key=value"),
        ("window=1", "expected --set section.key=value"),
        ("paxos.window=many", 'paxos.window = "many": expected a whole number'),
        ("paxos.window=0", "paxos.window = 0: expected 1 to 63: slots a master may have"),
        ("paxos.window=64", "paxos.window = 64: expected 1 to 63"),
        ("balancer.enabled=yes", 'balancer.enabled = "yes": expected true or false'),
        ("node.data_dir=", 'node.data_dir = "": expected the path of a directory'),
        (
            "node.cluster_id=a b",
            "node.cluster_id = \"a b\": expected 1 to 64 letters, digits, '.'",
        ),
        ("node.cluster_id=", 'node.cluster_id = "": expected 1 to 64 letters'),
        ("node.id=0", "node.id = 0: expected 1 to 2147483647: this node's number in [peers]"),
        ("node.id=9", "node.id = 9: not in [peers] (1, 2, 3); [peers] lists every node"),
        ("storage.durability=no", '"no": expected "fsync" or "unsafe-none": unsafe-none acknowl'),
        ("log.level=loud", '"loud": expected "debug" or "info" or "warning" or "error"'),
        ("listen.kafka=9092", 'listen.kafka = "9092": expected host:port'),
        ("listen.kafka=:9092", "expected host:port"),
        ("listen.kafka=::1:9092", "expected host:port (an IPv6 host in brackets)"),
        ("listen.kafka=h:0", "with a port of 1 to 65535"),
        ("listen.kafka=h:65536", "with a port of 1 to 65535"),
        ("listen.kafka=h:-1", "with a port of 1 to 65535"),
        ("listen.kafka=127.0.0.1:7092", "listen.kafka uses the same address; give each its own"),
        ("listen.kafka=0.0.0.0:9092", "set listen.advertised_kafka to an address that clients can"),
        ("listen.advertised_kafka=0.0.0.0:9092", "clients cannot connect to it; set an address"),
        ("listen.http=0.0.0.0:8092", "everyone who reaches this address could move masters"),
        ("listen.http=bus.lan:8092", "or use a loopback address"),
        ("peers.one=127.0.0.1:1", "peers.one: the key of a peer is its node id, a number"),
        ("peers.4=nowhere", 'peers.4 = "nowhere": expected host:port'),
        ("peers.4=node..example:7090", 'peers.4 = "node..example:7090": expected host:port'),
        ("listen.kafka=a b:9092", 'listen.kafka = "a b:9092": expected host:port'),
        (f"listen.peer={'x' * 64}:9092", "expected host:port"),
        ("peers.4=127.0.0.1:7092", 'peers.4 = "127.0.0.1:7092": node 2 has the same address'),
        ("peers.4=0.0.0.0:7092", "nobody can connect to it; name the node's own address"),
        ("peers.0=127.0.0.1:7090", "a node id is 1 to 2147483647"),
        (
            "lease.duration_ms=2400",
            "lease.duration_ms = 2400: a lease must outlive one lost renewal and both clock "
            "margins (2 * renew_every_ms + 2 * clock_margin_ms = 2400 ms); raise "
            "lease.duration_ms above 2400 or lower lease.renew_every_ms",
        ),
        ("lease.renew_every_ms=400", "(2 * clock_margin_ms = 400 ms), or a renewal may shorten"),
        ("paxos.election_backoff_ms_min=200", "raise paxos.election_backoff_ms_max above 200"),
        ("storage.data_bytes_max=1000", "raise it above that, or lower storage.log_bytes"),
        ("paxos.steal_settle_ms=400", "raise it above paxos.retransmit_ms = 400"),
        ("balancer.token_ms=2000", "raise it above balancer.steal_deadline_ms = 2000"),
        ("balancer.steal_deadline_ms=700", "raise it above 700 or lower those"),
        ("balancer.strategy=wait-expiry", '"wait-expiry" the lease; raise it above 4100'),
        ("balancer.strategy=faster", 'expected "delegate" or "two-proposes" or'),
        ("broker.group_session_timeout_ms_max=999", "raise it to 1000 or more"),
        ("limits.connections_per_ip_max=1001", "limits.connections_max = 1000: one address alone"),
        ("limits.pending_bytes_per_group=65536", "raise it to at least limits.frame_bytes_max"),
        ("limits.pending_bytes_per_node=65536", "at least limits.pending_bytes_per_group = "),
        ("limits.peer_queue_bytes=65536", "the entry of one request must fit"),
        ("limits.frame_bytes_max=1048576", "expected 2097152 to 25100288: a larger request"),
        ("limits.frame_bytes_max=25165824", "at most what fits into one entry of the log"),
    ],
)
def test_a_wrong_setting_is_refused_with_the_reason(
    tmp_path: Path, setting: str, message: str
) -> None:
    assert message in refusal(tmp_path, GOOD, None, setting)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = ", "/node.toml: not TOML: "),
        ("window = 3\n" + GOOD, "/node.toml: window is outside of a section; put it under a"),
        (GOOD + "[paxos]\nwindow = true\n", "paxos.window = true: expected a whole number"),
        (GOOD + "[paxos]\nwindow = 3.0\n", 'paxos.window = "3.0": expected a whole number'),
        (GOOD + "[log]\nlevel = 1\n", "log.level = 1: expected a string"),
        (GOOD + "[balancer]\nenabled = 1\n", "balancer.enabled = 1: expected true or false"),
        (GOOD.replace('cluster_id = "test"', ""), "node.cluster_id is missing: set it (nodes of"),
        (GOOD.partition("[peers]")[0], "[peers] has 0 nodes: a cluster has 1 to 64"),
        ("", "node.id is missing: set it (this node's number in [peers], for ever)"),
        ("#" * (1024 * 1024 + 1), "/node.toml: larger than 65536 bytes: not a config file"),
        ("\0", "not TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_the_reason(tmp_path: Path, text: str, message: str) -> None:
    assert message in refusal(tmp_path, text)


def test_bytes_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not TOML"):
        load(tmp_path / "node.toml", {})


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read: No such file"):
        load(tmp_path / "none.toml", {})


def test_a_mistyped_variable_is_not_ignored(tmp_path: Path) -> None:
    """A limit with one underscore too few would otherwise silently be no limit."""
    message = refusal(tmp_path, GOOD, {"EVENKEEL_LEASE_DURATION_MS": "1"})
    assert "with two underscores between; did you mean EVENKEEL_LEASE__DURATION_MS?" in message
    message = refusal(tmp_path, GOOD, {"EVENKEEL_LEASE__DURATOIN_MS": "1"})
    assert message == (
        "environment variable EVENKEEL_LEASE__DURATOIN_MS: unknown key lease.duratoin_ms; "
        "did you mean lease.duration_ms?"
    )


def test_all_problems_are_told_at_once_and_where_they_come_from(tmp_path: Path) -> None:
    text = GOOD + "[paxos]\nwindow = 0\n"
    message = refusal(tmp_path, text, {"EVENKEEL_A__B": "1"}, "lease.duration_ms=2000", "log.x=1")
    sources = [line.partition(": ")[0] for line in message.splitlines()]
    assert sources == [
        "environment variable EVENKEEL_A__B",
        "--set log.x=1",
        "--set lease.duration_ms=2000",
        "/node.toml",
    ]


def test_a_config_made_in_code_is_checked_as_well(tmp_path: Path) -> None:
    config = read(tmp_path)
    with pytest.raises(ConfigError, match=r"paxos\.window"):
        attrs.evolve(config.paxos, window=-1)
    with pytest.raises(ConfigError, match=r"not in \[peers\]"):
        attrs.evolve(config, peers={2: parse_address("127.0.0.1:1")})
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        config.paxos.window = 3  # type: ignore[misc]


def test_E2_the_time_and_the_size_of_batches_are_settings(tmp_path: Path) -> None:
    given = read(tmp_path, GOOD + "[paxos]\nbatch_wait_ms = 5\nbatch_bytes_min = 4096\n")
    intake = settings.intake(given)
    assert (intake.batch_wait_ns, intake.batch_bytes_min) == (5 * MS, 4096)
    assert settings.intake(read(tmp_path)).batch_bytes_min == 64 * 1024
