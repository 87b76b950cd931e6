"""Where commands get a password from: never from the command line, which others can see.

A file, or the input (`--password-file -`); else the variable EVENKEEL_PASSWORD; else it is asked
for, without an echo, if there is a terminal.
"""

import argparse
import getpass
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cli.clusters.kafka_commands import ClientError

VARIABLE: Final = "EVENKEEL_PASSWORD"
BYTES_MAX: Final = 1_024
GENERATED_BYTES: Final = 24
"""192 bits: nobody needs to remember it."""


def add_option(parser: Any) -> None:  # noqa: ANN401 (argparse's, or a group of it)
    text = f"its first line is the password; - is the input (default: {VARIABLE}, or ask)"
    parser.add_argument("--password-file", metavar="FILE", help=text)


def of(
    options: argparse.Namespace, env: Mapping[str, str] = os.environ, *, twice: bool = True
) -> str:
    """The password; `twice`: a new one, so typing errors must not go unnoticed.

    Raises:
        ClientError: if there is none, or it can be none.
    """
    password = _found(options.password_file, env, twice)
    if not password:
        raise ClientError("the password is empty")
    if len(password.encode("utf-8", "surrogateescape")) > BYTES_MAX or "\0" in password:
        raise ClientError(f"a password has up to {BYTES_MAX} bytes, and none of them is zero")
    return password


def generated() -> str:
    return secrets.token_urlsafe(GENERATED_BYTES)


def _found(file: str | None, env: Mapping[str, str], twice: bool) -> str:
    if file == "-":
        return sys.stdin.readline(BYTES_MAX + 2).rstrip("\r\n")
    if file is not None:
        try:
            with Path(file).open(encoding="utf-8") as opened:
                return opened.readline(BYTES_MAX + 2).rstrip("\r\n")
        except UnicodeDecodeError:
            raise ClientError(f"{file} is not UTF-8") from None
        except OSError as error:
            raise ClientError(f"{file}: {error.strerror}") from error
    if env.get(VARIABLE):
        return env[VARIABLE]
    if not sys.stdin.isatty():
        raise ClientError(
            "there is no terminal to ask for the password: --password-file FILE, or - for the input"
        )
    first = getpass.getpass("Password: ")
    if twice and first != getpass.getpass("Again: "):
        raise ClientError("these are two different passwords")
    return first
