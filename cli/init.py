"""`evenkeel init`: the configurations of a new cluster whose nodes have machines of their own.

With `--processes K` a machine runs K nodes (`evenkeel machine start`), and has a file for all of
them. The first nodes of all machines are numbered first, then the second ones: neighbours in the
circle of founders are on different machines, so the first members of every Paxos group are, too.
"""

import argparse
import ipaddress
import json
import re
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from cluster.machine.plan import read
from cluster.spec import FIRST_PORTS, GROUPS_DEFAULT, HOST, NODES_MAX
from runtime.config.config import load
from runtime.config.fields import Address, parse_address, show
from runtime.config.listeners import allowed_for
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
    text = "node processes on each machine: a file for `evenkeel machine start`"
    parser.add_argument("--processes", metavar="K,K,K", help=f"{text}; one number, or one each")
    text = f"Paxos groups for data, for ever ({GROUPS_DEFAULT})"
    parser.add_argument("--groups", type=int, default=GROUPS_DEFAULT, metavar="G", help=text)
    text = f"of each node, on its own machine ({STATE})"
    parser.add_argument("--data-dir", default=STATE, metavar="DIR", help=text)
    parser.add_argument("--json", action="store_true", help="for programs")


def run(options: Any) -> int:  # noqa: ANN401 (argparse's)
    machines = parsed(options.nodes)
    processes = counts(options.processes, machines)
    if processes:
        machines = tuple(attrs.evolve(one, name=_called(one)) for one in machines)
    cluster_id = options.cluster_id or f"evenkeel-{secrets.token_hex(4)}"
    folder: Path = options.to
    there = [one.file for one in machines if (folder / one.file).exists()]
    if there:
        raise InitError(f"{folder} has {', '.join(there)} already; choose another folder with --to")
    folder.mkdir(parents=True, exist_ok=True)
    numbers = numbered(processes)
    for one in machines:
        if processes:
            text = machine_file(
                one, machines, numbers, cluster_id, groups=options.groups, data_dir=options.data_dir
            )
        else:
            text = configuration(
                one, machines, cluster_id, groups=options.groups, data_dir=options.data_dir
            )
        path = folder / one.file
        path.write_text(text, encoding="utf-8")
        try:
            _check(path, machine=bool(processes))  # what a node refuses is refused here
        except ValueError:
            for written in machines:
                (folder / written.file).unlink(missing_ok=True)
            raise
    bootstrap = ",".join(str(one.kafka) for one in machines)
    if options.json:
        rows = [
            {
                "node": one.node,
                "host": one.kafka.host,
                "file": str(folder / one.file),
                **({"nodes": numbers[one.node - 1]} if processes else {}),
            }
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
    if processes:
        print(told_of_machines(machines, numbers, cluster_id, bootstrap, folder))
    else:
        print(told(machines, cluster_id, bootstrap, folder))
    return 0


def _check(path: Path, *, machine: bool) -> None:
    """Raises:
    ConfigError: a node would refuse it.
    """
    if not machine:
        load(path, {})
        return
    plan = read(path, {})
    with tempfile.TemporaryDirectory() as folder:
        for node in plan.nodes:
            file = Path(folder, f"node-{node.id}.toml")
            file.write_text(plan.text(node, len(plan.nodes)), encoding="utf-8")
            load(file, {})


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


def told_of_machines(
    machines: Sequence[Machine],
    numbers: Sequence[Sequence[int]],
    cluster_id: str,
    bootstrap: str,
    folder: Path,
) -> str:
    count = sum(map(len, numbers))
    lines = [f"cluster {cluster_id}: {count} nodes on {len(machines)} machines", ""]
    for one, nodes in zip(machines, numbers, strict=True):
        lines.append(
            f"  {_called(one):<10} nodes {','.join(map(str, nodes)):<12} {folder / one.file}"
        )
    lines += ["", *(f"note: {one}" for one in notes(len(machines)))]
    if len(machines) < REPLICAS < count:
        lines.append(
            f"note: {len(machines)} machines cannot keep {REPLICAS} copies apart: the loss of one "
            "can stop Paxos groups"
        )
    most = max(map(len, numbers)) - 1
    kafka, peer = machines[0].kafka.port, machines[0].at("peer").port
    lines += [
        "On each machine, with its own file as /etc/evenkeel/machine.toml:",
        "  evenkeel machine show",
        "  evenkeel machine start",
        "The cluster begins when all of them run. Ports between the machines:",
        f"  {kafka} to {kafka + most} for clients, {peer} to {peer + most} for the nodes",
        "Nothing is encrypted: keep both inside a network that you trust.",
        "",
        "bootstrap servers:",
        *(f"  {one}" for one in bootstrap.split(",")),
    ]
    return "\n".join(lines)


def _called(one: Machine) -> str:
    return one.name or f"machine-{one.node}"


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


def counts(text: str | None, machines: Sequence[Machine]) -> list[int]:
    """How many nodes each machine runs; [] if each is to have a node's own file.

    Raises:
        InitError: if it is not one number, or one for each machine.
    """
    if text is None:
        return []
    words = text.split(",")
    found = [int(word) if word.strip().isdecimal() else 0 for word in words]
    if len(found) == 1:
        found *= len(machines)
    if len(found) != len(machines) or 0 in found:
        raise InitError(
            f"--processes {text}: write one number, or one for each machine, as in 2,2,4"
        )
    if sum(found) > NODES_MAX:
        raise InitError(f"{sum(found)} nodes: a cluster begins with 1 to {NODES_MAX}")
    hosts = [one.kafka.host for one in machines]
    if len(set(hosts)) < len(hosts):
        raise InitError("--processes is for machines; two of --nodes have the same host")
    return found


def numbered(processes: Sequence[int]) -> list[list[int]]:
    """The nodes of each machine: round by round over all machines that have one left."""
    numbers: list[list[int]] = [[] for _ in processes]
    number = 0
    for turn in range(max(processes, default=0)):
        for mine, count in zip(numbers, processes, strict=True):
            if turn < count:
                number += 1
                mine.append(number)
    return numbers


def machine_file(
    one: Machine,
    machines: Sequence[Machine],
    numbers: Sequence[Sequence[int]],
    cluster_id: str,
    *,
    groups: int,
    data_dir: str,
) -> str:
    """The least that machine needs; its nodes' configurations follow from it."""
    host, told_to_clients = _listens_on(one)
    founders = ",".join(map(str, sorted(number for nodes in numbers for number in nodes)))
    lines = [
        f"# Evenkeel {VERSION}, written by: evenkeel init --processes",
        f"# For the machine {one.kafka.host}: evenkeel machine show says what follows from it.",
        "# Settings of every node go into their sections, as in a node's own file.",
        "[machine]",
        f"name = {show(_called(one))}",
        f"data_dir = {show(data_dir)}",
        "[node]",
        f"cluster_id = {show(cluster_id)}",
        "[listen] # of the first node; each next one takes the next port",
        f"kafka = {show(Address(host, one.kafka.port))}",
        *([f"advertised_kafka = {show(one.kafka)}"] if told_to_clients else []),
        f"peer = {show(Address(host, one.at('peer').port))}",
        f"http = {show(Address(HOST, one.at('http').port))}",
        *allowed_for(Address(host, one.kafka.port)),
        "[groups]",
        f"count = {groups}",
        f"replicas = {min(REPLICAS, sum(map(len, numbers)))}",
        f"founders = {show(founders)}",
        "[machines] # all of them: where the first node's peers connect, and the nodes' numbers",
    ]
    for machine, nodes in zip(machines, numbers, strict=True):
        peer = show(machine.at("peer"))
        lines.append(f"{_called(machine)} = {{ peer = {peer}, nodes = {list(nodes)} }}")
    return "\n".join(lines) + "\n"


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
        *allowed_for(Address(host, one.kafka.port)),
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
