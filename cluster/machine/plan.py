"""A machine's file as a value, and the node configurations that follow from it.

A machine is a zone: all its nodes have its name as their zone, so no two replicas of a Paxos group
are on it while there are machines enough. Its file has the sections of a node's configuration,
which hold for each of its nodes, and two of its own:

    [machine]     name, data_dir; processes and pin if they are not to be the usual
    [machines]    every machine of the cluster: where its first node's peers connect, and its nodes

All else follows: the machine's nth node (from 0) has the nth number in its list, listens n ports
above those of [listen] and of the [[listeners]], and keeps its data in `node-NUMBER` below
`data_dir`. A file for the audit log gets the node's number into its name.
"""

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from cluster import access
from runtime.config.config import (
    CONFIG_FILE_BYTES_MAX,
    LISTENERS,
    SECTIONS,
    Config,
    ConfigError,
    load,
)
from runtime.config.contradictions import mistaken_machine
from runtime.config.fields import NAME_LENGTH_MAX, Address, parse_address, show
from runtime.config.listeners import ListenerSettings, as_toml, kafka_address, take
from runtime.config.sections import NODE_ID_MAX

CORES: Final = "cores"
"""`machine.processes`: as many as the machine has cores to give."""
OF_THE_MACHINE: Final[Mapping[str, str]] = {
    "node.id": "machines.NAME.nodes",
    "node.data_dir": "machine.data_dir",
    "node.zone": "machine.name",
    "node.processes": "machine.processes",
}
"""Settings of a node that follow from the machine's; and what to set instead."""
PER_NODE: Final = ("listen.", "peers.")
"""Settings that differ between the nodes of a machine: not for the environment."""
KEYS: Final = ("name", "data_dir", "processes", "pin")
WRITE: Final = 'write a = { peer = "10.0.0.1:7092", nodes = [1, 4] }'


@attrs.frozen(kw_only=True)
class MachineNode:
    """One node process."""

    id: int
    kafka: Address
    advertised: Address | None
    peer: Address
    http: Address
    data_dir: Path
    listeners: tuple[ListenerSettings, ...] = ()
    """Where there are none, `kafka` is the only one."""

    @property
    def ports(self) -> dict[str, Address]:
        """All that it listens on, by the settings that say so."""
        own = {"listen.peer": self.peer, "listen.http": self.http}
        if not self.listeners:
            return {"listen.kafka": self.kafka, **own}
        return {**{f"[[listeners]] {one.name}": one.bind for one in self.listeners}, **own}

    @property
    def has_data(self) -> bool:
        return self.data_dir.is_dir() and any(self.data_dir.iterdir())


@attrs.frozen(kw_only=True)
class Place:
    """A machine of the cluster: where its first node's peers connect, and its nodes' numbers."""

    peer: Address
    nodes: tuple[int, ...]

    def peers(self) -> dict[int, Address]:
        return {node: _above(self.peer, at) for at, node in enumerate(self.nodes)}


@attrs.frozen(kw_only=True)
class MachinePlan:
    name: str
    data_dir: Path
    processes: int | str | None
    """How many of its nodes run; CORES; None: all of them."""
    pin: bool
    places: Mapping[str, Place]
    sections: Mapping[str, Mapping[str, object]]
    """What the file says about every node."""
    listen: Mapping[str, Address]
    file: Path
    listeners: tuple[ListenerSettings, ...] = ()
    """Those of the first node."""

    @property
    def nodes(self) -> tuple[MachineNode, ...]:
        """All that the file names, in the order of their ports, whether they run or not."""
        own = self.places[self.name]
        told = self.listen.get("advertised_kafka")
        kafka = self.listen["kafka"]
        if self.listeners:
            told, kafka = kafka_address(self.listeners), self.listeners[0].bind
        return tuple(
            MachineNode(
                id=node,
                kafka=_above(kafka, at),
                advertised=None if told is None else _above(told, at),
                peer=_above(self.listen["peer"], at),
                http=_above(self.listen["http"], at),
                data_dir=self.data_dir / f"node-{node}",
                listeners=tuple(_listener_above(one, at) for one in self.listeners),
            )
            for at, node in enumerate(own.nodes)
        )

    def running(self, cores: int) -> tuple[MachineNode, ...]:
        """The nodes to run on a machine that gives so many cores.

        Raises:
            ConfigError: data of the machine would be left out.
        """
        nodes = self.nodes
        if self.processes == CORES:
            with_data = max((at for at, one in enumerate(nodes, 1) if one.has_data), default=0)
            chosen = nodes[: max(with_data, min(cores, len(nodes)))]
        else:
            chosen = nodes if self.processes is None else nodes[: int(self.processes)]
        self._refuse_loss(chosen)
        return chosen

    def config_path(self, node: MachineNode) -> Path:
        return self.data_dir / f"node-{node.id}.toml"

    def text(self, node: MachineNode, processes: int) -> str:
        """The configuration of one node, as `evenkeel node start` takes it."""
        sections: dict[str, dict[str, object]] = {
            "node": {
                "id": node.id,
                **self.sections.get("node", {}),
                "data_dir": str(node.data_dir),
                "zone": self.name,
                "processes": processes,
            },
            "listen": {"peer": node.peer, "http": node.http},
        }
        if not node.listeners:
            sections["listen"]["kafka"] = node.kafka
            if node.advertised is not None:
                sections["listen"]["advertised_kafka"] = node.advertised
        for name, values in self.sections.items():
            if name not in ("node", "listen"):
                sections[name] = dict(values)
        audit_log = sections.get("security", {}).get("audit_log")
        if isinstance(audit_log, str) and audit_log:  # two processes must not replace one file
            path = Path(audit_log)
            own_log = path.with_name(f"{path.stem}-{node.id}{path.suffix}")
            sections["security"]["audit_log"] = str(own_log)
        peers = {
            node: address for one in self.places.values() for node, address in one.peers().items()
        }
        sections["peers"] = {str(peer): address for peer, address in sorted(peers.items())}
        lines = [
            f"# Node {node.id} of machine {self.name}; it follows from {self.file}:",
            "# evenkeel machine start writes it anew at every start.",
        ]
        for name, settings in sections.items():
            lines.append(f"[{name}]")
            lines += [f"{key} = {_toml(value)}" for key, value in settings.items()]
        lines += as_toml(node.listeners)
        return "\n".join(lines) + "\n"

    def write(
        self, nodes: Sequence[MachineNode], env: Mapping[str, str], folder: Path
    ) -> list[Config]:
        """Write the nodes' files, as far as each node would take its own.

        Raises:
            ConfigError: with all problems.
        """
        problems: dict[str, None] = {}
        found = []
        folder.mkdir(parents=True, exist_ok=True)
        for node in nodes:
            path = folder / f"node-{node.id}.toml"
            draft = path.with_suffix(".toml.new")
            draft.write_text(self.text(node, len(nodes)), encoding="utf-8")
            try:
                found.append(load(draft, env))
                draft.replace(path)
            except ConfigError as error:
                draft.unlink()
                problems |= {text.replace(f"{draft}: ", ""): None for text in error.problems}
        if problems:
            raise ConfigError([f"{self.file}: {problem}" for problem in problems])
        mistake = mistaken_machine(found[0].node.id, found[0].peers) if found else ""
        if mistake:
            raise ConfigError([f"machine.name = {show(self.name)}: {mistake}"])
        return found

    def _refuse_loss(self, chosen: Sequence[MachineNode]) -> None:
        """A directory with data whose node does not run: copies are missing without a word."""
        known = {one.data_dir for one in chosen}
        problems = []
        for path in sorted(self.data_dir.glob("node-*/")):
            number = path.name.removeprefix("node-")
            if not number.isdecimal() or path in known or not any(path.iterdir()):
                continue
            named = int(number) in self.places[self.name].nodes
            cure = (
                f"raise machine.processes ({show(self.processes)})"
                if named
                else f"put {number} back into machines.{self.name}.nodes"
            )
            problems.append(
                f"node {number} has data in {path}, and would not run: its copies would be "
                f"missing. {cure[0].upper()}{cure[1:]}; or remove the node while it runs "
                f"(evenkeel node remove {number}), and then its directory"
            )
        if problems:
            raise ConfigError(problems)


def read(path: Path, env: Mapping[str, str] = os.environ) -> MachinePlan:
    """Read a machine's file.

    Raises:
        ConfigError: with all problems.
    """
    try:
        with path.open("rb") as file:
            data = file.read(CONFIG_FILE_BYTES_MAX + 1)
        if len(data) > CONFIG_FILE_BYTES_MAX:
            raise ConfigError([f"{path}: larger than {CONFIG_FILE_BYTES_MAX} bytes"])
        tables = tomllib.loads(data.decode())
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from error
    except ConfigError:
        raise
    except (ValueError, RecursionError) as error:
        raise ConfigError([f"{path}: not TOML: {error}"]) from error
    reader = _Reader(path, tables)
    plan = reader.plan()
    reader.check_env(env)
    if plan is None or reader.problems:
        raise ConfigError(reader.problems)
    for node in plan.nodes:
        access.local_node(node.http, node.data_dir)
    return plan


class _Reader:
    """Collects all problems, so that one run shows every one."""

    def __init__(self, path: Path, tables: Mapping[str, Any]) -> None:
        self._path, self._tables = path, tables
        self.problems: list[str] = []

    def plan(self) -> MachinePlan | None:
        machine = self._table("machine")
        known = {"machine", "machines", *SECTIONS}
        for section, table in self._tables.items():
            if section == LISTENERS:
                continue
            if section not in known or not isinstance(table, dict):
                expected = f"expected the sections {', '.join(sorted(known))}"
                follows = "unknown; [peers] follows from [machines]"
                self._wrong(section, follows if section == "peers" else expected)
        for key in machine:
            if key not in KEYS:
                self._wrong(f"machine.{key}", f"unknown; known are {', '.join(KEYS)}")
        places = self._places()
        name = machine.get("name")
        if name not in places:
            names = ", ".join(places)
            self._wrong(f"machine.name = {show(name)}", f"not in [machines] ({names})")
        directory = machine.get("data_dir")
        if not isinstance(directory, str) or not directory:
            self._wrong("machine.data_dir", "expected the path of a directory")
        pin = machine.get("pin", False)
        if not isinstance(pin, bool):
            self._wrong(f"machine.pin = {show(pin)}", "expected true or false")
        listen = self._listen()
        listeners = self._listeners()
        sections = self._sections()
        if self.problems:
            return None
        processes = self._processes(machine.get("processes"), places[str(name)])
        plan = MachinePlan(
            name=str(name),
            data_dir=Path(str(directory)).expanduser().absolute(),
            processes=processes,
            pin=pin,
            places=places,
            sections=sections,
            listen=listen,
            listeners=listeners,
            file=self._path,
        )
        if not self.problems:
            self._check_ports(plan)
        return plan

    def check_env(self, env: Mapping[str, str]) -> None:
        for variable in sorted(env):
            section, separator, key = variable.removeprefix("EVENKEEL_").lower().partition("__")
            dotted = f"{section}.{key}"
            if not variable.startswith("EVENKEEL_") or not separator:
                continue
            if dotted in OF_THE_MACHINE or dotted.startswith(PER_NODE):
                self._wrong(
                    f"environment variable {variable}",
                    f"it would be the same for all nodes of the machine; set it in {self._path}",
                )

    def _places(self) -> dict[str, Place]:
        places: dict[str, Place] = {}
        owner: dict[int, str] = {}
        for name, raw in self._table("machines").items():
            where = f"machines.{name}"
            plain = all(char.isascii() and (char.isalnum() or char in "._-") for char in name)
            if not plain or not 0 < len(name) <= NAME_LENGTH_MAX:
                self._wrong(where, "a name has letters, digits, '.', '_' or '-'")
            nodes = raw.get("nodes") if isinstance(raw, dict) else None
            if not isinstance(nodes, list) or set(raw) != {"peer", "nodes"} or not nodes:
                self._wrong(where, WRITE)
                continue
            try:
                peer = parse_address(raw["peer"])
            except ValueError as error:
                self._wrong(f"{where}.peer", str(error))
                continue
            for node in nodes:
                if (
                    isinstance(node, bool)
                    or not isinstance(node, int)
                    or not 0 < node <= NODE_ID_MAX
                ):
                    self._wrong(f"{where}.nodes", f"{show(node)} is no node's number")
                elif node in owner:
                    self._wrong(f"{where}.nodes", f"node {node} is also of machine {owner[node]}")
                else:
                    owner[node] = name
            if peer.port + len(nodes) - 1 > 65_535:
                self._wrong(
                    f"{where}.peer", f"{len(nodes)} ports from {peer.port} on end above 65535"
                )
            places[name] = Place(peer=peer, nodes=tuple(nodes))
        return places

    def _listen(self) -> dict[str, Address]:
        table = self._table("listen")
        fields = {field.name: field for field in attrs.fields(SECTIONS["listen"])}
        listen = {
            name: field.default
            for name, field in fields.items()
            if isinstance(field.default, Address)
        }
        for key, raw in table.items():
            if key not in fields:
                self._wrong(f"listen.{key}", f"unknown; known are {', '.join(fields)}")
                continue
            try:
                listen[key] = parse_address(raw)
            except ValueError as error:
                self._wrong(f"listen.{key} = {show(raw)}", str(error))
        return listen

    def _listeners(self) -> tuple[ListenerSettings, ...]:
        """Whether they contradict each other is checked when the nodes' files are."""
        tables = self._tables.get(LISTENERS, [])
        if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
            self._wrong(LISTENERS, "they are tables, [[listeners]], one for each")
            return ()
        found = []
        for table in tables:
            try:
                found.append(take(table, str(self._path)))
            except ConfigError as error:
                self.problems += error.problems
        for key in ("kafka", "advertised_kafka") if found else ():
            if key in self._table("listen"):
                why = "it is the short form of one listener, and there are [[listeners]]"
                self._wrong(f"listen.{key}", f"{why}; write it as one of them")
        return tuple(found)

    def _sections(self) -> dict[str, dict[str, object]]:
        """What every node of the machine is told; checked when the nodes' files are."""
        found: dict[str, dict[str, object]] = {}
        for name in SECTIONS:
            if name == "listen":
                continue
            for key, value in self._table(name).items():
                instead = OF_THE_MACHINE.get(f"{name}.{key}")
                if instead is not None:
                    self._wrong(f"{name}.{key}", f"it differs between nodes; set {instead}")
                elif not isinstance(value, bool | int | float | str | list):
                    self._wrong(f"{name}.{key}", "expected a plain value")
                else:
                    found.setdefault(name, {})[key] = value
        return found

    def _processes(self, raw: object, place: Place) -> int | str | None:
        most = len(place.nodes)
        if raw is None or raw == CORES:
            return CORES if raw else None
        if isinstance(raw, bool) or not isinstance(raw, int) or raw < 1:
            self._wrong(f"machine.processes = {show(raw)}", f'expected 1 to {most}, or "{CORES}"')
        elif raw > most:
            self._wrong(
                f"machine.processes = {raw}",
                f"machines.{self._tables['machine']['name']}.nodes names {most}; to add one, admit "
                "it (evenkeel node add N --peer HOST:PORT --zone MACHINE), and write its number "
                "there, in the files of all machines",
            )
        else:
            return raw
        return None

    def _check_ports(self, plan: MachinePlan) -> None:
        taken: dict[int, str] = {}
        own = plan.places[plan.name]
        for at, node in enumerate(plan.nodes):
            for which, address in node.ports.items():
                port = address.port
                what = f"{which} of node {node.id}"
                if port > 65_535:
                    self._wrong(which, f"the port of node {node.id} would be {port}")
                elif port in taken:
                    self._wrong(
                        which,
                        f"{what} and {taken[port]} would both be {port}: each kind of port needs "
                        f"{len(plan.nodes)} in a row",
                    )
                else:
                    taken[port] = what
            if node.advertised is not None and node.advertised.port > 65_535:
                self._wrong("listen.advertised_kafka", f"node {node.id} would have no port")
            told = _above(own.peer, at)
            if node.peer.port != told.port:
                self._wrong(
                    f"machines.{plan.name}.peer = {show(own.peer)}",
                    f"the others connect there, and listen.peer is {show(plan.listen['peer'])}; "
                    "give both the same port",
                )
                break

    def _table(self, name: str) -> Mapping[str, Any]:
        table = self._tables.get(name, {})
        if not isinstance(table, dict):
            return {}
        if not table and name in ("machine", "machines"):
            self._wrong(f"[{name}]", "is missing; evenkeel init --processes writes such files")
        return table

    def _wrong(self, what: str, why: str) -> None:
        line = f"{self._path}: {what}: {why}"
        if line not in self.problems:
            self.problems.append(line)


def _above(address: Address, ports: int) -> Address:
    return Address(address.host, address.port + ports)


def _listener_above(one: ListenerSettings, ports: int) -> ListenerSettings:
    told = one.advertised
    return attrs.evolve(
        one, bind=_above(one.bind, ports), advertised=None if told is None else _above(told, ports)
    )


def _toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float):
        return repr(value)
    return show(value)
