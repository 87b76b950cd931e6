"""An operator's input: the configuration file, the environment, flags, HTTP requests."""

import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final, cast

import attrs
import trio
from prometheus_client import CollectorRegistry

from paxos.ids import NodeId
from runtime.admin.balancer import BalancerAdmin
from runtime.admin.inspection import Admin
from runtime.config.config import SECTIONS, Config, ConfigError, load
from runtime.http.server import HttpServer
from tests.fuzz.engine import Target
from tests.fuzz.mutate import INPUT_BYTES_MAX, Sample, havoc
from tests.runtime.offices import Cluster, Office

MINIMAL: Final = """\
[node]
id = 1
cluster_id = "fuzz"
data_dir = "data/fuzz"
[peers]
1 = "127.0.0.1:7001"
2 = "127.0.0.1:7002"
"""
_KEYS: Final = [
    f"{section}.{field.name}" for section, cls in SECTIONS.items() for field in attrs.fields(cls)
] + ["peers.1", "peers.2", "peers.3", "peers.x", "lease.duration", "nothing.at_all"]
_VALUES: Final = (
    "0", "1", "-1", "true", "false", "nan", "inf", "-0", "1e9", "9" * 30, "9" * 5_000, "1_000",
    "0x" + "f" * 5_000, "0b1", "3000", "67108864", "1979-05-27", "07:32:00", "[]", "[[]]", "{}",
    '""', '"x"', '"127.0.0.1:9092"', '"[::1]:9092"', '"[[::1]]:1"', '"0.0.0.0:1"', '":1"',
    '"~"', '"~nobody/x"', '"./~x"', '"\\u0000"', '"/"', '"fsync"', '"unsafe-none"', '"debug"',
    '"2:3"', '"a:b:1"', "[" * 500, "[" * 20_000, "{a=" * 2_000, '"""', "'", "#", "\\", '"\\ud800"',
    "\u00b2", "\u0663",
)  # fmt: skip


def _check(config: Config) -> None:
    """A configuration that was read is printed so that reading it again gives the same."""
    again = load(_file(config.describe().encode()), {})
    assert again == config, "describe() is not what was loaded"


class _MemoryFile:
    """As much of a Path as the loader uses."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def open(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)

    def __str__(self) -> str:
        return "fuzz.toml"


def _file(data: bytes) -> Path:
    return cast(Path, _MemoryFile(data))


def _problems(error: ConfigError) -> set[str]:
    assert error.problems
    assert all(problem.strip() for problem in error.problems)
    return {_gist(problem) for problem in error.problems}


def _gist(text: str) -> str:
    """The first words after the name of the place; names vary without end."""
    said = text.rpartition(": ")[2] or text
    return " ".join(word for word in said.split() if word.isalpha())[:24]


class ConfigFile(Target):
    """A configuration file of any bytes.

    More time than others: its reader tells every problem at once, and thousands of unknown keys are
    compared with all known ones. The file is the operator's own, and read once.
    """

    name: ClassVar = "config-file"
    cpu_ms_max: ClassVar = 1_000

    def samples(self, dice: Random) -> Iterator[Sample]:
        yield Sample(MINIMAL.encode())
        described = load(_file(MINIMAL.encode()), {}).describe().encode()
        yield Sample(described)
        for section in SECTIONS:
            yield Sample(f"{MINIMAL}[{section}]\n".encode())

    def mutate(self, sample: Sample, dice: Random, pool: Sequence[Sample]) -> bytes:
        """Settings are replaced, added, sections renamed; or any bytes anywhere."""
        if dice.random() < 0.4:
            return havoc(sample.data, dice, pool)
        lines = sample.data.decode("utf-8", "replace").splitlines() or [""]
        for _ in range(dice.choice((1, 1, 2, 3))):
            section, _, key = dice.choice(_KEYS).partition(".")
            setting = f"{key} = {dice.choice(_VALUES)}"
            at = dice.randrange(len(lines))
            if dice.random() < 0.3:
                lines += [f"[{section}]", setting]
            elif dice.random() < 0.7 and "=" in lines[at]:
                lines[at] = f"{lines[at].partition('=')[0]}= {dice.choice(_VALUES)}"
            else:
                lines.insert(at, setting)
        return "\n".join(lines).encode("utf-8", "replace")[:INPUT_BYTES_MAX]

    def run(self, data: bytes) -> Iterable[str]:
        try:
            config = load(_file(data), {})
        except ConfigError as error:
            return _problems(error)
        _check(config)
        return ("loaded",)


class ConfigEnvironment(Target):
    """NAME=value lines of an environment, and `--set` lines; bytes as the system passes them."""

    name: ClassVar = "config-environment"
    cpu_ms_max: ClassVar = 1_000

    def samples(self, dice: Random) -> Iterator[Sample]:
        yield Sample(b"EVENKEEL_LEASE__DURATION_MS=5000\nPATH=/bin\n--set lease.duration_ms=4000")
        yield Sample(b"EVENKEEL_NODE__DATA_DIR=x\nEVENKEEL_PEERS__3=127.0.0.1:7003")
        yield Sample(b"EVENKEEL_LISTEN__KAFKA=[::1]:9092\n--set balancer.enabled=false")

    def mutate(self, sample: Sample, dice: Random, pool: Sequence[Sample]) -> bytes:
        if dice.random() < 0.4:
            return havoc(sample.data, dice, pool)
        lines = sample.data.split(b"\n")
        key, value = dice.choice(_KEYS), dice.choice(_VALUES).strip('"')
        name = "EVENKEEL_" + key.upper().replace(".", "__")
        line = f"{name}={value}" if dice.random() < 0.7 else f"--set {key}={value}"
        lines.insert(dice.randrange(len(lines) + 1), line.encode())
        return b"\n".join(lines)[:INPUT_BYTES_MAX]

    def run(self, data: bytes) -> Iterable[str]:
        env, overrides = {}, []
        for line in data.decode("utf-8", "surrogateescape").split("\n"):
            name, equals, value = line.partition("=")
            if line.startswith("--set "):
                overrides.append(line.removeprefix("--set "))
            elif equals and "\0" not in line:
                env[name] = value
        try:
            config = load(_file(MINIMAL.encode()), env, overrides)
        except ConfigError as error:
            return _problems(error)
        _check(config)
        return ("loaded",)


# -- HTTP -----------------------------------------------------------------------------------------


class _Stream:
    """A connection that has sent everything at once, and then its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.sent = b""

    async def receive_some(self, most: int) -> bytes:
        piece, self._data = self._data[:most], self._data[most:]
        return piece

    async def send_all(self, data: bytes) -> None:
        self.sent += data

    async def aclose(self) -> None:
        self._data = b""


class Http(Target):
    """A connection to the administration port: whatever it sends, it is answered or dropped, and
    nothing else happens.

    The routes are the real ones, on the registry's master among three nodes in simulated time.
    """

    name: ClassVar = "http-admin"

    def __init__(self) -> None:
        self._cluster: Cluster | None = None

    def _office(self) -> tuple[Cluster, Office]:
        """Made when first needed, and kept: later inputs find the changes of earlier ones."""
        if self._cluster is None:
            self._cluster = cluster = Cluster()
            cluster.until(cluster.is_placed)
            for office in cluster.offices.values():
                office.loop.machine = None  # masters stay where they are
        return self._cluster, self._cluster[self._cluster.masters()[0] or 1]

    def samples(self, dice: Random) -> Iterator[Sample]:
        for path in ("/metrics", "/livez", "/readyz", "/status?x=1", "/balancer", "/none"):
            yield Sample(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        for path, body in (
            ("/admin/placement", {"all_on": 1}),
            ("/admin/placement", {"even": True, "expected_version": 3}),
            ("/admin/placement", {"placement": {"1": 2}}),
            ("/admin/balancer", {"paused": True, "group": 1}),
            ("/admin/balancer", {"paused": False}),
            ("/admin/plan", {"dry_run": True, "without": [2]}),
            ("/admin/plan", {"dry_run": False}),
            ("/admin/move", {"group": 1, "node": 2}),
            ("/admin/drain", {"node": 2, "draining": False}),
            ("/admin/cancel", {"token": 1}),
            ("/admin/policy", {"evenness": "weight", "capacities": {"2": 50}}),
            ("/admin/policy", {"preferred_zones": ["a"], "topic_excess_max": None}),
            ("/admin/weights", {"source": "s", "computed_wall_ms": 5, "weights": {"1": 900}}),
        ):
            yield Sample(_post(path, json.dumps(body)))

    def mutate(self, sample: Sample, dice: Random, pool: Sequence[Sample]) -> bytes:
        """Values in the body are replaced, with the right length; or any bytes anywhere."""
        head, _, body = sample.data.partition(b"\r\n\r\n")
        if not head.startswith(b"POST /admin/") or dice.random() < 0.4:
            return havoc(sample.data, dice, pool)
        path = head.split(b" ")[1].decode("ascii", "replace")
        values = ("1", "-1", "true", "null", "1.5", "1e999", "9" * 30, "9" * 5_000, "[]", "{}",
                  '"1"', '"\u00b2"', '"\\ud800"', "[" * 30_000, "NaN", "4294967296")  # fmt: skip
        keys = ("all_on", "even", "placement", "paused", "group", "expected_version", "node",
                "dry_run", "without", "draining", "token", "evenness", "capacities", "weights",
                "source", "computed_wall_ms", "steals_max", "preferred_zones")  # fmt: skip
        text = body.decode("utf-8", "replace")
        if dice.random() < 0.5:
            text = havoc(body, dice, ()).decode("utf-8", "replace")
        elif dice.random() < 0.5:
            inner = ",".join(f'"{dice.choice(keys)}": {dice.choice(values)}' for _ in range(3))
            text = "{" + inner + "}"
        else:
            key = dice.choice(
                ("0", "1", "2", "9", "-1", "\u00b2", "\u0661", "9" * 5_000, " 1", "x")
            )
            text = json.dumps({"placement": {key: dice.choice((1, 2, 3, True, 1.0, None, "1"))}})
        return _post(path, text)[:INPUT_BYTES_MAX]

    def run(self, data: bytes) -> Iterable[str]:
        cluster, office = self._office()
        admin = Admin(
            CollectorRegistry(),
            status=lambda: {"nodes": len(office.registry.nodes)},
            not_ready=lambda: "",
        )
        balancer = BalancerAdmin(
            office.client,
            office.loop,
            office.planner,
            now=office.member.engine.now,
            wake=cluster.net.settle,
        )
        bugs: list[Exception] = []
        routes = {**admin.routes(), **balancer.routes()}
        server = HttpServer(routes, lambda _what, error: bugs.append(error))
        stream = _Stream(data)
        trio.run(server.handle, cast(Any, stream))
        if bugs:
            raise bugs[0]
        assert NodeId(1) in office.registry.nodes
        line = stream.sent.partition(b"\r\n")[0].decode("ascii")
        body = stream.sent.partition(b"\r\n\r\n")[2].decode("utf-8", "replace")
        words = [word for word in re.split(r"\W+", body) if word.islower()]
        return (f"{line} {' '.join(words[:4])}" if " 400 " in line else line,)


def _post(path: str, body: str) -> bytes:
    data = body.encode("utf-8", "replace")
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def config_targets() -> list[Target]:
    return [ConfigFile(), ConfigEnvironment(), Http()]
