"""`evenkeel generate`: files with which an operator's own tools run nodes as services.

Each file is complete and says what to do with it. Nothing is installed or started.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from cluster.spec import NODES_MAX
from runtime.config.listeners import ALLOWED
from wire.software import VERSION

CONFIGURATIONS: Final = Path("/etc/evenkeel")
STATE: Final = "/var/lib/evenkeel"
GIVE_AWAY_S: Final = 30
"""How long a node may take to stop: it gives its masters away (5 s), and closes its log."""
KAFKA_PORT, PEER_PORT, HTTP_PORT = 9092, 7092, 8092
USER: Final = "evenkeel"


class GenerateError(ValueError):
    """The files cannot be as asked; the message says why."""


def add_commands(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="WHAT", required=True)

    def action(name: str, do: Callable[[Any], int], text: str) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        sub.set_defaults(do=do)
        return sub

    unit = action("systemd", _systemd, "print a systemd unit")
    which = unit.add_mutually_exclusive_group()
    which.add_argument(
        "--template", action="store_true", help="for several nodes on a machine: evenkeel@.service"
    )
    which.add_argument(
        "--machine", action="store_true", help="for all nodes of a machine: evenkeel machine start"
    )
    unit.add_argument("--user", default=USER, metavar="NAME", help=f"who runs it ({USER})")
    unit.add_argument("--command", type=Path, metavar="FILE", help="the command (this one)")

    compose = action(
        "compose", _compose, "write a Containerfile, a compose file, and configurations"
    )
    compose.add_argument("--to", type=Path, required=True, metavar="DIR", help="a folder for them")
    compose.add_argument("-n", "--nodes", type=int, default=3, metavar="N", help="nodes (3)")
    compose.add_argument(
        "--host",
        default="127.0.0.1",
        help="the address under which clients reach this machine (127.0.0.1: clients on it)",
    )


# --- systemd -------------------------------------------------------------------------------------

UNIT: Final = """\
# Evenkeel {version}, written by: evenkeel generate systemd{option}
# Put it into /etc/systemd/system/{file}, then:
#   useradd --system {user}
#   systemctl daemon-reload
#   systemctl enable --now {example}
# The configuration is {config}; its {room}.data_dir is below {state}.
[Unit]
Description=Evenkeel, {what}
Wants=network-online.target
After=network-online.target time-sync.target

[Service]
Type=exec
User={user}
ExecStart={command} {start} --config {config}
# A bad configuration, a refused directory and a failed disk are for a person to look at.
Restart=on-failure
RestartSec=2
RestartPreventExitStatus=2 3 74
# SIGTERM: it gives its masters to other nodes, then closes its log.
KillSignal=SIGTERM
KillMode=mixed
TimeoutStopSec={stop_s}
SyslogIdentifier={identifier}
StateDirectory=evenkeel
StateDirectoryMode=0700
UMask=0077
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
LockPersonality=yes
RestrictSUIDSGID=yes

[Install]
WantedBy=multi-user.target
"""


def _systemd(options: Any) -> int:  # noqa: ANN401 (argparse's)
    command = _command(options.command)
    text = unit(command, options.user, template=options.template, machine=options.machine)
    print(text, end="")
    return 0


def unit(command: Path, user: str, *, template: bool, machine: bool = False) -> str:
    """The unit of a node; with `template`, of node N as the instance `evenkeel@N`; with `machine`,
    of all nodes of a machine, which it runs itself.

    Raises:
        GenerateError: systemd would not take the user's name.
    """
    if not re.fullmatch(r"[a-zA-Z_][\w-]{0,30}", user):
        raise GenerateError(f"--user {user!r} is no name of a user")
    file = "node-%i.toml" if template else "machine.toml" if machine else "node.toml"
    return UNIT.format(
        version=VERSION,
        option=" --template" if template else " --machine" if machine else "",
        file="evenkeel@.service" if template else "evenkeel.service",
        example="evenkeel@1 evenkeel@2" if template else "evenkeel",
        what="node %i" if template else "the nodes of a machine" if machine else "a node",
        command=escaped(str(command)),
        start="machine start" if machine else "node start",
        config=CONFIGURATIONS / file,
        room="machine" if machine else "node",
        identifier="evenkeel-%i" if template else "evenkeel",
        user=user,
        state=STATE,
        stop_s=GIVE_AWAY_S,
    )


def escaped(path: str) -> str:
    """A path as a word of ExecStart: some characters have a meaning there (systemd.service(5))."""
    if any(ord(character) < 32 for character in path):
        raise GenerateError(f"{path!r}: systemd has no such paths")
    for character, meant in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        path = path.replace(character, meant)
    return f'"{path}"' if re.search(r"[\s'\"\\;]", path) else path


def _command(given: Path | None) -> Path:
    """The command's own file: systemd has neither a working directory nor a PATH of ours."""
    if given is not None:
        return given.absolute()
    called = Path(sys.argv[0]).absolute()
    return called if called.name == "evenkeel" else Path(sys.executable).with_name("evenkeel")


# --- containers ----------------------------------------------------------------------------------

CONTAINERFILE: Final = """\
# Evenkeel {version}, written by: evenkeel generate compose
# The wheel must be in this folder: evenkeel-{version}-py3-none-any.whl (make wheel).
FROM docker.io/library/python:3.11-slim
COPY evenkeel-{version}-py3-none-any.whl /tmp/
RUN pip install --no-cache-dir /tmp/evenkeel-{version}-py3-none-any.whl \\
    && rm /tmp/evenkeel-*.whl \\
    && useradd --system --uid 10001 {user} \\
    && install --directory --owner={user} --mode=0700 {state}
USER {user}
VOLUME {state}
ENTRYPOINT ["evenkeel"]
CMD ["node", "start", "--config", "{config}"]
STOPSIGNAL SIGTERM
"""
IS_READY: Final = (
    "import urllib.request as http; "
    f"http.urlopen('http://127.0.0.1:{HTTP_PORT}/readyz', timeout=2)"  # fails for a 503
)


def _compose(options: Any) -> int:  # noqa: ANN401 (argparse's)
    files = container_files(options.nodes, options.host)
    folder: Path = options.to
    there = [name for name in files if folder.joinpath(name).exists()]
    if there:
        raise GenerateError(f"{folder} has {', '.join(there)} already; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        folder.joinpath(name).write_text(text, encoding="utf-8")
    print(f"written: {', '.join(files)}")
    print(f"copy evenkeel-{VERSION}-py3-none-any.whl to {folder}, then, in that folder:")
    print("  docker compose up --build --detach    # or podman compose")
    print(f"bootstrap servers: {','.join(addresses(options.nodes, options.host))}")
    return 0


def addresses(nodes: int, host: str) -> list[str]:
    """Where clients reach the nodes; each has a port of its own on the machine."""
    shown = f"[{host}]" if ":" in host else host
    return [f"{shown}:{KAFKA_PORT + node}" for node in range(nodes)]


def container_files(nodes: int, host: str) -> Mapping[str, str]:
    """Name -> contents of a folder with which a cluster runs in containers on one machine.

    Raises:
        GenerateError: the cluster cannot have so many nodes, or this is no host.
    """
    if not 1 <= nodes <= NODES_MAX:
        raise GenerateError(f"{nodes} nodes: a cluster in containers has 1 to {NODES_MAX}")
    if not re.fullmatch(r"[\w.:-]+", host):
        raise GenerateError(f"--host {host!r}: expected the name or the address of a machine")
    names = {"version": VERSION, "user": USER, "state": STATE}
    files = {
        "Containerfile": CONTAINERFILE.format(config=CONFIGURATIONS / "node.toml", **names),
        "compose.yaml": _compose_file(nodes, host),
    }
    for node, advertised in enumerate(addresses(nodes, host), 1):
        files[f"node-{node}.toml"] = _configuration(node, nodes, advertised)
    return files


def _compose_file(nodes: int, host: str) -> str:
    published = "127.0.0.1:" if host in ("127.0.0.1", "localhost") else ""
    lines = [f"# Evenkeel {VERSION}, written by: evenkeel generate compose", "services:"]
    for node in range(1, nodes + 1):
        port = KAFKA_PORT + node - 1
        lines += [
            f"  node-{node}:",
            f"    image: evenkeel:{VERSION}",
            "    build:",
            "      context: .",
            "      dockerfile: Containerfile",
            f"    hostname: node-{node}",
            "    restart: on-failure",
            f"    stop_grace_period: {GIVE_AWAY_S}s",
            "    ports:",
            f'      - "{published}{port}:{port}"',
            "    volumes:",
            f"      - ./node-{node}.toml:{CONFIGURATIONS / 'node.toml'}:ro",
            f"      - node-{node}:{STATE}",
            "    healthcheck:",
            f"      test: {json.dumps(['CMD', 'python', '-c', IS_READY])}",
            "      interval: 5s",
            "      start_period: 30s",
        ]
    return "\n".join([*lines, "volumes:", *(f"  node-{node}:" for node in range(1, nodes + 1)), ""])


def _configuration(node: int, nodes: int, advertised: str) -> str:
    port = KAFKA_PORT + node - 1
    return "\n".join(
        [
            f"# Evenkeel {VERSION}, written by: evenkeel generate compose",
            "[node]",
            f"id = {node}",
            'cluster_id = "compose"',
            f'data_dir = "{STATE}/node-{node}"',
            "[listen]",
            f'kafka = "0.0.0.0:{port}"',
            f'advertised_kafka = "{advertised}"',
            f'peer = "0.0.0.0:{PEER_PORT}"',
            f'http = "127.0.0.1:{HTTP_PORT}"',
            *ALLOWED,
            "[groups]",
            f'founders = "{",".join(map(str, range(1, nodes + 1)))}"',
            "[peers]",
            *(f'{peer} = "node-{peer}:{PEER_PORT}"' for peer in range(1, nodes + 1)),
            "",
        ]
    )
