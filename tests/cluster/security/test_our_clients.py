"""One node that asks for passwords, inside TLS and without: our library, commands, data source."""

import contextlib
import io
import json
import os
import pickle
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import attrs
import pyarrow as pa
import pytest
import trio

from benchmarks.load import login as benchmark_login
from benchmarks.load.clients import produce
from benchmarks.load.generator import run as requests
from benchmarks.load.jobs import ProduceJob, RequestJob
from broker.security.users import user_line
from cli import main as cli
from cli.clusters import contexts, passwords
from cluster.health import is_ready
from cluster.workload import create_topic
from evenkeel import (
    Admin,
    AuthenticationError,
    ClientConfig,
    Consumer,
    ConsumerConfig,
    DeliveryError,
    Producer,
    properties,
)
from evenkeel.admin.acls import AccessRule
from evenkeel.client import Purpose
from pyspark_evenkeel.client.cluster import Cluster
from pyspark_evenkeel.client.settings import ClusterSettings
from pyspark_evenkeel.errors import SecurityError
from pyspark_evenkeel.options import parse_sink, parse_source
from pyspark_evenkeel.source import EvenkeelSource
from pyspark_evenkeel.worker import connected
from pyspark_evenkeel.write.task import Task, write_task
from runtime.config.fields import Address
from tests.certs import Certs
from tests.cluster.security.test_tls import ROOT, free_ports, until
from wire.acls import Operation, ResourceType
from wire.scram import ScramMechanism, make_credential

pytestmark = pytest.mark.cluster

PASSWORD = 'a long \\ one, with "signs" = ü'
WRONG = "not-the-password"
SESSION_S = 2
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@attrs.define
class Node:
    folder: Path
    certs: Certs
    ports: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        users = self.folder / "users"
        users.touch(0o600)
        users.write_text(
            "".join(
                user_line("admin", one, make_credential(one, PASSWORD, b"sixteen bytes...", 4096))
                + "\n"
                for one in ScramMechanism
            )
        )
        config = self.folder / "node.toml"
        config.write_text(
            f"""
[node]
id = 1
cluster_id = "ours"
data_dir = "{self.folder / "data"}"
[listen]
peer = "127.0.0.1:{self.ports}"
http = "127.0.0.1:{self.ports + 1}"
[[listeners]]
name = "INSIDE"
bind = "127.0.0.1:{self.ports + 2}"
protocol = "sasl_plaintext"
[[listeners]]
name = "OUTSIDE"
bind = "127.0.0.1:{self.ports + 3}"
advertised = "localhost:{self.ports + 3}"
protocol = "sasl_ssl"
[tls]
certificate = "{self.folder / "node.crt"}"
key = "{self.folder / "node.key"}"
[security]
sasl_mechanisms = ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"]
bootstrap_users_file = "{users}"
reauth_s = {SESSION_S}
authorizer = "acl"
super_users = ["User:admin"]
[groups]
count = 2
replicas = 1
[peers]
1 = "127.0.0.1:{self.ports}"
"""
        )
        with (self.folder / "log").open("ab") as log:
            command = [sys.executable, "-m", "node", "--config", str(config)]
            self.process = subprocess.Popen(command, cwd=ROOT, stderr=log)
        until(lambda: is_ready(Address("127.0.0.1", self.ports + 1)), "the node is ready")
        until(self.listens, "the registry has its listeners")

    def listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.ports + 3)):
            return True
        return False

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.ports + 2}"

    @property
    def outside(self) -> str:
        return f"localhost:{self.ports + 3}"

    def login(
        self, mechanism: str, name: str = "admin", password: str = PASSWORD
    ) -> dict[str, str]:
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": name,
            "sasl.password": password,
        }

    def login_in_tls(self, mechanism: str) -> dict[str, str]:
        """As a file of Java's has it."""
        password = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
        module = MODULE if mechanism != "PLAIN" else MODULE.replace("scram.Scram", "plain.Plain")
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certs.trusted),
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{module} required username="admin" password="{password}";',
        }

    def file(self, settings: Mapping[str, str], name: str = "client.properties") -> Path:
        path = self.folder / name
        path.write_text(properties.written(settings))
        return path


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("ours")
    certs = Certs.new(folder)
    certs.node()
    made = Node(folder, certs, free_ports(4))
    try:
        made.start()
        create_topic(
            made.bootstrap,
            "orders",
            partitions=2,
            replication=1,
            settings=made.login("SCRAM-SHA-512"),
        )
        yield made
    finally:
        if made.process is not None:
            made.process.terminate()
            made.process.wait(30)


def config(settings: Mapping[str, str], **more: int) -> ClientConfig:
    return ClientConfig.from_properties(settings, **more)


# -- the library -----------------------------------------------------------------------------------


async def test_every_mechanism_lets_us_in(node: Node) -> None:
    ways = [(node.outside, node.login_in_tls(one)) for one in ("SCRAM-SHA-256", "PLAIN")]
    ways += [(node.bootstrap, node.login(one)) for one in ("SCRAM-SHA-512", "SCRAM-SHA-256")]
    for bootstrap, settings in ways:
        async with Admin(bootstrap, client=config(settings)) as admin:
            assert (await admin.describe_cluster()).cluster_id == "ours"


async def test_who_is_not_believed_is_told_at_once(node: Node) -> None:
    """With timeouts of a minute and more; and no password is in any error."""
    login = config(node.login("SCRAM-SHA-512", password=WRONG))
    began = time.monotonic()
    async with Admin(node.bootstrap, client=login) as admin:
        with pytest.raises(AuthenticationError, match="as 'admin' with SCRAM-SHA-512") as told:
            await admin.describe_cluster()
    async with Consumer(node.bootstrap, ConsumerConfig(group="g"), client=login) as consumer:
        await consumer.subscribe(["orders"])
        with pytest.raises(AuthenticationError):
            await anext(aiter(consumer))
    async with Consumer(node.bootstrap, client=login) as consumer:
        await consumer.assign({("orders", 0): 0})
        with pytest.raises(AuthenticationError):
            await anext(aiter(consumer))
    async with Producer(node.bootstrap, client=login) as producer:
        with pytest.raises(AuthenticationError):
            await producer.send("orders", b"x")
    nobody = config(node.login("SCRAM-SHA-256", "nobody"))
    async with Admin(node.bootstrap, client=nobody) as admin:
        with pytest.raises(AuthenticationError):
            await admin.describe_cluster()
    assert time.monotonic() - began < 15
    assert WRONG not in str(told.value) + repr(told.value) + repr(login)


async def test_a_session_is_renewed_without_losing_a_request(node: Node) -> None:
    """KIP-368, on the same connections: a producer and a consumer go on past the session's end."""
    login = config(node.login("SCRAM-SHA-512"))
    async with (
        Producer(node.bootstrap, client=login) as producer,
        Consumer(node.bootstrap, client=login) as consumer,
    ):
        await consumer.assign({("orders", 1): 0})
        await (await producer.send("orders", b"0", partition=1))
        first = producer._client.ready(1, Purpose.PRODUCE)
        began, sent = trio.current_time(), 1
        while trio.current_time() - began < SESSION_S + 0.7:
            delivery = await producer.send("orders", b"%d" % sent, partition=1)
            sent += 1
            if sent % 4 == 0:
                await delivery  # the others are in flight when the session is renewed
            await trio.sleep(0.01)
        await producer.flush()
        assert producer._client.ready(1, Purpose.PRODUCE) is first is not None
        assert producer.statistics().retries == 0
        got: list[bytes | None] = []
        with trio.fail_after(10):
            while len(got) < sent:
                got += [one.value for one in (await anext(aiter(consumer))).records]
    assert got == [b"%d" % number for number in range(sent)]


async def test_a_deleted_user_is_cut_off_and_what_waits_fails_at_once(node: Node) -> None:
    async with Admin(node.bootstrap, client=config(node.login("SCRAM-SHA-512"))) as admin:
        await admin.set_password("carol", "hers")
        login = config(node.login("SCRAM-SHA-512", "carol", "hers"))
        async with Admin(node.bootstrap, client=login) as hers:
            assert (await hers.describe_cluster()).cluster_id == "ours"
        rule = AccessRule("User:carol", Operation.ALL, ResourceType.TOPIC, "orders")
        await admin.create_rules([rule])
        async with Producer(node.bootstrap, client=login) as producer:
            await (await producer.send("orders", b"x", partition=0))
            (mechanism,) = (await admin.users(["carol"]))[0].mechanisms
            assert mechanism == "SCRAM-SHA-512"
            await admin.delete_password("carol", [ScramMechanism.SHA_512])
            with trio.fail_after(10), pytest.raises(DeliveryError) as told:
                await until_refused(producer)
            assert isinstance(told.value.__cause__, AuthenticationError)


async def until_refused(producer: Producer) -> None:
    while True:
        await (await producer.send("orders", b"y", partition=0))
        await trio.sleep(0.05)


# -- the commands ----------------------------------------------------------------------------------


class Typed:
    def __init__(
        self, node: Node, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch
        file = node.file(node.login_in_tls("SCRAM-SHA-512"))
        self._how = ["--bootstrap", node.outside, "--command-config", str(file)]

    def __call__(self, line: str, *, code: int = 0, stdin: str = "") -> str:
        return self.bare([*line.split(), *self._how], code=code, stdin=stdin)

    def bare(self, words: list[str], *, code: int = 0, stdin: str = "", out: bool = False) -> str:
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        got = cli.run(words)
        said = self._capsys.readouterr()
        assert got == code, said
        assert PASSWORD not in said.out + said.err
        return said.out if out or code == 0 else said.err


@pytest.fixture
def typed(
    node: Node,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Typed:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return Typed(node, capsys, monkeypatch)


def test_users_are_added_listed_changed_and_deleted(node: Node, typed: Typed) -> None:
    assert "user alice was added (SCRAM-SHA-512)" in typed(
        "user add alice --password-file -", stdin="hers\n"
    )
    assert "there is a user 'alice' already" in typed("user add alice --generate", code=1)
    said = typed("user add bob --generate --mechanism SCRAM-SHA-256 --mechanism SCRAM-SHA-512")
    password = said.splitlines()[1].removeprefix("password: ")
    listed = json.loads(typed("user list --json"))
    assert listed == [
        {"user": "alice", "mechanisms": {"SCRAM-SHA-512": 4096}},
        {"user": "bob", "mechanisms": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}},
    ]
    assert "alice  SCRAM-SHA-512        4096" in typed("user list")

    def lets_in(name: str, secret: str, mechanism: str = "SCRAM-SHA-512") -> bool:
        file = node.file(node.login(mechanism, name, secret), "other.properties")
        how = ["--bootstrap", node.bootstrap, "--command-config", str(file)]
        return cli.run(["topic", "list", *how]) == 0

    assert lets_in("bob", password, "SCRAM-SHA-256")
    assert lets_in("alice", "hers")
    typed("user passwd alice --password-file -", stdin="another\n")
    assert not lets_in("alice", "hers")
    assert lets_in("alice", "another")
    assert "there is no user 'eve'" in typed("user passwd eve --generate", code=1)
    assert "the password is empty" in typed("user add eve --password-file -", code=1)
    assert "--json never does" in typed("user add eve --generate --json", code=1)
    assert "cannot be a user" in typed("user add \x07 --generate", code=1)
    assert "user alice was deleted\nuser bob was deleted" in typed("user delete alice bob")
    assert typed("user list") == "no users\n"


def test_quotas_are_set_listed_and_deleted(typed: Typed) -> None:
    assert typed("quota list") == "no quotas\n"
    said = typed("quota set --user alice --client loader produce=10MB/s consume=1.5MiB request=50%")
    rows = [line.split("  ") for line in said.splitlines()[1:]]
    assert {tuple(filter(None, map(str.strip, row)))[1:] for row in rows} == {
        ("produce", "10 MB/s"),
        ("consume", "1536 KiB/s"),
        ("request", "50 %"),
    }
    typed("quota set --any-user partitions=10/s")
    typed("quota set --ip 192.0.2.1 connections=20/s")
    listed = json.loads(typed("quota list --json"))
    assert {"entity": {"user": None}, "limits": {"controller_mutation_rate": 10.0}} in listed
    assert "192.0.2.1" in typed("quota list --ip 192.0.2.1")
    assert "any user" not in typed("quota list --ip 192.0.2.1")
    assert "connections are limited for --ip" in typed("quota set --user a connections=1", code=1)
    assert "say whose" in typed("quota set produce=1MB", code=1)
    assert "no quota of produce" in typed("quota delete --user alice --client loader produce")
    assert "has no such quota" in typed("quota delete --user alice --client loader produce", code=1)
    for whose in ("--user alice --client loader", "--any-user", "--ip 192.0.2.1"):
        typed(f"quota delete {whose}")
    assert typed("quota list") == "no quotas\n"


def test_a_profile_keeps_how_to_log_in(node: Node, typed: Typed, tmp_path: Path) -> None:
    words = ["profile", "add", "prod", "--bootstrap", node.outside, "--user", "admin"]
    words += ["--ca", str(node.certs.trusted), "--password-file", "-"]
    assert "profile prod" in typed.bare(words, stdin=PASSWORD).replace("context", "profile")
    kept = tmp_path / "config" / "evenkeel" / "logins" / "prod.properties"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert properties.read(kept)["sasl.password"] == PASSWORD
    assert PASSWORD not in contexts.path().read_text()
    (row,) = json.loads(typed.bare(["profile", "list", "--json"]))
    assert row["cluster_id"] == "ours", "it was asked, and let us in"
    typed.bare(["profile", "use", "prod"])
    assert "orders" in typed.bare(["topic", "list"])
    assert "sasl.username      admin" in typed.bare(["profile", "show", "prod"])
    shown = json.loads(typed.bare(["context", "show", "prod", "--json"]))
    assert shown["settings"]["sasl.mechanism"] == "SCRAM-SHA-512"
    assert "no use for --ca" in typed.bare([*words, "--no-tls", "--replace"], code=1, stdin="x")
    kept.chmod(0o640)
    assert "others may read" in typed.bare(["topic", "list"], code=1)
    typed.bare(["profile", "delete", "prod"])
    assert not kept.exists()


def test_a_command_is_told_at_once_and_shows_no_password(node: Node, typed: Typed) -> None:
    file = node.file(node.login("SCRAM-SHA-512", password=WRONG), "wrong.properties")
    how = ["--bootstrap", node.bootstrap, "--command-config", str(file)]
    for words in (
        ["topic", "list"],
        ["group", "list"],
        ["acl", "list"],
        ["topic", "describe", "t"],
    ):
        began = time.monotonic()
        said = typed.bare([*words, *how], code=1)
        assert "authentication at" in said
        assert WRONG not in said
        assert time.monotonic() - began < 5
    said = doctor(typed, how)
    assert "does not let us in" in said
    assert WRONG not in said
    plain = node.file(node.login("PLAIN"), "plain.properties")
    said = doctor(typed, [*how[:3], str(plain)])
    assert "it offers SCRAM-SHA-512, SCRAM-SHA-256" in said
    typed("doctor")


def doctor(typed: Typed, how: list[str]) -> str:
    """What it says, on standard output, of a cluster that is not in order."""
    said = typed.bare(["doctor", "--json", *how], code=1, out=True)
    return " ".join(one["problem"] for one in json.loads(said)["problems"])


# -- the data source and the benchmarks ------------------------------------------------------------


def test_the_data_source_reads_and_writes(node: Node) -> None:
    """Options as Spark's own Kafka source has them. What a task gets is pickled, as Spark does it:
    driver and executors log in with the same settings."""
    java = {f"kafka.{name}": text for name, text in node.login_in_tls("SCRAM-SHA-256").items()}
    java["kafka.bootstrap.servers"] = node.outside
    written = parse_sink({**java, "topic": "orders"}, streaming=False)
    read = parse_source({**java, "subscribe": "orders"}, streaming=False)
    assert PASSWORD not in repr(written) + repr(read)
    rows = pa.record_batch({"value": pa.array([b"from the sink"], pa.binary())})
    on_executor = pickle.loads(pickle.dumps(written))
    write_task(iter([rows]), on_executor, Task("w", 0, 0), partial(connected, on_executor.cluster))
    source = EvenkeelSource({**java, "subscribe": "orders"})
    reader = source.reader(source.schema())
    tasks = reader.partitions()
    there = pickle.loads(pickle.dumps(reader))
    values = [
        value
        for one in tasks
        for batch in there.read(pickle.loads(pickle.dumps(one)))
        for value in batch.column("value").to_pylist()
    ]
    assert b"from the sink" in values
    wrong = attrs.evolve(read.cluster.security, password=WRONG)
    settings = ClusterSettings(bootstrap=node.outside, security=wrong)
    with Cluster(settings) as cluster, pytest.raises(SecurityError) as told:
        cluster.topics()
    assert WRONG not in str(told.value)


@pytest.mark.parametrize("in_tls", [True, False])
def test_benchmarks_measure_brokers_that_ask_who_we_are(node: Node, in_tls: bool) -> None:
    bootstrap = node.outside if in_tls else node.bootstrap
    login = node.login_in_tls("SCRAM-SHA-512") if in_tls else node.login("SCRAM-SHA-512")
    benchmark_login.use(node.file(login, "bench.properties"))
    try:
        assert PASSWORD not in str(dict(os.environ))
        job = RequestJob(
            bootstrap=bootstrap,
            topic="orders",
            connections=2,
            in_flight=2,
            record_bytes=100,
            rate=0,
            first_node=0,
            warm_up_s=0.1,
            window_s=0.3,
        )
        assert requests(job).errors == (), "all are answered"
        many = ProduceJob(
            bootstrap=bootstrap,
            topic="orders",
            partitions=2,
            message_bytes=100,
            idempotent=True,
            warm_up_s=0.1,
            window_s=0.3,
        )
        assert produce(many).errors == (), "all are acknowledged, and stored"
    finally:
        benchmark_login.use(None)


def test_no_password_is_in_the_nodes_log(node: Node) -> None:
    log = (node.folder / "log").read_text()
    assert PASSWORD not in log
    assert WRONG not in log
    assert passwords.VARIABLE not in log
