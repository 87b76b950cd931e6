"""`evenkeel user`: who may log in with a password.

Users are in the cluster's registry (AlterUserScramCredentials, KIP-554), so that every node knows
them; of passwords there are salted keys only. `hash` makes a line of the file of first users,
`security.bootstrap_users_file`, with which the first administrator gets in.
"""

import argparse
import os
from functools import partial
from typing import Any, Final

from balancer.registry.security import user_problem
from broker.security.users import MECHANISM_NAMES, user_line
from cli.clusters import passwords
from cli.clusters.kafka_commands import (
    ClientError,
    add_action,
    open_admin,
    print_json,
    run_work,
    table,
)
from evenkeel import Admin
from evenkeel.admin.users import SALT_BYTES, UserCredentials
from wire.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism, make_credential

DEFAULT: Final = "SCRAM-SHA-512"


def add_commands(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    action = partial(add_action, actions, do=_run)

    add = action("add", _add, "make a user, who may log in at once", changes=True)
    add.add_argument("name", metavar="NAME")
    _mechanism_option(add, f"may be repeated ({DEFAULT})")
    _password_options(add)
    action("list", _list, "list the users, and how they may log in")
    text = "give a user another password; what is connected with the old one is cut off"
    passwd = action("passwd", _passwd, text, changes=True)
    passwd.add_argument("name", metavar="NAME")
    _mechanism_option(passwd, "may be repeated (those that the user has)")
    _password_options(passwd)
    text = "delete users; what they have connected is cut off"
    delete = action("delete", _delete, text, changes=True)
    delete.add_argument("names", metavar="NAME", nargs="+")
    _mechanism_option(delete, "only the password for this one")

    text = "print a line of security.bootstrap_users_file; it has no password, but salted keys"
    hashed = actions.add_parser("hash", help=text, description=text)
    hashed.add_argument("name", help="of the user")
    hashed.add_argument(
        "--mechanism", choices=sorted(MECHANISM_NAMES), default=DEFAULT, help=f"({DEFAULT})"
    )
    passwords.add_option(hashed)
    hashed.set_defaults(do=_hash)


def _mechanism_option(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument(
        "--mechanism",
        choices=sorted(MECHANISM_NAMES),
        action="append",
        default=[],
        help=text,
    )


def _password_options(parser: argparse.ArgumentParser) -> None:
    one = parser.add_mutually_exclusive_group()
    passwords.add_option(one)
    text = "make a password, and print it, once"
    one.add_argument("--generate", action="store_true", help=text)
    text = f"of the hash: {ITERATIONS_MIN} to {ITERATIONS_MAX} ({ITERATIONS_MIN})"
    parser.add_argument(
        "--iterations", type=_iterations, default=ITERATIONS_MIN, metavar="N", help=text
    )


def _iterations(text: str) -> int:
    digits = text.lstrip("0")
    known = text.isdecimal() and len(digits) < 10
    if not known or not ITERATIONS_MIN <= int(digits or 0) <= ITERATIONS_MAX:
        raise argparse.ArgumentTypeError(f"{ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return int(text)


def _run(options: Any) -> int:  # noqa: ANN401 (argparse's)
    if options.work in (_add, _passwd):
        # asked for before there is an event loop, which would take Ctrl-C for itself
        _check_name(options.name)
        options.password = _new_password(options)
    return run_work(options)


async def _add(options: Any) -> int:  # noqa: ANN401 (argparse's)
    password: str = options.password
    mechanisms = [MECHANISM_NAMES[one] for one in dict.fromkeys(options.mechanism or [DEFAULT])]
    async with open_admin(options) as admin:
        if await admin.users([options.name]):
            raise ClientError(
                f"there is a user '{options.name}' already; for another password: "
                f"evenkeel user passwd {options.name}"
            )
        await _give(admin, options, password, mechanisms)
    _tell(options, password, f"user {options.name} was added", mechanisms)
    return 0


async def _passwd(options: Any) -> int:  # noqa: ANN401 (argparse's)
    password: str = options.password
    async with open_admin(options) as admin:
        user = await _existing(admin, options.name)
        names = dict.fromkeys(options.mechanism or user.mechanisms)
        mechanisms = [MECHANISM_NAMES[one] for one in names]
        await _give(admin, options, password, mechanisms)
    _tell(options, password, f"user {options.name} has another password", mechanisms)
    return 0


async def _give(
    admin: Admin,
    options: Any,  # noqa: ANN401 (argparse's)
    password: str,
    mechanisms: list[ScramMechanism],
) -> None:
    await admin.set_password(options.name, password, mechanisms, iterations=options.iterations)


async def _existing(admin: Admin, name: str) -> UserCredentials:
    found = await admin.users([name])
    if not found:
        raise ClientError(
            f"there is no user '{name}' in the cluster (those of a node's own file are not listed);"
            " see: evenkeel user list"
        )
    return found[0]


async def _delete(options: Any) -> int:  # noqa: ANN401 (argparse's)
    names = list(dict.fromkeys(options.names))
    async with open_admin(options) as admin:
        users = [await _existing(admin, name) for name in names]
        for user in users:
            chosen = dict.fromkeys(options.mechanism or user.mechanisms)
            await admin.delete_password(user.name, [MECHANISM_NAMES[one] for one in chosen])
    if options.json:
        print_json([{"user": name, "deleted": True} for name in names])
    else:
        for name in names:
            print(f"user {name} was deleted" if not options.mechanism else f"{name}: deleted")
    return 0


async def _list(options: Any) -> int:  # noqa: ANN401 (argparse's)
    async with open_admin(options) as admin:
        users = sorted(await admin.users(), key=lambda one: one.name)
    if options.json:
        print_json([{"user": one.name, "mechanisms": dict(one.mechanisms)} for one in users])
        return 0
    rows = [
        (user.name, name, iterations)
        for user in users
        for name, iterations in sorted(user.mechanisms.items())
    ]
    print(table(("user", "mechanism", "iterations"), rows) if rows else "no users")
    return 0


def _new_password(options: Any) -> str:  # noqa: ANN401 (argparse's)
    if not options.generate:
        return passwords.of(options)
    if options.json:  # such output is kept in logs
        raise ClientError("--generate prints a password, which --json never does")
    return passwords.generated()


def _tell(
    options: Any,  # noqa: ANN401 (argparse's)
    password: str,
    text: str,
    mechanisms: list[ScramMechanism],
) -> None:
    names = [one.sasl_name for one in mechanisms]
    if options.json:
        print_json({"user": options.name, "mechanisms": names})
        return
    print(f"{text} ({', '.join(names)})")
    if options.generate:
        print(f"password: {password}")


def _check_name(name: str) -> None:
    problem = user_problem(name)
    if problem:
        raise ClientError(f"{name!r} cannot be a user: {problem}")


def _hash(options: Any) -> int:  # noqa: ANN401 (argparse's)
    _check_name(options.name)
    if " " in options.name:
        raise ClientError(f"{options.name!r} cannot be a user of the file: it has a space")
    mechanism = MECHANISM_NAMES[options.mechanism]
    password = passwords.of(options)
    credential = make_credential(mechanism, password, os.urandom(SALT_BYTES), ITERATIONS_MIN)
    print(user_line(options.name, mechanism, credential))
    return 0
