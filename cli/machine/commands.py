"""`evenkeel machine`: run the node processes of one machine, and manage machines as a whole.

`start`, `show`, `status`, `stop` and `upgrade` are for the machine they are called on, by its file.
`list`, `drain` and `undrain` are for any machine of a cluster (a machine is a zone of its nodes).
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from cli.clusters import reach
from cli.clusters import target as chosen
from cli.clusters.kafka_commands import FAILED
from cli.machine import turn
from cli.machine.turn import Machine
from cluster import control, health
from cluster.machine.plan import CORES, MachineNode, MachinePlan, read
from cluster.machine.supervisor import (
    MachineError,
    Supervisor,
    only_one,
    refuse_taken_ports,
    socket_path,
    start_anew,
)
from runtime.config.config import ConfigError
from runtime.system.cores import cores_given

FILE: Final = Path("/etc/evenkeel/machine.toml")
WRONG_CONFIGURATION: Final = 2
"""The nodes' own exit code for it, which systemd does not start again."""


def add_commands(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def action(name: str, do: Callable[[Any], int], text: str) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        sub.set_defaults(do=do)
        return sub

    def of_file(sub: argparse.ArgumentParser) -> None:
        text = f"the machine's configuration file ({FILE})"
        sub.add_argument("--config", type=Path, default=FILE, metavar="TOML", help=text)

    start = action("start", _start, "run this machine's nodes in the foreground, until SIGTERM")
    of_file(start)
    text = "override one setting of every node; may be repeated"
    start.add_argument("--set", action="append", default=[], metavar="section.key=value", help=text)

    showing = action("show", _show, "show the nodes that follow from the file; change nothing")
    of_file(showing)
    showing.add_argument("--node", type=int, metavar="N", help="print that node's configuration")
    text = "write each node's configuration there, for evenkeel@N.service"
    showing.add_argument("--to", type=Path, metavar="DIR", help=text)

    status = action("status", _status, "show this machine's processes; 1 if one does not serve")
    of_file(status)
    stop = action("stop", _stop, "stop this machine's nodes; they give their masters away first")
    of_file(stop)

    text = (
        "empty this machine of masters, end its nodes, start them with the program that is "
        "installed by now, and give them their masters back"
    )
    upgrade = action("upgrade", _upgrade, text)
    of_file(upgrade)
    text = "even if Paxos groups would have no majority meanwhile"
    upgrade.add_argument("--force", action="store_true", help=text)
    text = f"seconds for each step ({turn.STEP_S:.0f})"
    upgrade.add_argument(
        "--timeout", type=chosen.seconds, default=turn.STEP_S, metavar="S", help=text
    )

    listing = action("list", _list, "list a cluster's machines, and what each of them has")
    chosen.add_options(listing, changes=False, http=True)
    chosen.timeout_option(listing)
    for name, text in (
        ("drain", "move all masters away from a machine, and wait until that is done"),
        ("undrain", "end a drain"),
    ):
        sub = action(name, partial(_drain, draining=name == "drain"), text)
        sub.add_argument("machine", metavar="NAME")
        chosen.add_options(sub, changes=True, http=True)
        limit = f"seconds to wait ({turn.STEP_S:.0f})"
        sub.add_argument(
            "--timeout", type=chosen.seconds, default=turn.STEP_S, metavar="S", help=limit
        )
    for sub in actions.choices.values():
        if sub is not start:
            sub.add_argument("--json", action="store_true", help="for programs")


# --- on the machine itself -----------------------------------------------------------------------


def _start(options: Any) -> int:  # noqa: ANN401 (argparse's)
    """0 after a clean stop; 2 for a bad configuration, as a node; 1 if it cannot run now."""
    try:
        plan = read(options.config)
        with only_one(plan):
            nodes = plan.running(cores_given())
            plan.write(nodes, os.environ, plan.data_dir)
            refuse_taken_ports(nodes)
            socket_path(plan.data_dir)  # refused here, and not by a task
            _say(f"machine {plan.name}: {len(nodes)} nodes ({_numbers(nodes)}), {_cores(nodes)}")
            supervisor = Supervisor(plan, nodes, env=os.environ, say=_say, overrides=options.set)
            code = trio.run(supervisor.run)
    except ConfigError as error:
        print(f"evenkeel: {error}", file=sys.stderr)
        return WRONG_CONFIGURATION
    if supervisor.again:
        start_anew()
    return code


def _say(line: str) -> None:
    """Among the nodes' logs."""
    print(f"evenkeel machine: {line}", file=sys.stderr, flush=True)


def _numbers(nodes: Sequence[MachineNode]) -> str:
    return ", ".join(str(node.id) for node in nodes)


def _cores(nodes: Sequence[MachineNode]) -> str:
    cores = cores_given()
    if cores < len(nodes):
        return f"which share {cores} {'core' if cores == 1 else 'cores'}: none has one of its own"
    idle = cores - len(nodes)
    return "a core each" + (f"; {idle} more could have one" if idle else "")


def _show(options: Any) -> int:  # noqa: ANN401 (argparse's)
    plan = read(options.config)
    nodes = plan.running(cores_given())
    if options.node is not None:
        found = next((node for node in nodes if node.id == options.node), None)
        if found is None:
            raise MachineError(f"machine {plan.name} runs node {_numbers(nodes)}")
        print(plan.text(found, len(nodes)), end="")
        return 0
    with tempfile.TemporaryDirectory() as folder:  # what a node refuses is refused here
        plan.write(nodes, os.environ, options.to or Path(folder))
    rows = [_row(plan, node) for node in nodes]
    if options.json:
        document = {"machine": plan.name, "cores": cores_given(), "pin": plan.pin, "nodes": rows}
        print(json.dumps(document, indent=2))
        return 0
    how = "one for each core" if plan.processes == CORES else "as the file says"
    print(f"machine {plan.name}: {len(nodes)} node processes ({how}), {_cores(nodes)}")
    print("node  kafka                  peer                   http                   directory")
    for row in rows:
        print(
            f"{row['node']:>4}  {row['kafka']:<21}  {row['peer']:<21}  {row['http']:<21}  "
            f"{row['data_dir']}"
        )
    if options.to is not None:
        print(f"written: {', '.join(f'node-{node.id}.toml' for node in nodes)} in {options.to}")
    return 0


def _row(plan: MachinePlan, node: MachineNode) -> dict[str, Any]:
    return {
        "node": node.id,
        "zone": plan.name,
        "kafka": str(node.advertised or node.kafka),
        "peer": str(node.peer),
        "http": str(node.http),
        "data_dir": str(node.data_dir),
        "has_data": node.has_data,
    }


def _status(options: Any) -> int:  # noqa: ANN401 (argparse's)
    plan = read(options.config)
    now = _ask(plan, "status")
    by_id = {node.id: node for node in plan.nodes}
    rows = []
    for row in now["nodes"]:
        running = row["state"] == "running"
        waits = health.not_ready(by_id[row["id"]].http) if running else row["ending"]
        rows.append({**row, "waits": waits})
    if options.json:
        print(json.dumps({**now, "nodes": rows}, indent=2))
    else:
        print(f"machine {now['machine']}, supervisor {now['pid']}")
        print("node  state    pid      core  starts  waits for")
        for row in rows:
            core = "-" if row["core"] is None else row["core"]
            print(
                f"{row['id']:>4}  {row['state']:<7}  {row['pid'] or '-':<7}  {core:>4}  "
                f"{row['starts']:>6}  {row['waits'] or '-'}"[:80]
            )
    return FAILED if any(row["waits"] for row in rows) else 0


def _stop(options: Any) -> int:  # noqa: ANN401 (argparse's)
    plan = read(options.config)
    told = _asked(plan, "stop")
    print(json.dumps({"machine": plan.name, "done": told}) if options.json else told)
    return 0


def _ask(plan: MachinePlan, what: str) -> Mapping[str, Any]:
    answer: Mapping[str, Any] = json.loads(_asked(plan, what))
    return answer


def _asked(plan: MachinePlan, what: str) -> str:
    try:
        return control.ask(socket_path(plan.data_dir), what, 0)
    except control.ControlError as error:
        raise MachineError(
            f"machine {plan.name} is not running here, or not as this user: {error}; start it: "
            f"evenkeel machine start --config {plan.file}"
        ) from error


def _upgrade(options: Any) -> int:  # noqa: ANN401 (argparse's)
    plan = read(options.config)
    before = _ask(plan, "status")
    running = [node for node in plan.nodes if node.id in {row["id"] for row in before["nodes"]}]
    cluster = reach.Cluster([node.http for node in running], timeout_s=health.OPERATOR_S)
    machine = Machine(cluster, plan.name, _teller(options), options.timeout)

    def again() -> None:
        _asked(plan, "again")
        machine.until(f"machine {plan.name} runs again", partial(_runs_anew, plan, before))

    steps = turn.upgrade(machine, [node.http for node in running], again, force=options.force)
    if options.json:
        print(json.dumps({"machine": plan.name, "seconds": steps}, indent=2))
    return 0


def _runs_anew(plan: MachinePlan, before: Mapping[str, Any]) -> str:
    """Why not; "" if all its processes are others than before."""
    old = {row["pid"] for row in before["nodes"]}
    try:
        now = _ask(plan, "status")
    except MachineError:
        return "its supervisor does not answer"
    same = any(row["pid"] in old for row in now["nodes"])
    return "its nodes are stopping" if now["stopping"] or same else ""


# --- of any machine ------------------------------------------------------------------------------


def _teller(options: Any) -> Callable[[str], None]:  # noqa: ANN401 (argparse's)
    """With --json the progress is not told: standard output is one document."""
    return (lambda _line: None) if options.json else partial(print, flush=True)


def _list(options: Any) -> int:  # noqa: ANN401 (argparse's)
    answer = reach.of(options).ask("GET", "/nodes")
    machines = answer["machines"]
    print(json.dumps(machines, indent=2) if options.json else render(machines))
    return 0


def render(machines: Sequence[Mapping[str, Any]]) -> str:
    """For people."""
    if not machines:
        return "no node names its machine (node.zone is empty everywhere)"
    lines = ["machine           nodes         up    masters  Paxos groups  state"]
    for one in machines:
        up = f"{len(one['alive'])}/{len(one['nodes'])}"
        draining = set(one["draining"]) == set(one["nodes"])
        state = "draining" if draining else "down" if not one["alive"] else "-"
        lines.append(
            f"{one['machine'][:16]:<16}  {','.join(map(str, one['nodes']))[:12]:<12}  {up:<5} "
            f"{one['masters']:>7}  {one['groups']:>12}  {state}"
        )
    lines += [f"note: {one['problem']}" for one in machines if one["problem"]]
    return "\n".join(lines)


def _drain(options: Any, *, draining: bool) -> int:  # noqa: ANN401 (argparse's)
    machine = Machine(reach.of(options), options.machine, _teller(options), options.timeout)
    if draining:
        seconds = turn.drain(machine)
        done = f"machine {options.machine} is master of nothing (after {seconds:.1f} s)"
    else:
        turn.undrain(machine)
        done = f"machine {options.machine} gets its share again"
    print(json.dumps({"machine": options.machine, "done": done}) if options.json else done)
    return 0
