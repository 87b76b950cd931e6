"""`evenkeel init`: the configurations of a new cluster whose nodes have machines of their own."""

import argparse
import ipaddress
import json
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from cluster.spec import FIRST_PORTS, GROUPS_DEFAULT, HOST, NODES_MAX
from runtime.config.config import load
from runtime.config.fields import Address, parse_address, show
from wire.software import VERSION

NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
REPLICAS: Final = 3
STATE: Final = "/var/lib/evenkeel"
WRITE: Final = "write --nodes a:10.0.0.1,b:10.0.0.2,c:10.0.0.3 (names are optional, as are ports)"


class InitError(ValueError):
    """The cluster cannot be as requested; the message says why, and what to write."""


@attrs.frozen
class Machine:
    """Where a node is to run. `kafka` is the address that its clients and, but for the port, its
    peers connect to."""

    node: int
    name: str
    kafka: Address

    def at(self, which: str) -> Address:
        """The address of its peer or HTTP side, as far from Kafka's port as the usual ones are."""
        port = self.kafka.port + FIRST_PORTS[which] - FIRST_PORTS["kafka"]
        return Address(self.kafka.host, port)

    @property
    def file(self) -> str:
        return f"{self.name or f'node-{self.node}'}.toml"


def add_options(parser: argparse.ArgumentParser) -> None:
    text = "the machines: [NAME:]HOST[:PORT] each; PORT is for Kafka clients (9092)"
    parser.add_argument("--nodes", required=True, metavar="A,B,C", help=text)
    parser.add_argument(
        "--to", type=Path, default=Path(), metavar="DIR", help="the folder for the files (.)"
    )
    parser.add_argument("--cluster-id", metavar="ID", help="for ever (by default a random one)")
    text = f"Paxos groups for data, for ever ({GROUPS_DEFAULT})"
    parser.add_argument("--groups", type=int, default=GROUPS_DEFAULT, metavar="G", help=text)
    text = f"of each node, on its own machine ({STATE})"
    parser.add_argument("--data-dir", default=STATE, metavar="DIR", help=text)
    parser.add_argument("--json", action="store_true", help="for programs")


def run(options: Any) -> int:  # noqa: ANN401 (argparse's)
    machines = parsed(options.nodes)
    cluster_id = options.cluster_id or f"evenkeel-{secrets.token_hex(4)}"
    folder: Path = options.to
    there = [one.file for one in machines if (folder / one.file).exists()]
    if there:
        raise InitError(f"{folder} has {', '.join(there)} already; choose another folder with --to")
    folder.mkdir(parents=True, exist_ok=True)
    for one in machines:
        text = configuration(
            one, machines, cluster_id, groups=options.groups, data_dir=options.data_dir
        )
        path = folder / one.file
        path.write_text(text, encoding="utf-8")
        try:
            load(path, {})  # what a node refuses is refused here
        except ValueError:
            for written in machines:
                (folder / written.file).unlink(missing_ok=True)
            raise
    bootstrap = ",".join(str(one.kafka) for one in machines)
    if options.json:
        rows = [
            {"node": one.node, "host": one.kafka.host, "file": str(folder / one.file)}
            for one in machines
        ]
        document = {
            "cluster_id": cluster_id,
            "bootstrap": bootstrap,
            "nodes": rows,
            "notes": notes(len(machines)),
        }
        print(json.dumps(document, indent=2))
        return 0
    print(told(machines, cluster_id, bootstrap, folder))
    return 0


def told(machines: Sequence[Machine], cluster_id: str, bootstrap: str, folder: Path) -> str:
    lines = [f"cluster {cluster_id}: {len(machines)} nodes", ""]
    lines += [f"  node {one.node}  {one.kafka.host:<24} {folder / one.file}" for one in machines]
    lines += ["", *(f"note: {one}" for one in notes(len(machines)))]
    lines += [
        "On each machine, with its own file as /etc/evenkeel/node.toml:",
        "  evenkeel config check --file /etc/evenkeel/node.toml",
        "  evenkeel node start --config /etc/evenkeel/node.toml",
        "The cluster begins when all of them run. Ports between the machines:",
        f"  {machines[0].kafka.port} for clients, {machines[0].at('peer').port} for the nodes",
        "Nothing is encrypted: keep both inside a network that you trust.",
        "",
        "bootstrap servers:",
        *(f"  {one}" for one in bootstrap.split(",")),
    ]
    return "\n".join(lines)


def notes(count: int) -> list[str]:
    """What a number of nodes means, in words."""
    if count == 1:
        return ["one node has the only copy: what its disk loses is gone"]
    if count == 2:
        return [
            "with two nodes nothing is acknowledged while either is down;",
            "three survive the loss of one",
        ]
    if count % 2 == 0:
        return [
            f"an even number: a majority of {count} survives no more losses than of {count - 1}"
        ]
    return []


def parsed(text: str) -> tuple[Machine, ...]:
    """The machines, numbered from 1 in their order.

    Raises:
        InitError: if one cannot be read, or two are the same.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not 1 <= len(words) <= NODES_MAX:
        raise InitError(f"{len(words)} nodes: a cluster begins with 1 to {NODES_MAX}; {WRITE}")
    machines = tuple(_machine(number, word) for number, word in enumerate(words, 1))
    files: dict[str, int] = {}
    addresses: dict[Address, int] = {}
    for one in machines:
        if one.file in files:
            raise InitError(f"nodes {files[one.file]} and {one.node} have one name: {one.name}")
        files[one.file] = one.node
        for which in FIRST_PORTS:
            address = one.at(which)
            if address in addresses:
                raise InitError(
                    f"nodes {addresses[address]} and {one.node} would both listen on {address}; "
                    "give each a machine, or ports that are far apart: host:9092,host:9192"
                )
            addresses[address] = one.node
    here = [one for one in machines if one.kafka.is_loopback]
    if 0 < len(here) < len(machines):
        raise InitError(_only_here(here[0]))
    return machines


def _only_here(one: Machine) -> str:
    return (
        f"node {one.node} is on {one.kafka.host}, where the other machines cannot connect; write "
        "the address under which they reach it"
    )


def _machine(number: int, word: str) -> Machine:
    """[NAME:]HOST[:PORT]; an IPv6 host is in brackets."""
    name, rest = "", word
    head, colon, tail = word.partition(":")
    if colon and not tail.isdecimal() and not head.startswith("["):
        name, rest = head, tail
        if not NAME.fullmatch(name):
            raise InitError(f"'{word}': '{name}' is no name for a node; {WRITE}")
    try:
        address = parse_address(rest if _has_port(rest) else f"{rest}:{FIRST_PORTS['kafka']}")
    except ValueError:
        raise InitError(f"'{word}' is not the address of a machine; {WRITE}") from None
    if address.is_wildcard:
        raise InitError(f"'{word}': nobody can connect to that; name the machine's own address")
    machine = Machine(number, name, address)
    if any(not 0 < machine.at(which).port < 65_536 for which in FIRST_PORTS):
        raise InitError(f"'{word}': the ports beside it would be below 1; use one above 2000")
    return machine


def _has_port(text: str) -> bool:
    host, colon, port = text.rpartition(":")
    return bool(colon) and port.isdecimal() and (":" not in host or host.endswith("]"))


def configuration(
    one: Machine, machines: Sequence[Machine], cluster_id: str, *, groups: int, data_dir: str
) -> str:
    """The least that node needs; all else has defaults, so an upgrade brings new ones."""
    host, told_to_clients = _listens_on(one)
    shared = sum(machine.kafka.host == one.kafka.host for machine in machines) > 1
    directory = f"{data_dir}/node-{one.node}" if shared else data_dir
    founders = ",".join(str(machine.node) for machine in machines)
    lines = [
        f"# Evenkeel {VERSION}, written by: evenkeel init",
        f"# For the machine {one.kafka.host}; every node has a file of its own.",
        "# evenkeel config lists all settings. [groups] and cluster_id are for ever.",
        "[node]",
        f"id = {one.node}",
        f"cluster_id = {show(cluster_id)}",
        f"data_dir = {show(directory)}",
        "[listen]",
        f"kafka = {show(Address(host, one.kafka.port))}",
        *([f"advertised_kafka = {show(one.kafka)}"] if told_to_clients else []),
        f"peer = {show(Address(host, one.at('peer').port))}",
        f"http = {show(Address(HOST, one.at('http').port))}",
        "[groups]",
        f"count = {groups}",
        f"replicas = {min(REPLICAS, len(machines))}",
        f"founders = {show(founders)}",
        "[peers]",
        *(f"{machine.node} = {show(machine.at('peer'))}" for machine in machines),
    ]
    return "\n".join(lines) + "\n"


def _listens_on(one: Machine) -> tuple[str, bool]:
    """The host to listen on, and whether clients must be told another: a name may mean an address
    that this machine does not have (NAT, a container), an IP address is taken as it is."""
    try:
        ipaddress.ip_address(one.kafka.host)
    except ValueError:
        return ("0.0.0.0", True) if one.kafka.host != "localhost" else (HOST, True)  # noqa: S104
    return one.kafka.host, False
