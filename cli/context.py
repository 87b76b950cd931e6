"""`evenkeel context` and `evenkeel profile`: names for clusters, with the way to log in, so that
every command can be told which one is meant.

The two are one thing with two names: a profile is what others call a context.
"""

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from cli.clusters import contexts, credentials, logins, passwords, reach
from cli.clusters import target as chosen
from cli.clusters.contexts import Context, ContextError, Contexts
from cli.clusters.kafka_commands import print_json, table
from cluster import health, state
from cluster.spec import read as spec_of
from evenkeel import Admin, AuthenticationError, ClientConfig, EvenkeelError, properties
from wire.client_settings import PREFIXES, Mechanism

ASK_MS: Final = 2_000
KEPT: Final = (*PREFIXES, "http.")
"""What is kept of a properties file: how to log in to brokers, and to nodes' HTTP ports."""
MECHANISM: Final = Mechanism.SCRAM_SHA_512.value


def add_profile_commands(parser: argparse.ArgumentParser) -> None:
    add_commands(parser, remove="delete")


def add_commands(parser: argparse.ArgumentParser, *, remove: str = "remove") -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    def action(name: str, do: Callable[[Any], int], text: str) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        sub.set_defaults(do=do, changes=False)
        sub.add_argument("--json", action="store_true", help="for programs")
        return sub

    add = action("add", _add, "give a cluster a name")
    add.add_argument("name", metavar="NAME")
    text = "the nodes' HTTP addresses, as this machine reaches them"
    add.add_argument("--http", metavar="HOST:PORT,...", help=text)
    text = "the nodes' Kafka addresses"
    add.add_argument("--bootstrap", metavar="HOST:PORT,...", help=text)
    text = "instead of addresses: the directory of a cluster on this machine"
    add.add_argument("--data", type=Path, metavar="DIR", help=text)
    add.add_argument("--replace", action="store_true", help="also if the name exists")
    _login_options(add)
    use = action("use", _use, "make a context the current one: it is meant where nothing else is")
    which = use.add_mutually_exclusive_group(required=True)
    which.add_argument("name", metavar="NAME", nargs="?")
    which.add_argument("--none", action="store_true", help="have no current context")
    action("list", _list, "list the contexts")
    gone = action(remove, _remove, "forget a context; its cluster stays as it is")
    gone.add_argument("name", metavar="NAME")
    show = action("show", _show, "show which cluster a command means here, and why; or one by name")
    show.add_argument("name", metavar="NAME", nargs="?")
    show.add_argument("--context", metavar="NAME", help=chosen.CONTEXT, default=argparse.SUPPRESS)


def _login_options(parser: argparse.ArgumentParser) -> None:
    """Copied into a file that only its owner may read."""
    group = parser.add_argument_group("how to log in")
    text = "as Kafka's own tools do: with a copy of this properties file"
    group.add_argument("--command-config", type=Path, metavar="FILE", help=text)
    group.add_argument("--user", metavar="NAME", help="with a name and a password")
    passwords.add_option(group)
    text = f"how the password is proved ({MECHANISM})"
    names = [one.value for one in Mechanism if one.has_password]
    group.add_argument("--mechanism", choices=names, default=MECHANISM, help=text)
    group.add_argument("--ca", type=Path, metavar="FILE", help="whom to believe, in PEM")
    text = "our certificate and its key, in PEM"
    group.add_argument("--certificate", type=Path, metavar="FILE", help=text)
    group.add_argument("--key", type=Path, metavar="FILE", help="where the key is not in there")
    text = "without TLS: whoever can listen in sees what we read and write"
    group.add_argument("--no-tls", action="store_true", help=text)


def _login(options: Any) -> dict[str, str]:  # noqa: ANN401 (argparse's)
    """The settings of security that the options mean; nothing if they mean none.

    Raises:
        ContextError: if they contradict each other.
    """
    files = {
        "ssl.ca.location": options.ca,
        "ssl.certificate.location": options.certificate,
        "ssl.key.location": options.key,
    }
    given = {name: str(path) for name, path in files.items() if path is not None}
    if options.command_config is not None:
        if given or options.user or options.password_file or options.no_tls:
            raise ContextError("--command-config says it all: leave out the other ways to log in")
        return {
            name: value
            for name, value in properties.read(options.command_config).items()
            if name.lower().startswith(KEPT)
        }
    if options.no_tls and given:
        raise ContextError("--no-tls leaves no use for --ca, --certificate and --key")
    if options.user is None:
        if options.password_file is not None:
            raise ContextError("--password-file needs --user")
        return {"security.protocol": "SSL", **given} if given else {}
    return {
        "security.protocol": "SASL_PLAINTEXT" if options.no_tls else "SASL_SSL",
        "sasl.mechanism": options.mechanism,
        "sasl.username": options.user,
        "sasl.password": passwords.of(options, twice=False),
        **given,
    }


def _add(options: Any) -> int:  # noqa: ANN401 (argparse's)
    known = contexts.read()
    if not contexts.NAME.fullmatch(options.name):
        raise ContextError(
            f"'{options.name}': a name has up to 64 letters, digits, '.', '_' or '-', and begins "
            "with a letter or a digit"
        )
    if options.name in known.known and not options.replace:
        raise ContextError(
            f"{known.known[options.name].told} exists already; to change it, add --replace"
        )
    login = _login(options)
    if not options.http or options.bootstrap or "security.protocol" in login:
        ClientConfig.from_properties(login)  # what is wrong is told before anybody is asked
    made = _asked(_made(options), login)
    if login:
        made = attrs.evolve(made, command_config=logins.keep(made.name, login))
    else:
        logins.forget(made.name)
    contexts.write(attrs.evolve(known, known={**known.known, made.name: made}))
    unknown = "" if made.cluster_id else "; it did not answer, so its cluster id is not known"
    _tell(options, f"{made.told} was added{unknown}", made)
    return 0


def _made(options: Any) -> Context:  # noqa: ANN401 (argparse's)
    if options.data is not None:
        if options.http or options.bootstrap:
            raise ContextError("a cluster on this machine has a directory: --data alone is enough")
        path = state.find(options.data, os.environ, follow=False).path
        return Context(name=options.name, data=path)
    if not options.http and not options.bootstrap:
        raise ContextError("say how to reach the cluster: --bootstrap, --http, or --data")
    return Context(
        name=options.name,
        bootstrap=contexts.checked_bootstrap(options.bootstrap) if options.bootstrap else "",
        http=contexts.http_addresses(options.http) if options.http else (),
    )


def _asked(context: Context, login: Mapping[str, str]) -> Context:
    """With the id of its cluster, if one of its nodes tells it.

    Raises:
        ContextError: if its addresses belong to two clusters.
    """
    if context.data is not None:
        return attrs.evolve(context, cluster_id=spec_of(context.data).cluster_id)
    credentials.use_settings(context.http, login, "what was given to log in")
    told: dict[str, str] = {}
    for address in context.http:
        with suppress(health.HealthError):
            answer = reach.status_of(address, health.TIMEOUT_S)
            told[f"http {address}"] = answer["cluster_id"]
    for word in context.bootstrap.split(",") if context.bootstrap else ():
        try:  # each of them: a client begins with whichever is there
            told[word] = trio.run(_kafka_id, word, login)
        except AuthenticationError as error:
            print(f"evenkeel: {error}", file=sys.stderr)
        except EvenkeelError:
            continue  # it is told that the id is not known
    ids = sorted({ident for ident in told.values() if ident})
    if len(ids) > 1:
        which = "; ".join(f"{where} is {ident}" for where, ident in told.items())
        raise ContextError(f"these are addresses of different clusters: {which}")
    return attrs.evolve(context, cluster_id=ids[0] if ids else "")


async def _kafka_id(bootstrap: str, login: Mapping[str, str]) -> str:
    config = ClientConfig.from_properties(
        login,
        operation_timeout_ms=ASK_MS,
        connect_timeout_ms=ASK_MS,
        request_timeout_ms=ASK_MS,
    )
    async with Admin(bootstrap, client=config) as admin:
        return (await admin.describe_cluster()).cluster_id or ""


def _use(options: Any) -> int:  # noqa: ANN401 (argparse's)
    known = contexts.read()
    if options.none:
        contexts.write(attrs.evolve(known, current=""))
        _say_or_json(options, "there is no current context", {"current": None})
        return 0
    context = known.named(options.name)
    contexts.write(attrs.evolve(known, current=context.name))
    note = _stronger()
    _say_or_json(
        options,
        f"{context.told} is the current one" + (f"; but {note}" if note else ""),
        {"current": context.name, "note": note},
    )
    return 0


def _stronger() -> str:
    """What a command obeys here before the current context, or ""."""
    name = os.environ.get(contexts.VARIABLE)
    if name:
        return f"{contexts.VARIABLE}={name} comes first in this shell"
    if (state.DEFAULT_DATA_DIR / "cluster.json").exists():
        return "in this folder ./data comes first: use --context here"
    return ""


def _list(options: Any) -> int:  # noqa: ANN401 (argparse's)
    known = contexts.read()
    if options.json:
        print_json(_listed(known))
        return 0
    rows = [
        ("*" if name == known.current else "", name, one.cluster_id or None, _where(one))
        for name, one in sorted(known.known.items())
    ]
    print(table(("", "context", "cluster", "where"), rows) if rows else "no contexts")
    return 0


def _where(context: Context) -> str:
    """On a line of a terminal: the first address, and how many more there are."""
    if context.data is not None:
        return str(context.data)
    words = context.bootstrap.split(",") if context.bootstrap else [*map(str, context.http)]
    return words[0] + (f" and {len(words) - 1} more" if len(words) > 1 else "")


def _listed(known: Contexts) -> list[dict[str, object]]:
    return [
        {"context": name, "current": name == known.current, **one.to_json()}
        for name, one in sorted(known.known.items())
    ]


def _remove(options: Any) -> int:  # noqa: ANN401 (argparse's)
    known = contexts.read()
    context = known.named(options.name)
    rest = {name: one for name, one in known.known.items() if name != context.name}
    current = "" if known.current == context.name else known.current
    contexts.write(Contexts(rest, current))
    logins.forget(context.name)
    _tell(options, f"{context.told} was removed; its cluster stays as it is", context)
    return 0


def _show(options: Any) -> int:  # noqa: ANN401 (argparse's)
    if options.name is not None:
        return _show_one(options)
    target = chosen.of(options)
    value = {
        "means": target.where,
        "because_of": target.why,
        "context": target.context or None,
        "cluster_id": target.cluster_id or None,
        "data": None if target.path is None else str(target.path),
        "bootstrap": target.bootstrap or None,
        "http": [str(one) for one in target.http],
        "command_config": None if target.command_config is None else str(target.command_config),
    }
    logs_in = "" if target.command_config is None else f"\nlogs in with {target.command_config}"
    _say_or_json(options, f"{target.where}\nnamed by {target.why}{logs_in}", value)
    return 0


def _show_one(options: Any) -> int:  # noqa: ANN401 (argparse's)
    """Without its secrets."""
    if getattr(options, "context", None) is not None:
        raise ContextError("NAME and --context name two clusters: give one of them")
    known = contexts.read()
    context = known.named(options.name)
    settings = (
        {} if context.command_config is None else logins.shown(logins.kept(context.command_config))
    )
    if options.json:
        value = {"context": context.name, "current": known.current == context.name}
        print_json({**value, **context.to_json(), "settings": settings})
        return 0
    rows = [("cluster id", context.cluster_id), ("bootstrap", context.bootstrap)]
    rows += [("http", ",".join(map(str, context.http))), ("data", str(context.data or ""))]
    rows += [("logs in with", str(context.command_config or "")), *settings.items()]
    print(table((context.name, ""), [row for row in rows if row[1]]))
    return 0


def _tell(options: Any, text: str, context: Context) -> None:  # noqa: ANN401 (argparse's)
    _say_or_json(options, text, {"context": context.name, **context.to_json()})


def _say_or_json(options: Any, text: str, value: object) -> None:  # noqa: ANN401 (argparse's)
    if options.json:
        print_json(value)
    else:
        print(text)
