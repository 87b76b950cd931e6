"""`evenkeel`: managing a local cluster from a terminal.

A command that cannot do what was requested prints one line that says why, and exits with 1 (2 for
wrong arguments, as in argparse). A partial answer is printed, says what is unknown, and the exit
code is 3; docs/client.md has the table.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final, TypeAlias

import trio

from cli import (
    balance,
    cheat,
    completion,
    configuration,
    context,
    data,
    generate,
    init,
    spark,
)
from cli import (
    bench as bench_cli,
)
from cli import (
    group as group_cli,
)
from cli import (
    history as history_cli,
)
from cli import (
    node as node_cli,
)
from cli import (
    topic as topic_cli,
)
from cli.clusters import target as chosen
from cli.clusters import version as cluster_version
from cli.clusters.contexts import ContextError
from cli.clusters.kafka_commands import FAILED, INTERRUPTED, ClientError
from cli.clusters.reach import RefusedError
from cli.demo import demo
from cli.diagnosis import bundle, doctor
from cli.diagnosis import health as health_cli
from cli.diagnosis import view as status_cli
from cli.machine import commands as machine_cli
from cli.security import acl, cert, quota, user
from cli.security.welcome import secured
from cluster import access, control, health, prometheus, rolling, state
from cluster.launcher import Launcher, StartError, launch
from cluster.machine.supervisor import MachineError
from cluster.spec import ClusterSpec, SpecError, plan
from cluster.waiting import READY_S_MAX, NotReadyError, until_ready
from evenkeel import EvenkeelError
from history.jsonl import HistoryError
from runtime.config import config
from storage.errors import StorageError
from wire.software import VERSION

Refusals: Final = (
    SpecError,
    state.StateError,
    control.ControlError,
    health.HealthError,
    config.ConfigError,
    StartError,
    NotReadyError,
    prometheus.PrometheusError,
    StorageError,
    HistoryError,
    balance.BalanceError,
    rolling.RollingError,
    MachineError,
    node_cli.NodeError,
    ContextError,
    RefusedError,
    generate.GenerateError,
    init.InitError,
    bundle.BundleError,
    ClientError,
    EvenkeelError,
)
WRONG_ARGUMENTS: Final = 2
Watched: TypeAlias = Callable[[], AbstractAsyncContextManager[Sequence[str]]]
FAULTS: Final = {
    "kill": "kill node N with SIGKILL, as a crash would",
    "pause": "stop node N with SIGSTOP: its sockets stay open but it does not answer",
    "resume": "continue a paused node",
}


FEW_NODES: Final = {
    1: "one node has the only copy: what its disk loses is gone, and damage in its log stops it",
    2: "two nodes: nothing is acknowledged while either is down. A node that loses its disk gets"
    " everything from the other; what both lose is gone. Three nodes survive the loss of one",
}
"""What a cluster of fewer than three nodes cannot do."""


def main(arguments: Sequence[str] | None = None) -> None:
    if isinstance(sys.stdout, TextIOWrapper):  # records and names may be more than it can say
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    parser = _parser()
    if not arguments:
        parser.print_help()
        return 0
    options = parser.parse_args(arguments)
    options.arguments = arguments
    try:
        code: int = options.do(options)
        _tell_what_changed(options)
    except BrokenPipeError:
        return FAILED  # the reader of our output has gone, as with `evenkeel status | head`
    except (*Refusals, OSError) as error:
        silent = (state.StateError, ContextError)
        where = None if isinstance(error, silent) else chosen.changed(options)
        print(f"evenkeel: {error}{'' if where is None else f' [{where}]'}", file=sys.stderr)
        return FAILED
    except UnicodeEncodeError as error:  # of arguments: bytes that are no UTF-8 stand in them so
        print(f"evenkeel: this is not UTF-8: {error.object!a}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        where = chosen.changed(options)
        if where is not None:
            print(f"evenkeel: interrupted; it may have been done [{where}]", file=sys.stderr)
        return INTERRUPTED
    return code


def _tell_what_changed(options: Any) -> None:  # noqa: ANN401 (argparse's)
    """On standard error: standard output stays the same for programs."""
    where = chosen.changed(options)
    if where is not None:
        print(f"in {where}", file=sys.stderr)


def _add_subjects(commands: Any) -> None:  # noqa: ANN401 (argparse's)
    """Commands with actions of their own."""
    for name, module, text in (
        ("context", context, "name clusters, here or elsewhere, for --context"),
        ("topic", topic_cli, "create, show, write and read topics"),
        ("group", group_cli, "show consumer groups, set their offsets, delete them"),
        ("acl", acl, "say what clients may do: add, list, delete and check rules"),
        ("node", node_cli, "start a node, show nodes, add, remove or replace one"),
        ("machine", machine_cli, "run a machine's node processes, drain and upgrade machines"),
        ("cluster", cluster_version, "show and raise the version of what is in the logs"),
        ("debug", bundle, "collect what helps others to understand a problem"),
        ("config", configuration, "show every setting of a node, or check a configuration"),
        ("user", user, "add, list and delete users, and give them passwords"),
        ("quota", quota, "say how much clients may do: list, set and delete quotas"),
        ("cert", cert, "make an authority, and certificates of nodes and clients"),
        ("generate", generate, "print what runs nodes as services: systemd units, a compose file"),
    ):
        module.add_commands(commands.add_parser(name, help=text, description=text))
    text = "the same as context: where a cluster is, and how to log in there"
    context.add_profile_commands(commands.add_parser("profile", help=text, description=text))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="evenkeel",
        description="A replicated message bus for Kafka clients; its masters balance themselves.",
    )
    parser.add_argument("--context", metavar="NAME", help=chosen.CONTEXT)
    parser.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(
        name: str, do: Callable[[Any], int], text: str, *, changes: bool = False
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        sub.set_defaults(do=do, changes=changes)
        return sub

    up = command("up", _up, "run a cluster on this machine until Ctrl-C")
    up.add_argument("-n", "--nodes", type=int, metavar="N", help="nodes (3)")
    up.add_argument("--groups", type=int, metavar="G", help="Paxos groups for data (12)")
    up.add_argument("--set", action="append", default=[], metavar="section.key=value")
    up.add_argument("--free-ports", action="store_true", help="not the usual ports")
    text = "TLS, passwords and rules for clients, from now on; writes their settings"
    up.add_argument("--secure", action="store_true", help=text)
    _timeout_option(up)
    up.add_argument("--prometheus", action="store_true", help="run Prometheus beside it")
    _data_option(up, f"the cluster's directory (./{state.DEFAULT_DATA_DIR})")

    _add_views(command)
    _add_processes(command)

    balance_parser = command("balance", balance.run, "show and control the balancer")
    balance.add_options(balance_parser)

    _add_subjects(commands)

    demo_parser = command("demo", demo.run, "show Evenkeel in two minutes, with real processes")
    demo.add_options(demo_parser)

    bench_parser = command("bench", bench_cli.run, "measure a fresh cluster, or any Kafka brokers")
    bench_cli.add_options(bench_parser)

    data_help = "inspect a stopped node's directory, or the disk use of running nodes"
    data.add_commands(commands.add_parser("data", help=data_help, description=data_help))

    history_parser = command("history", history_cli.run_check, "check what clients saw")
    history_cli.add_options(history_parser)

    init.add_options(command("init", init.run, "write the configurations of a new cluster"))

    complete = command("completion", completion.run, "print a completion script for a shell")
    completion.add_options(complete, parser)

    command("cheat", cheat.run, "print the commands for common tasks on one page")
    spark_parser = command("spark", spark.run, "run a job on Spark: archive, replay, audit, ...")
    spark.add_options(spark_parser)
    show_version = command("version", _version, "print the version")
    show_version.add_argument("--json", action="store_true", help="for programs")
    _help_without_action(parser)
    return parser


def _help_without_action(parser: argparse.ArgumentParser) -> None:
    """`evenkeel topic` alone prints what there is, and is still an error of its caller."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            if action.required and parser.prog.count(" "):
                action.required = False
                parser.set_defaults(do=partial(_no_action, parser))
            for sub in action.choices.values():
                _help_without_action(sub)


def _no_action(parser: argparse.ArgumentParser, _options: Any) -> int:  # noqa: ANN401 (argparse's)
    parser.print_help(sys.stderr)
    return WRONG_ARGUMENTS


def _add_views(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Commands that show how a cluster is."""
    text = "show nodes, Paxos groups, masters, leases and lag; 3 if one has no master"
    status_cli.add_options(command("status", status_cli.run, text))
    text = "one word and an exit code for scripts: healthy, degraded, failing, unknown"
    health_cli.add_options(command("health", health_cli.run, text))

    doctor.add_options(command("doctor", doctor.run, "find problems, and say how to cure each"))


def _add_processes(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Commands that end, stop and start the nodes' processes."""
    for name, text in FAULTS.items():
        fault = command(name, _fault, text, changes=True)
        fault.set_defaults(fault=name)
        fault.add_argument("node", type=int, metavar="N")
        _timeout_option(fault, control.ANSWER_S_MAX)
        fault.add_argument("--json", action="store_true", help="for programs")
        chosen.add_options(fault, changes=True)

    text = "restart nodes (a running node is stopped cleanly first)"
    restart = command("restart", _restart, text, changes=True)
    restart.add_argument("nodes", type=int, metavar="N", nargs="+")
    _timeout_option(restart)
    restart.add_argument("--json", action="store_true", help="for programs")
    chosen.add_options(restart, changes=True)

    wait = command("wait", _wait, "wait until nodes are ready, and say what they wait for")
    wait.add_argument("nodes", type=int, metavar="N", nargs="*", help="default: all nodes")
    _timeout_option(wait)
    wait.add_argument("--json", action="store_true", help="for programs")
    chosen.add_options(wait, changes=False)

    text = "restart every node in turn, without disturbing clients"
    roll = command("rolling-restart", _rolling, text, changes=True)
    roll.add_argument("--from", type=int, metavar="N", dest="first", help="continue with node N")
    _timeout_option(roll, rolling.STEP_S_MAX, "for each step")
    roll.add_argument("--json", action="store_true", help="print the seconds of every step")
    chosen.add_options(roll, changes=True)


def _timeout_option(
    parser: argparse.ArgumentParser, default_s: float = READY_S_MAX, text: str = "at most"
) -> None:
    parser.add_argument(
        "--timeout",
        type=chosen.seconds,
        default=default_s,
        metavar="S",
        help=f"seconds to wait {text} ({default_s:.0f})",
    )


def _data_option(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--data", type=Path, metavar="DIR", help=text)


# --- up ------------------------------------------------------------------------------------------


def _up(options: Any) -> int:  # noqa: ANN401 (argparse's)
    data_dir = options.data or state.DEFAULT_DATA_DIR
    if state.is_running(data_dir):
        raise state.StateError(
            f"a cluster is already running in {data_dir}; look at it with: evenkeel status"
        )
    program = prometheus.find(os.environ) if options.prometheus else None
    spec, note = plan(
        data_dir,
        node_count=options.nodes,
        groups=options.groups,
        fixed_ports=not options.free_ports,
        secure=options.secure,
    )
    for line in filter(None, (note, FEW_NODES.get(len(spec.nodes)))):
        print(f"note: {line}", flush=True)
    usual_port = None if options.free_ports else prometheus.USUAL_PORT
    watched = partial(_watched, spec, program, usual_port)
    return trio.run(_up_async, spec, options.set, watched, options.timeout)


async def _up_async(
    spec: ClusterSpec, overrides: Sequence[str], watched: Watched, timeout_s: float
) -> int:
    """Run until a signal; a second one does not wait for the nodes to hand over."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    failure: Exception | None = None
    with trio.open_signal_receiver(*signals) as received:
        async with trio.open_nursery() as nursery:
            try:
                async with launch(spec, overrides=overrides, report=_say) as launcher:
                    with trio.CancelScope() as serving:
                        nursery.start_soon(_obey_signals, received, serving, launcher)
                        await _serve(spec, launcher, watched, timeout_s)
                    _say("stopping ...")
            except Refusals as error:
                failure = error
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    _say("stopped; the data is kept in " + str(spec.data_dir))
    return 0


@asynccontextmanager
async def _watched(
    spec: ClusterSpec, program: str | None, usual_port: int | None
) -> AsyncIterator[Sequence[str]]:
    """The welcome's lines about Prometheus, which runs meanwhile if requested."""
    if program is None:
        yield ()
    else:
        async with prometheus.watching(spec, program, _say, usual_port=usual_port) as address:
            yield "Prometheus, with alerts (docs/runbooks):", f"  http://{address}/alerts"


async def _serve(spec: ClusterSpec, launcher: Launcher, watched: Watched, timeout_s: float) -> None:
    _say(f"starting {len(spec.nodes)} nodes in {spec.data_dir} ...")
    await launcher.start_all(timeout_s)
    try:
        state.remember(spec.data_dir, os.environ)
    except OSError as error:
        _say(f"note: name this cluster with --data in other directories ({error})")
    async with watched() as lines:
        _say(_welcome(spec, lines))
        await trio.sleep_forever()


async def _obey_signals(received: Any, serving: trio.CancelScope, launcher: Launcher) -> None:  # noqa: ANN401 (trio has no public name for it)
    async for _ in received:
        if serving.cancel_called:
            launcher.hurry.set()
        serving.cancel()


def _welcome(spec: ClusterSpec, watched: Sequence[str]) -> str:
    metrics = [f"  {access.url(node.http)}/metrics" for node in spec.nodes]
    return "\n".join(
        [
            f"ready: {len(spec.nodes)} nodes, {spec.groups} Paxos groups",
            "",
            *(secured(spec, sys.stdout.isatty()) if spec.secure else ()),
            "bootstrap servers, for any Kafka client:",
            f"  {spec.bootstrap}",
            "console, for a browser (each node has one):",
            f"  {access.url(spec.nodes[0].http)}/console/",
            "metrics:",
            *metrics,
            *watched,
            "",
            "now try, in another terminal:",
            "  evenkeel status                 which node is master of what",
            "  evenkeel balance show           ... and why it is not being moved",
            "  evenkeel balance --all-on 1     move all masters to node 1 ...",
            "  evenkeel balance run            ... and spread them evenly again",
            "  evenkeel kill 2                 a crash; then: evenkeel restart 2",
            "  evenkeel pause 3                a hang; then: evenkeel resume 3",
            "",
            "Ctrl-C stops the cluster",
        ]
    )


def _say(line: str) -> None:
    print(line, flush=True)


# --- the others ----------------------------------------------------------------------------------


def _fault(options: Any) -> int:  # noqa: ANN401 (argparse's)
    _, running = chosen.running(options)
    told = control.ask(running.control, options.fault, options.node, timeout_s=options.timeout)
    print(json.dumps({"node": options.node, "done": told}) if options.json else told)
    return 0


def _restart(options: Any) -> int:  # noqa: ANN401 (argparse's)
    """All of them at once: each may have to wait for the others."""
    spec, running = chosen.running(options)
    nodes = list(dict.fromkeys(options.nodes))
    say = _teller(options)
    for node in nodes:
        say(control.ask(running.control, "begin", node))
    return _ready(options, spec, nodes, say)


def _wait(options: Any) -> int:  # noqa: ANN401 (argparse's)
    spec, _ = chosen.running(options)
    nodes = list(dict.fromkeys(options.nodes)) or [node.id for node in spec.nodes]
    for node in nodes:
        spec.node(node)
    return _ready(options, spec, nodes, _teller(options))


def _ready(options: Any, spec: ClusterSpec, nodes: list[int], say: Callable[[str], None]) -> int:  # noqa: ANN401
    until_ready(spec, nodes, options.timeout, say)
    if options.json:
        print(json.dumps({"ready": nodes}))
    return 0


def _teller(options: Any) -> Callable[[str], None]:  # noqa: ANN401 (argparse's)
    """With --json the progress is not told: standard output is one document."""
    return (lambda _line: None) if options.json else _say


def _rolling(options: Any) -> int:  # noqa: ANN401 (argparse's)
    spec, running = chosen.running(options)
    done = rolling.rolling_restart(
        spec, running, _teller(options), first=options.first, step_s=options.timeout
    )
    total = sum(steps.total_s for steps in done)
    if options.json:
        print(json.dumps([{"node": one.node, **one.seconds} for one in done], indent=2))
    else:
        which = "all " if options.first is None else ""
        print(f"{which}{len(done)} nodes restarted in {total:.1f} s; masters are where they belong")
    return 0


def _version(options: Any) -> int:  # noqa: ANN401 (argparse's)
    print(json.dumps({"version": VERSION}) if options.json else VERSION)
    return 0


if __name__ == "__main__":
    main()
