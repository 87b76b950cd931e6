"""`evenkeel cert`: an authority of one's own, and certificates of nodes and clients from it.

`init` makes the authority, once for a cluster; its key stays where it is. `node` makes what a node
needs for `[tls]`, with the names and addresses that clients connect to; `client` what a client
needs to be somebody. Files that are there already are never overwritten.
"""

import argparse
import datetime
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from cluster.certificates import AUTHORITY_CERTIFICATE, Authority, CertificateProblem

AUTHORITY_DAYS: Final = 3650
DAYS: Final = 397
"""A year and a month: long enough to be changed once a year."""
DAYS_MAX: Final = 36_500
FAILED: Final = 1


def add_commands(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    init = actions.add_parser("init", help="make an authority: ca.crt and ca.key")
    init.add_argument("--name", default="Evenkeel", help="its name in the certificate")
    _common(init, AUTHORITY_DAYS)
    node = actions.add_parser("node", help="make a node's certificate and key")
    node.add_argument("name", help="also of the files: node-1 makes node-1.crt and node-1.key")
    text = "a name or IP address that clients connect to; may be repeated"
    node.add_argument("--host", action="append", default=[], required=True, help=text)
    _common(node, DAYS)
    client = actions.add_parser("client", help="make a client's certificate and key")
    client.add_argument("name", help="whom it proves: alice is User:CN=alice")
    _common(client, DAYS)


def _common(parser: argparse.ArgumentParser, days: int) -> None:
    text = "the directory of the files (default: certificates)"
    parser.add_argument("--dir", type=Path, default=Path("certificates"), help=text)
    parser.add_argument("--days", type=_days, default=days, help=f"valid for (default: {days})")
    parser.set_defaults(do=run)


def _days(text: str) -> int:
    days = int(text)
    if not 0 < days <= DAYS_MAX:
        raise argparse.ArgumentTypeError(f"1 to {DAYS_MAX}")
    return days


def run(options: Any) -> int:  # noqa: ANN401 (argparse's)
    try:
        _ACTIONS[options.action](options, datetime.datetime.now(datetime.UTC))
    except CertificateProblem as error:
        print(f"evenkeel cert: {error}", file=sys.stderr)
        return FAILED
    return 0


def _init(options: Any, now: datetime.datetime) -> None:  # noqa: ANN401
    certificate, key = Authority.new(options.name, options.days, now).write(options.dir)
    print(f"{certificate}  for every node and client: whom they believe")
    print(f"{key}  keep it: who has it can be any node and any client")


def _node(options: Any, now: datetime.datetime) -> None:  # noqa: ANN401
    authority = Authority.read(options.dir)
    issued = authority.issue(options.name, options.host, options.days, now, of_node=True)
    certificate, key = issued.write(options.dir, _file_name(options.name))
    print("# for the node's configuration (docs/security.md)")
    print("[tls]")
    print(f'certificate = "{certificate.resolve()}"')
    print(f'key = "{key.resolve()}"')
    print(f'client_authorities = "{(options.dir / AUTHORITY_CERTIFICATE).resolve()}"')


def _client(options: Any, now: datetime.datetime) -> None:  # noqa: ANN401
    authority = Authority.read(options.dir)
    issued = authority.issue(options.name, (), options.days, now)
    certificate, key = issued.write(options.dir, _file_name(options.name))
    print("# for librdkafka and evenkeel --command-config")
    print("security.protocol=ssl")
    print(f"ssl.ca.location={(options.dir / AUTHORITY_CERTIFICATE).resolve()}")
    print(f"ssl.certificate.location={certificate.resolve()}")
    print(f"ssl.key.location={key.resolve()}")


def _file_name(name: str) -> str:
    if not name or any(not (one.isalnum() or one in "._-") for one in name) or name[0] == ".":
        raise CertificateProblem(f"{name!r}: the name is also that of files: letters, digits, ._-")
    return name


_ACTIONS: Final[Mapping[str, Callable[[Any, datetime.datetime], None]]] = {
    "init": _init,
    "node": _node,
    "client": _client,
}
