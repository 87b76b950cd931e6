"""Prometheus beside a local cluster (`evenkeel up --prometheus`): started, supervised, stopped.

The configuration and the rules are those in dashboards/prometheus, copied into the cluster's
directory at every start, beside `targets.json`, which the launcher keeps up to date (spec.save).
What Prometheus collects lies there, too, and is limited in time and bytes. It listens on loopback
only.
"""

import json
import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGTERM
from typing import Final

import trio

import dashboards
from cluster import health
from cluster.process import Process, tail
from cluster.security.directory import ADMINISTRATOR
from cluster.spec import ClusterSpec, some_address
from runtime.config.config import Address

USUAL_PORT: Final = 9090
KEPT: Final = ("--storage.tsdb.retention.time=15d", "--storage.tsdb.retention.size=1GB")
START_S_MAX: Final = 30.0
STOP_S_MAX: Final = 5.0
LOOK_EVERY_S: Final = 0.05
FILES: Final = Path(next(iter(dashboards.__path__))) / "prometheus"


class PrometheusError(RuntimeError):
    """It is not installed or does not start; the message says what to do."""


def find(env: Mapping[str, str]) -> str:
    """The path of the program.

    Raises:
        PrometheusError: if it is not installed.
    """
    found = shutil.which("prometheus", path=env.get("PATH"))
    if found is None:
        raise PrometheusError(
            "--prometheus: there is no program `prometheus` in PATH; install it (Debian: apt-get "
            "install prometheus), or omit the option: nodes serve their metrics anyway"
        )
    return found


def prepare(spec: ClusterSpec) -> Path:
    """The configuration file, in a directory with everything it refers to; targets.json is
    there. In a secure cluster the administrator's password is read from its own file."""
    folder = spec.prometheus_dir
    for file in sorted(FILES.glob("*.yml")):
        shutil.copyfile(file, folder / file.name)
    config = folder / "prometheus.yml"
    if spec.secure:
        with config.open("a", encoding="utf-8") as file_of_jobs:
            file_of_jobs.write(_how_to_log_in(spec))
    return config


def _how_to_log_in(spec: ClusterSpec) -> str:
    """What the file's last job needs besides."""
    security = spec.security
    return (
        "    scheme: https\n"
        f"    tls_config: {{ca_file: {json.dumps(str(security.authority))}}}\n"
        f"    basic_auth: {{username: {ADMINISTRATOR}, "
        f"password_file: {json.dumps(str(security.password))}}}\n"
    )


@asynccontextmanager
async def watching(
    spec: ClusterSpec,
    program: str,
    report: Callable[[str], None],
    *,
    usual_port: int | None = USUAL_PORT,
) -> AsyncIterator[Address]:
    """Prometheus, ready, at this address, while the body runs. Should it end, that is reported.

    Raises:
        PrometheusError: if it does not start; the message has the end of its log.
    """
    config, address = prepare(spec), some_address(usual_port)
    log = spec.prometheus_dir / "prometheus.log"
    command = [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={spec.prometheus_dir / 'data'}",
        *KEPT,
        f"--web.listen-address={address}",
        "--log.level=warn",
    ]
    log.unlink(missing_ok=True)  # warnings only, and of this start only: it stays small
    process = Process.start(command, log=log, env=os.environ)
    failure: Exception | None = None
    try:
        await _wait_ready(process, address, log)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, process, log, report)
            try:
                yield address
            except Exception as error:  # noqa: BLE001 (raised below, outside the nursery's group)
                failure = error
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await _end(process)
    if failure is not None:
        raise failure


async def _wait_ready(process: Process, address: Address, log: Path) -> None:
    ask = partial(health.request, address, "GET", "/-/ready")
    with trio.move_on_after(START_S_MAX):
        while process.exit_code is None:
            try:
                status, _ = await trio.to_thread.run_sync(ask, abandon_on_cancel=True)
            except health.HealthError:
                status = 0
            if status == 200:
                return
            with trio.move_on_after(LOOK_EVERY_S):
                await process.wait()
        raise PrometheusError(
            f"prometheus ended with {process.ending}; its log, {log}, ends with:\n{tail(log)}"
        )
    raise PrometheusError(
        f"prometheus is not ready after {START_S_MAX:.0f} s; "
        f"its log, {log}, ends with:\n{tail(log)}"
    )


async def _watch(process: Process, log: Path, report: Callable[[str], None]) -> None:
    await process.wait()
    report(f"prometheus ended with {process.ending}; see {log}; the cluster continues without it")


async def _end(process: Process) -> None:
    process.send(SIGTERM)
    process.send(SIGCONT)
    with trio.move_on_after(STOP_S_MAX):
        await process.wait()
    if process.send(SIGKILL):
        await process.wait()
