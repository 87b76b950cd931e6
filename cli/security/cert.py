"""`evenkeel cert`: an authority of one's own, and certificates of nodes and clients from it.

`init` makes the authority, once for a cluster; its key stays where it is. `node` makes what a node
needs for `[tls]`, with the names and addresses that clients connect to, and for `[peer_tls]`, with
the name that proves which node it is (`--node` and `--cluster`); `client` what a client needs to be
somebody. Files that are there already are never overwritten.
"""

import argparse
import datetime
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from cluster.certificates import AUTHORITY_CERTIFICATE, Authority, CertificateProblem
from paxos.ids import NodeId
from runtime.config.sections import NODE_ID_MAX
from runtime.membership.node_names import CLUSTER_ID, NodeName

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
    node.add_argument("--host", action="append", default=[], help=text)
    node.add_argument("--node", type=_node_id, help="its node.id: for links between nodes")
    node.add_argument("--cluster", type=_cluster, help="its node.cluster_id, with --node")
    _common(node, DAYS)
    client = actions.add_parser("client", help="make a client's certificate and key")
    client.add_argument("name", help="whom it proves: alice is User:CN=alice")
    _common(client, DAYS)


def _common(parser: argparse.ArgumentParser, days: int) -> None:
    text = "the directory of the files (default: certificates)"
    parser.add_argument("--dir", type=Path, default=Path("certificates"), help=text)
    parser.add_argument("--days", type=_days, default=days, help=f"valid for (default: {days})")
    parser.set_defaults(do=run)


def _node_id(text: str) -> NodeId:
    node = int(text)
    if not 1 <= node <= NODE_ID_MAX:
        raise argparse.ArgumentTypeError(f"1 to {NODE_ID_MAX}")
    return NodeId(node)


def _cluster(text: str) -> str:
    if not CLUSTER_ID.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no node.cluster_id")
    return text


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
    if (options.node is None) != (options.cluster is None):
        raise CertificateProblem("--node and --cluster belong together: the name has both")
    if options.node is None and not options.host:
        raise CertificateProblem(
            "say what it is for: --host NAME for clients, --node N --cluster ID for other nodes"
        )
    names = [*options.host]
    if options.node is not None:
        names.append(str(NodeName(options.node, options.cluster)))
    authority = Authority.read(options.dir)
    issued = authority.issue(options.name, names, options.days, now, of_node=True)
    certificate, key = issued.write(options.dir, _file_name(options.name))
    files = f'certificate = "{certificate.resolve()}"\nkey = "{key.resolve()}"'
    trusted = (options.dir / AUTHORITY_CERTIFICATE).resolve()
    print("# for the node's configuration (docs/security.md)")
    if options.host:
        print(f'[tls]\n{files}\nclient_authorities = "{trusted}"')
    if options.node is not None:
        print(f'[peer_tls]\n{files}\nauthorities = "{trusted}"')


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
