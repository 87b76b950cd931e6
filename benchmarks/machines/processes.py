"""What a message costs when machines run more nodes: `python -m benchmarks.machines.processes`.

Three machines (network namespaces) with k nodes each, run by `evenkeel machine start`. Every node
has a quota of the same share of a core, so k nodes have k times as much as one, however many cores
there are. Load is sent for each node, paced, so k nodes get k times the messages of one. What is
measured is the CPU time of all nodes, divided by the acknowledged messages: what else runs here
matters little, but nodes that wait for a core write larger batches, which cost less. That k nodes
with a core each carry k times as much follows from it by arithmetic, as long as disk and network
are not the limit (docs/machines.md).

The nodes' CPU time without load is measured first and shown beside it: heartbeats and leases. It is
no part that could be subtracted: under load, messages renew leases.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.machines import inside, paced
from benchmarks.machines.network import SUBNET, MachinesError, Namespace, Network, network
from benchmarks.machines.quota import quotas
from cli.init import machine_file, numbered, parsed
from cluster.programs import environment, program

NAMES: Final = ("a", "b", "c")
GROUPS_OF_A_NODE: Final = 4
START_S: Final = 120.0
TICKS: Final = os.sysconf("SC_CLK_TCK")
BYTES: Final = 100


@attrs.frozen(kw_only=True)
class Cost:
    """Of one number of nodes on a machine."""

    processes: int
    nodes: int
    sent: int
    acknowledged: int
    seconds: float
    idle_share: float
    """Of a core, used by a node without load; the average."""
    busiest_share: float
    """The same under load, of the node that uses most."""
    cpu_us: float
    """CPU time of all nodes for a message."""


@attrs.define
class Machines:
    net: Network
    folder: Path
    processes: int
    supervisors: list["subprocess.Popen[bytes]"] = attrs.Factory(list)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{SUBNET}{at}:9092" for at in range(1, len(NAMES) + 1))

    def run(self, place: Namespace, *words: str) -> str:
        done = subprocess.run(
            [*_inside(place), *program("cli.main", *words)],
            capture_output=True,
            text=True,
            env=environment(os.environ),
            cwd=self.folder,
            timeout=START_S,
            check=False,
        )
        return done.stdout if done.returncode == 0 else ""

    def start(self) -> None:
        text = ",".join(f"{name}:{SUBNET}{at}" for at, name in enumerate(NAMES, 1))
        machines, numbers = parsed(text), numbered([self.processes] * len(NAMES))
        groups = GROUPS_OF_A_NODE * self.processes * len(NAMES)
        for one, place in zip(machines, self.net.machines, strict=True):
            path = self.folder / f"{one.name}.toml"
            state = str(self.folder / one.name)
            path.write_text(
                machine_file(one, machines, numbers, "cost", groups=groups, data_dir=state)
            )
            words = program("cli.main", "machine", "start", "--config", str(path))
            with (self.folder / f"{one.name}.log").open("wb") as log:
                self.supervisors.append(
                    subprocess.Popen(
                        [*_inside(place), *words],
                        stdout=log,
                        stderr=log,
                        env=environment(os.environ),
                        cwd=self.folder,
                    )
                )
        self._until_settled()
        self.run(
            self.net.clients, "topic", "create", "cost", "--partitions", str(groups),
            "--bootstrap", self.bootstrap, "--timeout", "60",
        )  # fmt: skip

    def _until_settled(self) -> None:
        deadline = time.monotonic() + START_S
        while True:
            http = ["--http", "127.0.0.1:8092", "--json"]
            told = self.run(self.net.machines[0], "node", "list", *http)
            view: dict[str, Any] = json.loads(told) if told else {}
            placed = view and not view["misplaced"] and not view["moves_left"]
            if placed and all(row["masters"] for row in view["nodes"]):
                return
            if time.monotonic() > deadline:
                raise MachinesError(f"the cluster has not formed in {START_S:.0f} s: {told[:300]}")
            time.sleep(0.5)

    def pids(self) -> dict[str, int]:
        """Process ids of all nodes, by node."""
        found: dict[str, int] = {}
        for name, place in zip(NAMES, self.net.machines, strict=True):
            file = str(self.folder / f"{name}.toml")
            status = json.loads(self.run(place, "machine", "status", "--config", file, "--json"))
            found |= {f"node-{row['id']}": int(row["pid"]) for row in status["nodes"]}
        return found

    def stop(self) -> None:
        for one in self.supervisors:
            one.kill()  # the nodes die with it
        for one in self.supervisors:
            one.wait()


@contextmanager
def machines(net: Network, processes: int) -> Iterator[Machines]:
    with tempfile.TemporaryDirectory(prefix="evenkeel-cost-") as folder:
        made = Machines(net, Path(folder), processes)
        try:
            made.start()
            yield made
        finally:
            made.stop()


def _inside(place: Namespace) -> list[str]:
    return [sys.executable, "-I", "-S", inside.__file__, place.path]


def cpu_s(pid: int) -> float:
    """User and system time of a process, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def measure(net: Network, processes: int, *, share: float, rate: float, seconds: float) -> Cost:
    """`rate`: messages a second for each node."""
    with machines(net, processes) as running:
        pids = running.pids()
        with quotas(share, pids):
            idle = _used(pids, seconds / 2)
            nodes = len(pids)
            command = program(
                paced.__name__,
                running.bootstrap,
                "cost",
                f"{rate * nodes:g}",
                f"{seconds:g}",
                str(BYTES),
            )
            before = {name: cpu_s(pid) for name, pid in pids.items()}
            began = time.monotonic()
            done = subprocess.run(
                [*_inside(running.net.clients), *command],
                capture_output=True,
                text=True,
                env=environment(os.environ),
                timeout=seconds + START_S,
                check=True,
            )
            took = time.monotonic() - began
            used = {name: cpu_s(pid) - before[name] for name, pid in pids.items()}
    sent, acknowledged = map(int, done.stdout.split())
    return Cost(
        processes=processes,
        nodes=nodes,
        sent=sent,
        acknowledged=acknowledged,
        seconds=round(took, 1),
        idle_share=round(sum(idle.values()) / nodes, 4),
        busiest_share=round(max(used.values()) / took, 4),
        cpu_us=round(sum(used.values()) / acknowledged * 1e6, 1),
    )


def _used(pids: dict[str, int], seconds: float) -> dict[str, float]:
    """The share of a core that each process uses."""
    before = {name: cpu_s(pid) for name, pid in pids.items()}
    began = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    return {name: (cpu_s(pid) - before[name]) / took for name, pid in pids.items()}


def table(costs: Sequence[Cost]) -> str:
    head = (
        "nodes on a machine",
        "nodes",
        "messages/s acknowledged",
        "CPU time for a message, all nodes",
        "a node without load",
        "the busiest node under load",
    )
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [
        f"| {one.processes} | {one.nodes} | {one.acknowledged / one.seconds:.0f} | "
        f"{one.cpu_us:.0f} µs | {one.idle_share:.1%} of a core | "
        f"{one.busiest_share:.1%} |"
        for one in costs
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machines.processes")
    parser.add_argument("--processes", default="1,2", help="nodes on each machine (1,2)")
    parser.add_argument("--share", type=float, default=0.25, help="of a core, for a node (0.25)")
    parser.add_argument("--rate", type=float, default=100.0, help="messages/s for a node (100)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of load (20)")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    costs = []
    with network(len(NAMES)) as net:
        for processes in map(int, options.processes.split(",")):
            costs.append(
                measure(
                    net,
                    processes,
                    share=options.share,
                    rate=options.rate,
                    seconds=options.seconds,
                )
            )
            sys.stderr.write(f"{attrs.asdict(costs[-1])}\n")
    sys.stdout.write(table(costs) + "\n")
    if options.json is not None:
        document = {
            "share": options.share,
            "rate": options.rate,
            "message_bytes": BYTES,
            "costs": [attrs.asdict(one) for one in costs],
        }
        options.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
