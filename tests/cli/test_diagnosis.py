"""`evenkeel health`, `doctor` and `debug bundle`: verdicts, cures, and nothing that is secret."""

import json
import socket
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from cli import main as cli
from cli.clusters import reach
from cli.diagnosis import bundle, doctor
from cli.diagnosis.doctor import Examination
from cli.diagnosis.health import CODES, judge
from cluster.status import NodeRow
from runtime.config.fields import Address
from tests.cluster.launcher.test_status import answer, group, row, view


def all_well(node: int, **more: Any) -> NodeRow:
    groups = [group(number, 1) for number in (0, 1, 2)]
    return row(node, answer(node, groups, **more))


def down(node: int, state: str) -> NodeRow:
    return NodeRow(spec=row(node, None).spec, state=state, pid=1, status=None, silence=state)


MASTERLESS = [group(number, 3) for number in (0, 1, 2)]


@pytest.mark.parametrize(
    ("rows", "waiting", "word", "problem"),
    [
        ([all_well(1), all_well(2), all_well(3)], {}, "healthy", ""),
        ([all_well(1), all_well(2), down(3, "killed")], {}, "degraded", "node 3 is killed"),
        ([all_well(1), all_well(2), row(3, None)], {}, "degraded", "node 3 is silent"),
        (
            [all_well(1), all_well(2), all_well(3)],
            {3: "reads its log"},
            "degraded",
            "reads its log",
        ),
        (
            [all_well(1), all_well(2, clock_trusted=False, clock_complaint="5 s off"), all_well(3)],
            {},
            "degraded",
            "5 s off",
        ),
        (
            [row(1, answer(1, MASTERLESS)), row(2, answer(2, MASTERLESS)), down(3, "killed")],
            {},
            "failing",
            "is the master of Paxos group 0, 1, 2",
        ),
        ([all_well(1), row(2, None), row(3, None)], {}, "unknown", "no majority answers"),
        ([all_well(1), down(2, "killed"), down(3, "exited")], {}, "failing", "node 2 is killed"),
    ],
)
def test_the_verdicts(
    rows: list[NodeRow], waiting: dict[int, str], word: str, problem: str
) -> None:
    found = judge(view(*rows), waiting)
    assert found.word == word
    assert problem in "; ".join(found.problems)
    assert bool(found.problems) == (word != "healthy")


def test_every_verdict_has_an_exit_code_of_its_own() -> None:
    assert CODES == {"healthy": 0, "failing": 1, "unknown": 3, "degraded": 4}


def test_the_nodes_own_complaints_have_cures() -> None:
    lease = {"ours": {}, "differing": {"2": "duration_ms is 9000"}}
    found = Examination()
    seen = view(
        all_well(1, lease_settings=lease),
        all_well(2, durability="unsafe-none", version="0.0.9"),
        all_well(3, clock_trusted=False),
    )
    doctor.as_nodes_see_it(
        found,
        reach.ClusterSpec(data_dir=Path("d"), cluster_id="c", groups=2, nodes=(), founders=()),
        None,
        seen,
    )
    told = doctor.lines(found.findings)
    for words in (
        "nodes 1 and 2 have different [lease] settings: duration_ms is 9000",
        "node 2: UNSAFE",
        "nodes run different versions: 0.0.9, 0.1.0",
        "node 3 does not trust its clock",
    ):
        assert words in told
    assert all(one.cure for one in found.findings)


def unused() -> int:
    with socket.create_server(("127.0.0.1", 0)) as port:
        return int(port.getsockname()[1])


@contextmanager
def babbling() -> Iterator[int]:
    """A port where something else than Kafka answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with client:
                    client.sendall(b"220 mail.example.com ready\r\n" * 8)

        Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


Doctor = Callable[[str], tuple[int, Any]]


@pytest.fixture
def asked(capsys: pytest.CaptureFixture[str]) -> Doctor:
    def run(bootstrap: str) -> tuple[int, Any]:
        words = ["doctor", "--json", "--timeout", "1", "--bootstrap", bootstrap]
        code = cli.run(words)
        return code, json.loads(capsys.readouterr().out)

    return run


def test_as_a_client_each_step_is_named(asked: Doctor) -> None:
    """DNS, then TCP, then Kafka's protocol."""
    code, told = asked(f"no-such-host.invalid:9092,127.0.0.1:{unused()}")
    dns, tcp = told["problems"]
    assert code == 1
    assert "the name cannot be resolved" in dns["problem"]
    assert "add no-such-host.invalid to DNS" in dns["cure"]
    assert "no connection (connection refused)" in tcp["problem"]
    assert "start the node" in tcp["cure"]
    with babbling() as port:
        code, told = asked(f"127.0.0.1:{port}")
    assert code == 1
    assert "does not answer as Kafka does" in told["problems"][0]["problem"]
    assert "listen.kafka" in told["problems"][0]["cure"]
    assert f"bootstrap 127.0.0.1:{port} takes connections" in told["right"]


@contextmanager
def saying(body: bytes) -> Iterator[str]:
    """Another service's HTTP port, which has this to say to whatever it is asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:  # type: ignore[override]  # its own is positional
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"null",
        b"{}",
        b'{"version": 3}',
        b"<html>",
        b'{"node": 1, "cluster_id": "c", "kafka": "a:1", "groups_count": 1, "nodes": [7]}',
    ],
)
@pytest.mark.parametrize("line", ["status", "health", "doctor", "data usage", "balance pause"])
def test_another_services_port_is_no_node(
    body: bytes, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was believed that it had paused the balancer, and elsewhere it was a traceback."""
    with saying(body) as address:
        code = cli.run([*line.split(), "--http", address])
    printed = capsys.readouterr()
    told = " ".join((printed.out + printed.err).split())
    assert code in (1, 3)
    assert "no Evenkeel node" in told or "not JSON" in told


def test_hung_nodes_share_the_time_that_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    with ExitStack() as stack:
        ports = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            for _ in range(4)
        ]
        addresses = ",".join(f"127.0.0.1:{port}" for port in ports)
        since = time.monotonic()
        assert cli.run(["status", "--timeout", "1", "--http", addresses]) == 1
        assert time.monotonic() - since < 2.5, "not a second for each"
    assert capsys.readouterr().err.count("no answer in time") == 4


def test_every_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients try them in an order of their own: one that is silent makes them wait."""
    with socket.create_server(("127.0.0.1", 0)) as good:
        port = good.getsockname()[1]
        rows = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))
            for host in ("127.0.0.9", "127.0.0.8", "127.0.0.1")
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: rows)
        connect = socket.socket.connect

        def connects(probe: socket.socket, place: Any) -> None:
            if place[0] == "127.0.0.9":
                raise TimeoutError
            connect(probe, place)

        monkeypatch.setattr(socket.socket, "connect", connects)
        found = doctor.Examination()
        assert doctor._connects(found, Address("kafka.example", port), "bootstrap", 1.0)
    name = f"bootstrap kafka.example:{port}"
    assert found.right == [f"{name} takes connections (not 127.0.0.8: connection refused)"]
    [finding] = found.findings
    assert finding.problem == f"{name}: the name also means 127.0.0.9, which does not answer"
    assert "DNS" in finding.cure


def test_secrets_are_blanked_out_and_nothing_else() -> None:
    settings = b'[node]\nid = 1\ntls.key_password = "hunter2"\n# the password is elsewhere\n'
    assert bundle.blanked(settings) == (
        b"[node]\nid = 1\ntls.key_password = (blanked)\n# the password is elsewhere\n"
    )
    line = b'{"event": "login", "sasl_password": "hun\\"ter2", "pin_secret": 7, "user": "u"}'
    assert json.loads(bundle.blanked(line)) == {
        "event": "login",
        "sasl_password": "(blanked)",
        "pin_secret": "(blanked)",
        "user": "u",
    }
    plain = b'{"groups": [1, 2], "token": null}\n'
    assert bundle.blanked(plain) == plain


def test_a_bundle_of_nobody_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.tar.gz").touch()
    line = ["debug", "bundle", "--http", f"127.0.0.1:{unused()}", "--timeout", "1", "--to"]
    assert cli.run([*line, "there.tar.gz"]) == 1
    assert "exists already" in capsys.readouterr().err
    assert cli.run([*line, "new.tar.gz"]) == 1
    assert "does not answer: connection refused" in capsys.readouterr().err
    assert not (tmp_path / "new.tar.gz").exists()
    assert not tarfile.is_tarfile("there.tar.gz")
