"""`evenkeel user hash`: a line of the file of first users, `security.bootstrap_users_file`.

Further users are added by Kafka's own protocol: `kafka-configs`, or any administration client.
"""

import argparse
import getpass
import os
import sys
from pathlib import Path
from typing import Any, Final

from balancer.registry.security import user_problem
from broker.security.users import MECHANISM_NAMES, user_line
from wire.scram import ITERATIONS_MIN, make_credential

DEFAULT: Final = "SCRAM-SHA-512"
SALT_BYTES: Final = 16
FAILED: Final = 1


def add_commands(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    text = "print a line of security.bootstrap_users_file; it has no password, but salted keys"
    one = actions.add_parser("hash", help=text, description=text)
    one.add_argument("name", help="of the user")
    one.add_argument(
        "--mechanism", choices=sorted(MECHANISM_NAMES), default=DEFAULT, help=f"({DEFAULT})"
    )
    text = "a file with the password in its first line, or - for the input (default: ask for it)"
    one.add_argument("--password-file", metavar="FILE", help=text)
    one.set_defaults(do=_hash)


def _hash(options: Any) -> int:  # noqa: ANN401 (argparse's)
    problem = user_problem(options.name) or ("" if " " not in options.name else "it has a space")
    if problem:
        return _failed(f"{options.name!r} cannot be a user: {problem}")
    try:
        password = _password(options.password_file)
    except OSError as error:
        return _failed(f"{options.password_file}: {error.strerror}")
    if not password:
        return _failed("the password is empty")
    mechanism = MECHANISM_NAMES[options.mechanism]
    credential = make_credential(mechanism, password, os.urandom(SALT_BYTES), ITERATIONS_MIN)
    print(user_line(options.name, mechanism, credential))
    return 0


def _password(file: str | None) -> str:
    if file == "-":
        return sys.stdin.readline().rstrip("\n")
    if file is not None:
        return (Path(file).read_text().splitlines() or [""])[0]
    first = getpass.getpass("Password: ")
    return first if first == getpass.getpass("Again: ") else ""


def _failed(why: str) -> int:
    print(f"evenkeel user: {why}", file=sys.stderr)
    return FAILED
