"""`evenkeel balance`: show the balancer, ask it for a plan, control it.

It asks any running node: all of them know the registry, and a change is a proposal on its log.
"""

import argparse
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from cli import balance_view
from cli.clusters import reach
from cli.clusters import target as chosen

PAUSES: Final = {
    "pause": "move no master",
    "stop": "the same as pause",
    "resume": "move masters again",
    "continue": "the same as resume",
}


class BalanceError(RuntimeError):
    """What was requested makes no sense here; the message says why."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The older flags, and one subcommand for each of an operator's tasks."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--all-on", type=int, metavar="N", help="move all masters to node N")
    what.add_argument("--even", action="store_true", help="the same as `run`")
    what.add_argument("--pause", action="store_true", help="the same as `pause`")
    what.add_argument("--resume", action="store_true", help="the same as `resume`")
    chosen.add_options(parser, changes=False, http=True)
    _add_common(parser)
    parser.set_defaults(action=_flags)
    actions = parser.add_subparsers(metavar="ACTION")

    def action(
        name: str,
        do: Callable[[Any], int],
        text: str,
        *,
        changes: bool = True,
    ) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        sub.set_defaults(action=do, changes=changes)
        # No default: one given before the subcommand counts as well.
        chosen.add_options(sub, changes=changes, http=True, again=True)
        _add_common(sub, default=argparse.SUPPRESS)
        return sub

    looks = partial(action, changes=False)
    looks("show", _show, "show masters, ideal nodes, and why each moves or not")
    plan = looks("plan", _plan, "show the plan for now")
    plan.add_argument("--dry-run", action="store_true", help="change nothing (it never does)")
    plan.add_argument("--explain", action="store_true", help="also show what stays, and why")
    plan.add_argument(
        "--without", type=int, action="append", default=[], metavar="N", help="if node N died"
    )
    action("run", _run, "make a plan, adopt it, and keep planning automatically")
    for name, text in PAUSES.items():
        sub = action(name, _pause, f"{text}, or that of one Paxos group")
        sub.add_argument("--group", type=int, metavar="G")
        sub.set_defaults(paused=name in ("pause", "stop"))
    move = action("move", _move, "move one Paxos group to a node and keep it there")
    move.add_argument("group", type=int, metavar="G")
    move.add_argument("node", type=int, nargs="?", metavar="N")
    move.add_argument("--unpin", action="store_true", help="give it back to the planner")
    for name, text in (("drain", "move all masters away from a node"), ("undrain", "end a drain")):
        sub = action(name, _drain, text)
        sub.add_argument("node", type=int, metavar="N")
        sub.set_defaults(draining=name == "drain")
    action("cancel", _cancel, "cancel the running steal before its handover")
    policy = action("policy", _policy, "show or change the balancer's policy")
    policy.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="e.g. evenness=weight")
    looks("history", _history, "show the last plans and steals with their reasons")


def _add_common(parser: argparse.ArgumentParser, **default: Any) -> None:  # noqa: ANN401
    parser.add_argument("--json", action="store_true", help="for programs", **default)
    chosen.timeout_option(parser, **default)


def run(options: Any) -> int:  # noqa: ANN401 (argparse's)
    code: int = options.action(options)
    return code


# --- asking --------------------------------------------------------------------------------------


def _asked(options: Any, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401
    return reach.of(options).ask(method, path, body)


def _print(options: Any, answer: object, text: str) -> int:  # noqa: ANN401
    print(json.dumps(answer, indent=2) if getattr(options, "json", False) else text)
    return 0


def _done(options: Any, text: str, answer: Mapping[str, Any]) -> int:  # noqa: ANN401
    if options.json:
        print(json.dumps({"done": text, **answer}, indent=2))
        return 0
    version = f" (version {answer['version']})" if "version" in answer else ""
    print(f"{text}{version}; watch with: evenkeel status")
    return 0


# --- actions -------------------------------------------------------------------------------------


def _flags(options: Any) -> int:  # noqa: ANN401
    options.changes = options.all_on is not None or options.even or options.pause or options.resume
    if options.all_on is not None:
        cluster = reach.of(options)
        if cluster.spec is not None:
            cluster.spec.node(options.all_on)
        answer = cluster.ask("POST", "/admin/placement", {"all_on": options.all_on})
        others = answer.get("without_replica", [])
        has_not = f"but it has no replica of {len(others)} Paxos groups: they stay where they are"
        what = f"all masters belong on node {options.all_on}" + (f", {has_not}" if others else "")
        return _done(options, what, answer)
    if options.even:
        answer = _asked(options, "POST", "/admin/placement", {"even": True})
        return _done(options, "masters belong evenly spread", answer)
    if not options.pause and not options.resume:
        return _show(options)
    options.paused, options.group = options.pause, None
    return _pause(options)


def _show(options: Any) -> int:  # noqa: ANN401
    answer = _asked(options, "GET", "/balancer")
    return _print(options, answer, balance_view.show(answer))


def _plan(options: Any) -> int:  # noqa: ANN401
    answer = _asked(options, "POST", "/admin/plan", {"dry_run": True, "without": options.without})
    text = balance_view.plan(answer, options.without, explain=options.explain)
    return _print(options, answer, text)


def _run(options: Any) -> int:  # noqa: ANN401
    answer = _asked(options, "POST", "/admin/plan", {"dry_run": False})
    text = balance_view.plan(answer, (), explain=False)
    return _print(options, answer, f"{text}\n\nadopted; watch with: evenkeel status")


def _pause(options: Any) -> int:  # noqa: ANN401
    body: dict[str, Any] = {"paused": options.paused}
    if options.group is not None:
        body["group"] = options.group
    answer = _asked(options, "POST", "/admin/balancer", body)
    what = "the balancer" if options.group is None else f"Paxos group {options.group}"
    return _done(options, f"{what} {'is paused' if options.paused else 'goes on'}", answer)


def _move(options: Any) -> int:  # noqa: ANN401
    if (options.node is None) != options.unpin:
        raise BalanceError("name a node, or --unpin: evenkeel balance move G N, or move G --unpin")
    body = {"group": options.group, "node": options.node}
    answer = _asked(options, "POST", "/admin/move", body)
    group = f"Paxos group {options.group}"
    done = f"{group} is the planner's again" if options.unpin else f"{group} is pinned to node "
    return _done(options, done if options.unpin else f"{done}{options.node}", answer)


def _drain(options: Any) -> int:  # noqa: ANN401
    body = {"node": options.node, "draining": options.draining}
    answer = _asked(options, "POST", "/admin/drain", body)
    what = "drains" if options.draining else "gets its share again"
    return _done(options, f"node {options.node} {what}", answer)


def _cancel(options: Any) -> int:  # noqa: ANN401
    answer = _asked(options, "POST", "/admin/cancel", {})
    return _done(
        options,
        "the running steal is cancelled; its Paxos group is tried again after a while",
        answer,
    )


def _policy(options: Any) -> int:  # noqa: ANN401
    options.changes = bool(options.settings)
    if options.settings:
        changes = dict(_setting(one) for one in options.settings)
        return _done(options, "policy set", _asked(options, "POST", "/admin/policy", changes))
    policy = _asked(options, "GET", "/balancer")["policy"]
    if options.json:
        print(json.dumps(policy, indent=2))
        return 0
    for name, value in policy.items():
        print(f"{name}={json.dumps(value)}")
    return 0


def _setting(text: str) -> tuple[str, Any]:
    """`name=value`; a value that is not JSON is a string, `a,b` for zones."""
    name, equals, raw = text.partition("=")
    if not equals:
        raise BalanceError(f"{text!r}: expected name=value")
    try:
        value: Any = json.loads(raw)
    except ValueError:
        value = raw
    if name == "preferred_zones" and isinstance(value, str):
        value = [zone for zone in value.split(",") if zone]
    return name, value


def _history(options: Any) -> int:  # noqa: ANN401
    answer = _asked(options, "GET", "/balancer")
    shown = {name: answer[name] for name in ("plans", "replica_changes", "steals")}
    return _print(options, shown, balance_view.history(answer))
