"""`evenkeel topic` and `evenkeel group` against real nodes, as typed; text for people, JSON for
programs, one line and exit code 1 for what cannot be done."""

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer

from cli import main as cli
from tests.evenkeel.shared_cluster import ROOT, SharedCluster

pytestmark = pytest.mark.cluster

STEP_S = 30.0


class Terminal:
    """Runs commands and keeps what they print."""

    def __init__(
        self,
        cluster: SharedCluster,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.bootstrap = cluster.bootstrap
        self.said_besides = ""
        """The last command's output on standard error."""
        self._where = ["--bootstrap", cluster.bootstrap]
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def run(self, line: str, *more: str, stdin: bytes = b"", fails: bool = False) -> str:
        """The output of `evenkeel LINE`; if it fails, its error message."""
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            code = cli.run([*line.split(), *more, *self._where])
        printed = self._capsys.readouterr()
        assert code == (1 if fails else 0), printed.err
        if not fails:
            self.said_besides = printed.err
            return printed.out
        assert printed.err.startswith("evenkeel: ")
        assert printed.err.count("\n") == 1
        return printed.err

    def eventually(self, line: str, pattern: str) -> None:
        """The output matches, soon."""
        deadline = time.monotonic() + STEP_S
        while not re.search(pattern, printed := self.run(line), re.DOTALL):
            assert time.monotonic() < deadline, printed

    def json(self, line: str, **more: Any) -> Any:
        return json.loads(self.run(f"{line} --json", **more))

    def lines(self, line: str, **more: Any) -> list[Any]:
        return [json.loads(one) for one in self.run(f"{line} --json", **more).splitlines()]


@pytest.fixture
def terminal(
    cluster: SharedCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    return Terminal(cluster, capsys, monkeypatch)


def test_the_life_of_a_topic(terminal: Terminal) -> None:
    create = "topic create cli-1 --partitions 2 --set max.message.bytes=5000"
    assert terminal.json(f"{create} --dry-run") == {"created": False}
    assert "cli-1 was created with 2 partitions" in terminal.run(create)
    assert "TOPIC_ALREADY_EXISTS" in terminal.run(create, fails=True)
    terminal.eventually("topic list", r"\ncli-1 +2 +-\n")  # another node may hear of it later
    described = terminal.run("topic describe cli-1")
    assert "partition  leader  epoch  replicas  in sync" in described
    assert "max.message.bytes = 5000" in described
    told = terminal.json("topic describe cli-1")
    assert [one["partition"] for one in told["partitions"]] == [0, 1]
    assert told["changed"] == {"max.message.bytes": "5000"}
    assert "would be deleted" in terminal.run("topic delete cli-1 --dry-run")
    assert f"in the cluster at {terminal.bootstrap}\n" in terminal.said_besides
    assert terminal.json("topic delete cli-1")["deleted"]
    terminal.eventually("topic list", r"\A(?!.*cli-1)")
    assert "there is no topic 'cli-2'; see: " in terminal.run("topic describe cli-2", fails=True)


def test_records_in_and_out(terminal: Terminal, topic: str) -> None:
    """Lines with keys and headers; bytes that are not text are printed in hexadecimal."""
    said = terminal.run(
        f"topic produce {topic} --key-separator : --header kind=fruit --compression zstd",
        stdin=b"a:apple\nb:\xff\x00\na:p\xc3\xa4r",
    )
    assert said == f"3 records written to {topic}\n"
    records = terminal.lines(f"topic consume {topic}")
    by_key = sorted((one["key"], one.get("value", one.get("value_hex"))) for one in records)
    assert by_key == [("a", "apple"), ("a", "pär"), ("b", "ff00")]
    assert records[0]["headers"] == [{"name": "kind", "value": "fruit"}]
    plain = terminal.run(f"topic consume {topic}")
    assert "\ta\tapple\n" in plain
    assert "\\xff" in plain
    places = terminal.lines(f"topic produce {topic} --partition 2", stdin=b"x\ny\n")
    assert [one["partition"] for one in places] == [2, 2]
    assert places[1]["offset"] == places[0]["offset"] + 1
    count = terminal.lines(f"topic consume {topic} --partition 2 --count 1")
    assert len(count) == 1
    assert terminal.lines(f"topic consume {topic} --from end") == []


def test_a_group_reads_on_and_is_set_back(terminal: Terminal, topic: str) -> None:
    terminal.run(f"topic produce {topic} --partition 0", stdin=b"0\n1\n2\n3\n")
    first = terminal.lines(f"topic consume {topic} --group {topic} --count 3")
    second = terminal.lines(f"topic consume {topic} --group {topic}")
    assert [one["value"] for one in first + second] == ["0", "1", "2", "3"]
    (row,) = [one for one in terminal.json(f"group describe {topic}")["partitions"] if one["end"]]
    assert (row["committed"], row["end"], row["lag"]) == (4, 4, 0)
    assert f"{topic}/0" in terminal.run(f"group describe {topic}")
    assert topic in [one["group"] for one in terminal.json("group list")]
    seek = f"group seek {topic} --topic {topic}:0"
    for where, offset in [("1", 1), ("+2", 3), ("-2", 1), ("beginning", 0), ("end", 4), ("99", 4)]:
        planned = terminal.json(f"{seek} --to={where} --dry-run")
        moved = terminal.json(f"{seek} --to={where}")
        assert [one["to"] for one in planned + moved] == [offset, offset]
        assert [one["changed"] for one in planned + moved] == [False, True]
    assert terminal.json(f"{seek} --to=@0")[0]["to"] == 0
    assert terminal.json(f"{seek} --to=2999-01-01T00:00")[0]["to"] == 4
    assert "now" in terminal.run(f"{seek} --to 3")
    again = terminal.lines(f"topic consume {topic} --group {topic}")
    assert [one["value"] for one in again] == ["3"]
    assert "would be deleted" in terminal.run(f"group delete {topic} --dry-run")
    assert terminal.json(f"group delete {topic}")["deleted"]
    assert "GROUP_ID_NOT_FOUND" in terminal.run(f"group describe {topic}", fails=True)


def test_a_topic_made_anew_is_read_from_its_beginning(terminal: Terminal, topic: str) -> None:
    """Not from the group's position in the former topic of that name."""
    terminal.run(f"topic produce {topic} --partition 0", stdin=b"old\nold\n")
    assert len(terminal.lines(f"topic consume {topic} --group {topic}")) == 2
    terminal.run(f"topic delete {topic}")
    terminal.eventually(f"group describe {topic}", r"read by\n\Z")
    terminal.run(f"topic create {topic} --partitions 1")
    terminal.eventually("topic list", rf"\n{topic} ")
    terminal.run(f"topic produce {topic}", stdin=b"0\n1\n2\n")
    records = terminal.lines(f"topic consume {topic} --group {topic}")
    assert [one["value"] for one in records] == ["0", "1", "2"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_looked_at_and_left_alone(
    terminal: Terminal, cluster: SharedCluster, topic: str, protocol: str
) -> None:
    """Also one with broker-side assignment (KIP-848)."""
    config = {"bootstrap.servers": cluster.bootstrap, "group.id": topic, "group.protocol": protocol}
    reader = ConfluentConsumer({**config, "client.id": "somebody-with-a-rather-long-name"})
    reader.subscribe([topic])
    try:
        deadline = time.monotonic() + STEP_S
        while len(reader.assignment()) < 3:
            reader.poll(0.05)
            assert time.monotonic() < deadline
        told = terminal.json(f"group describe {topic}")
        assert (told["state"], len(told["members"])) == ("Stable", 1)
        assert told["members"][0]["client_id"] == "somebody-with-a-rather-long-name"
        assert {one["member"] for one in told["partitions"]} == {told["members"][0]["id"]}
        shown = terminal.run(f"group describe {topic}")
        assert "somebody-with-a-rath" in shown
        assert max(map(len, shown.splitlines())) <= 80
        assert {"group": topic, "state": "Stable", "type": protocol} in terminal.json("group list")
        for line in (f"group delete {topic}", f"group seek {topic} --to end"):
            for dry in ("", " --dry-run"):
                refused = terminal.run(line + dry, fails=True)
                assert f"group '{topic}' has 1 member; stop them first" in refused
    finally:
        reader.close()


def test_a_topic_is_changed(terminal: Terminal) -> None:
    """Settings, partitions, trimmed records, leaders, replicas; --dry-run changes nothing."""
    terminal.run("topic create cli-9 --partitions 1")
    terminal.run("topic produce cli-9", stdin=b"0\n1\n2\n3\n")
    change = "topic settings cli-9 retention.ms=5000000"
    assert not terminal.json(f"{change} --dry-run")["changed"]
    assert terminal.json("topic settings cli-9")["retention.ms"]["default"]
    assert terminal.json(change)["settings"]["retention.ms"]["now"] == "5000000"
    assert "set here" in terminal.run("topic settings cli-9")
    terminal.run("topic settings cli-9 --reset retention.ms")
    assert terminal.json("topic settings cli-9")["retention.ms"]["default"]
    (row,) = terminal.json("topic trim cli-9 --before=-3 --dry-run")["partitions"]
    assert (row["first_before"], row["first"], row["end"]) == (0, 1, 4)
    (row,) = terminal.json("topic trim cli-9 --before 2")["partitions"]
    assert row["first"] == 2
    assert [one["value"] for one in terminal.lines("topic consume cli-9")] == ["2", "3"]
    terminal.run("topic partitions cli-9 3")
    terminal.eventually("topic list", r"\ncli-9 +3 ")
    outcomes = terminal.json("topic elect cli-9")["partitions"]
    assert len(outcomes) == 3
    assert terminal.json("topic reassign cli-9 --partition 2")["partitions"][0]["adding"] == []
    refused = terminal.run("topic reassign cli-9 --to 1,2,77", fails=True)
    assert "was not reassigned" in refused


def test_where_reading_begins_and_how_records_look(terminal: Terminal, topic: str) -> None:
    produce = f"topic produce {topic} --partition 0 --key-separator :"
    terminal.run(produce, stdin=b"a:0\na:1\na:2\na:3\n")
    consume = f"topic consume {topic}"
    for where, values in [
        ("--from 2", "23"),
        ("--from=-1", "3"),
        ("--from 99", ""),
        ("--from @0", "0123"),
        ("--from 2999-01-01", ""),
        ("--last 2", "23"),
        ("--last 9", "0123"),
        ("--from 1 --count 2", "12"),
    ]:
        assert "".join(one["value"] for one in terminal.lines(f"{consume} {where}")) == values
    assert "cannot go to 'soon'" in terminal.run(f"{consume} --from soon", fails=True)


class Typed:
    """A command in a process of its own, as in a terminal or a pipe."""

    def __init__(self, cluster: SharedCluster, line: str) -> None:
        command = [sys.executable, "-m", "cli.main", *line.split()]
        self.process = subprocess.Popen(
            [*command, "--bootstrap", cluster.bootstrap],
            env={**os.environ, "PYTHONPATH": ROOT},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def ends(self) -> tuple[int, str]:
        """Its exit code, and its error output."""
        assert self.process.stderr is not None
        with self.process:
            complaint = self.process.stderr.read()
        return self.process.returncode, complaint


def test_a_reader_that_stops_reading_is_no_error_to_tell(
    terminal: Terminal, cluster: SharedCluster, topic: str
) -> None:
    """`evenkeel topic consume | head -1`"""
    terminal.run(f"topic produce {topic}", stdin=b"a record of some length\n" * 20_000)
    typed = Typed(cluster, f"topic consume {topic}")
    assert typed.line().endswith("a record of some length\n")
    assert typed.process.stdout is not None
    typed.process.stdout.close()
    assert typed.ends() == (1, "")


def test_ctrl_c_leaves_the_group_in_good_order(
    terminal: Terminal, cluster: SharedCluster, topic: str
) -> None:
    terminal.run(f"topic produce {topic} --partition 1", stdin=b"0\n1\n")
    typed = Typed(cluster, f"topic consume {topic} --group {topic} --follow")
    assert [typed.line(), typed.line()] == ["1/0\t0\n", "1/1\t1\n"]
    typed.process.send_signal(signal.SIGINT)
    assert typed.ends() == (130, f"in the cluster at {cluster.bootstrap}\n")
    told = terminal.json(f"group describe {topic}")
    assert (told["state"], told["members"]) == ("Empty", [])
    assert [one["committed"] for one in told["partitions"] if one["partition"] == 1] == [2]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("topic create x --set nonsense", "setting 'nonsense': write name=value"),
        ("topic consume T --partition 7", "has no partition 7"),
        ("topic consume T --partition 1 --group g", "cannot choose its partitions"),
        ("topic produce T --partition 7", "has no partition 7"),
        ("topic produce nothing", "there is no topic 'nothing'; see: evenkeel topic list"),
        ("topic produce T --key-separator :", "line 1 has no key: ':' is not in it"),
        ("group seek nobody --to end", "has committed nothing; name the topics with --topic"),
        ("group seek nobody --to end --topic T:9", "has no partition 9"),
        ("group seek nobody --to=-3 --topic T:1", "has no committed offset that -3 could refer to"),
        ("group seek nobody --to=soon --topic T", "cannot go to 'soon': expected beginning"),
        ("group delete nobody", "GROUP_ID_NOT_FOUND"),
        ("group delete nobody --dry-run", "GROUP_ID_NOT_FOUND"),
    ],
)
def test_what_makes_no_sense(terminal: Terminal, topic: str, line: str, complaint: str) -> None:
    words = [topic + word[1:] if word[0] == "T" else word for word in line.split()]
    assert complaint in terminal.run(" ".join(words), stdin=b"no key\n", fails=True)


def test_nobody_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert cli.run(["topic", "list"]) == 1
    assert "no cluster here; start one with: evenkeel up" in capsys.readouterr().err
    assert cli.run(["topic", "list", "--bootstrap", "no address:x"]) == 1
    assert "'no address:x' is not an address (write host:port,host:port)" in capsys.readouterr().err
    unused = socket.create_server(("127.0.0.1", 0))
    port = unused.getsockname()[1]
    unused.close()
    for line in ("topic list", "topic produce t", "topic consume t", "group describe g"):
        words = [*line.split(), "--bootstrap", f"127.0.0.1:{port}", "--timeout", "0.2"]
        assert cli.run(words) == 1
        told = capsys.readouterr().err
        assert "no broker can be reached" in told
        assert told.count("\n") == 1
