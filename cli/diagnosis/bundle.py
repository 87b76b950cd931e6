"""`evenkeel debug bundle`: what somebody else needs to understand a problem, in one file.

It has what the nodes tell over HTTP and, for a local cluster, configurations and the ends of the
logs. It has no records, no environment and no data directory; values of settings whose names sound
like secrets are blanked out. Names of topics, consumer groups and hosts are in it.
"""

import argparse
import io
import json
import platform
import re
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cli.clusters import reach
from cli.clusters import target as chosen
from cli.diagnosis import doctor
from cluster import health
from cluster.spec import ClusterSpec
from wire.software import VERSION

PATHS: Final = ("/status", "/nodes", "/balancer", "/usage", "/metrics", "/readyz")
LOG_BYTES_MAX: Final = 1024 * 1024
SECRET: Final = re.compile(
    rb"(?im)^(?P<name>[^\n=:]*(?:password|passwd|secret|credential|private|scram|sasl|api[_-]?key)"
    rb"[^\n=:]*)(?P<is>[=:])[^\n]*$"
)
IN_JSON: Final = re.compile(
    rb"(?i)(\"[^\"\n]*(?:password|passwd|secret|credential|private|scram|sasl|api[_-]?key)[^\"\n]*\""
    rb"\s*:\s*)(\"(?:[^\"\\\n]|\\.)*\"|[^,}\n]+)"
)
BLANK: Final = b"(blanked)"


class BundleError(RuntimeError):
    """The bundle cannot be written; the message says why."""


def add_commands(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    text = "collect what nodes tell, configurations and logs in one file, without secrets"
    sub = actions.add_parser("bundle", help=text, description=text[0].upper() + text[1:] + ".")
    sub.set_defaults(do=run)
    text = "the file (evenkeel-debug-TIME.tar.gz)"
    sub.add_argument("--to", type=Path, metavar="FILE", help=text)
    sub.add_argument("--json", action="store_true", help="for programs")
    text = f"seconds to wait for each answer ({doctor.TRY_S:g})"
    sub.add_argument("--timeout", type=chosen.seconds, default=doctor.TRY_S, metavar="S", help=text)
    chosen.add_options(sub, changes=False, http=True)


def run(options: Any) -> int:  # noqa: ANN401 (argparse's)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    path: Path = options.to or Path(f"evenkeel-debug-{stamp}.tar.gz")
    if path.exists():
        raise BundleError(f"{path} exists already; choose another file with --to")
    files = dict(collected(options))
    with tarfile.open(path, "x:gz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"evenkeel-debug/{name}")
            entry.size, entry.mtime = len(data), int(time.time())
            archive.addfile(entry, io.BytesIO(data))
    path.chmod(0o600)
    if options.json:
        print(json.dumps({"file": str(path), "contents": sorted(files)}, indent=2))
        return 0
    print(f"{path}: {len(files)} files, {path.stat().st_size} bytes")
    print("It has no records and no secrets, but names of topics, groups and hosts.")
    return 0


def collected(options: Any) -> Iterator[tuple[str, bytes]]:  # noqa: ANN401 (argparse's)
    """Name -> contents. A node that does not answer has its reason in place of its answers."""
    yield "about.txt", _about().encode()
    found = doctor.examine(options)
    yield "doctor.txt", ("\n".join(found.right) + "\n" + doctor.lines(found.findings)).encode()
    spec, _ = reach.nodes_of(reach.of(options), each_s=options.timeout)
    for node in spec.nodes:
        for path in PATHS:
            name = f"node-{node.id}/{path.strip('/')}"
            try:
                _, data = health.request(node.http, "GET", path, timeout_s=options.timeout)
            except health.HealthError as error:
                yield f"node-{node.id}/silent.txt", f"{error}\n".encode()
                break
            yield name, blanked(data)
    if chosen.of(options).path is not None:
        yield from _local(spec)


def _about() -> str:
    return "\n".join(
        (
            f"evenkeel {VERSION}",
            f"python {platform.python_version()}",
            f"system {platform.platform()}",
            f"time {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}",
            "",
        )
    )


def _local(spec: ClusterSpec) -> Iterator[tuple[str, bytes]]:
    for name in ("cluster.json", "state.json"):
        path = spec.data_dir / name
        if path.exists():
            yield name, blanked(path.read_bytes())
    for node in spec.nodes:
        config, log = spec.config_path(node.id), spec.log_path(node.id)
        if config.exists():
            yield config.name, blanked(config.read_bytes())
        if log.exists():
            yield log.name, blanked(_tail(log))


def _tail(path: Path) -> bytes:
    """Whole lines from the end of a log."""
    with path.open("rb") as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(max(0, size - LOG_BYTES_MAX))
        data = file.read(LOG_BYTES_MAX)
    return data if size <= LOG_BYTES_MAX else data.partition(b"\n")[2]


def blanked(data: bytes) -> bytes:
    """Without the values of what sounds like a secret, in JSON and in files of settings."""
    data = IN_JSON.sub(lambda found: found[1] + b'"' + BLANK + b'"', data)
    return SECRET.sub(
        lambda found: (
            found[0]
            if found["name"].lstrip()[:1] in (b"{", b'"', b"#", b"[")
            else found["name"] + found["is"] + b" " + BLANK
        ),
        data,
    )
