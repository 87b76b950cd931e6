"""What is measured: a fresh cluster of ours, or any existing brokers."""

import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import trio
from confluent_kafka import KafkaException
from confluent_kafka import admin as kafka_admin

from benchmarks.load import login
from benchmarks.load.frames import TargetError, ask_any, leaders_of
from benchmarks.machines.network import Network
from benchmarks.machines.nodes import on_machines
from cli.bench import GIVEN, OURS, REPLICATION_MAX
from cluster import health, state, status
from cluster.launcher import Command, Launcher, launch, node_command
from cluster.spec import ClusterSpec, plan
from cluster.workload import CLIENT_LOG, REQUEST_S, create_topic
from runtime.config import config
from wire.messages.metadata import MetadataRequest

NODES: Final = 3
EVEN_S_MAX: Final = 30.0
EVEN_S_PER_GROUP: Final = 0.5
"""On top of that: masters are moved one by one."""
LEADERS_S_MAX: Final = 20.0
LOOK_EVERY_S: Final = 0.1
DATA_BYTES_MAX: Final = 8 * 1024**3
"""With more than this in its data directory, a cluster is replaced before the next benchmark."""
FREE_BYTES_MIN: Final = 16 * 1024**3
"""What the fastest benchmark may fill on top of that, in three copies."""


@attrs.frozen(kw_only=True)
class Target:
    name: str = OURS
    bootstrap: str
    replication: int
    pids: tuple[int, ...] = ()
    """Of the nodes, by id; empty if they are not ours."""
    configuration: dict[str, Any] = attrs.Factory(dict)
    data_dir: Path | None = None
    spec: ClusterSpec | None = None
    """Of a cluster of ours; its masters are evenly spread at first."""
    launcher: Launcher | None = None
    """Of such a cluster, for benchmarks that kill its nodes."""

    @property
    def full(self) -> bool:
        return self.data_dir is not None and _size(self.data_dir) > DATA_BYTES_MAX

    @asynccontextmanager
    async def topic(self, name: str, partitions: int) -> AsyncIterator[str]:
        """A topic for one benchmark, all of whose partitions have leaders.

        Raises:
            WorkloadError: if it is refused.
            TargetError: if its leaders are not known in time.
        """
        topic = f"benchmark-{name}-{secrets.token_hex(3)}"
        create = partial(
            create_topic,
            self.bootstrap,
            topic,
            partitions=partitions,
            replication=self.replication,
            settings=login.for_confluent(),
        )
        await trio.to_thread.run_sync(create)
        await self._wait_for_leaders(topic, partitions)
        try:
            yield topic
        finally:
            if self.data_dir is None:  # brokers are left as they were; our own go with their data
                with trio.CancelScope(shield=True):  # bounded by REQUEST_S
                    await trio.to_thread.run_sync(delete_topic, self.bootstrap, topic)

    async def _wait_for_leaders(self, topic: str, partitions: int) -> None:
        failure = TargetError(f"{topic} has no leaders after {LEADERS_S_MAX:.0f} s")
        with trio.move_on_after(LEADERS_S_MAX):
            while True:
                try:
                    leaders = await trio.to_thread.run_sync(leaders_of, self.bootstrap, topic)
                    if sum(len(leader.partitions) for leader in leaders) == partitions:
                        return
                except TargetError as error:
                    failure = error
                await trio.sleep(LOOK_EVERY_S)
        raise failure


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic that a benchmark has created.

    Raises:
        TargetError: if it is refused.
    """
    admin = kafka_admin.AdminClient(
        {"bootstrap.servers": bootstrap, **login.for_confluent()}, logger=CLIENT_LOG
    )
    try:
        admin.delete_topics([topic], request_timeout=REQUEST_S)[topic].result(REQUEST_S)
    except (KafkaException, TimeoutError) as error:
        raise TargetError(f"topic {topic} was not deleted: {error}") from error


@asynccontextmanager
async def fresh_cluster(
    *,
    groups: int,
    overrides: Sequence[str],
    say: Callable[[str], None],
    nodes: int = NODES,
    machines: Network | None = None,
) -> AsyncIterator[Target]:
    """Nodes with empty logs and evenly spread masters; they and their data are removed at the end.

    With `machines` each node is on one of its own; limit their links afterwards, so that starting
    is not limited.

    Raises:
        TargetError: if the masters do not get in place, or there is no room.
    """
    state.DEFAULT_DATA_DIR.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(state.DEFAULT_DATA_DIR).free
    if free < FREE_BYTES_MIN:
        raise TargetError(f"{free / 1e9:.0f} GB free, {FREE_BYTES_MIN / 1e9:.0f} GB needed")
    data_dir = Path(tempfile.mkdtemp(prefix="benchmark-", dir=state.DEFAULT_DATA_DIR))
    try:
        hosts = () if machines is None else machines.addresses[:nodes]
        spec, _ = plan(data_dir, node_count=nodes, groups=groups, fixed_ports=False, hosts=hosts)
        async with AsyncExitStack() as stack:
            command: Command = node_command
            if machines is not None:
                command = await stack.enter_async_context(on_machines(machines, spec))
            launcher = await stack.enter_async_context(
                launch(spec, overrides=overrides, command=command, report=say)
            )
            await launcher.start_all()
            await masters_even(spec, launcher)
            yield _target_of(spec, launcher, overrides)
            launcher.hurry.set()  # nobody needs its data: no graceful end
    finally:
        shutil.rmtree(data_dir)


def _target_of(spec: ClusterSpec, launcher: Launcher, overrides: Sequence[str]) -> Target:
    settings = config.load(spec.config_path(spec.nodes[0].id), os.environ, overrides)
    return Target(
        bootstrap=spec.bootstrap,
        replication=min(settings.groups.replicas, len(spec.nodes)),
        pids=tuple(launcher.pid_of(node.id) for node in spec.nodes),
        configuration={
            "nodes": len(spec.nodes),
            "groups": spec.groups,
            "overrides": list(overrides),
            "settings": {
                name: attrs.asdict(getattr(settings, name))
                for name in config.SECTIONS
                if name not in ("node", "listen")
            },
        },
        data_dir=spec.data_dir,
        spec=spec,
        launcher=launcher,
    )


async def masters_even(spec: ClusterSpec, launcher: Launcher) -> None:
    """Wait until every group's master is in place.

    Raises:
        TargetError: if they do not get there.
    """
    patience_s = EVEN_S_MAX + EVEN_S_PER_GROUP * spec.groups
    with trio.move_on_after(patience_s):
        while True:
            try:
                view = await status.collect(spec, launcher.now())
            except health.HealthError:
                view = None
            if view is not None and view.all_at_ideal:
                return
            await trio.sleep(LOOK_EVERY_S)
    raise TargetError(f"masters are not where they belong after {patience_s:.0f} s")


def given_brokers(bootstrap: str, replication: int | None = None, name: str = GIVEN) -> Target:
    """Brokers of any make, addressed only through Kafka's protocol.

    Raises:
        TargetError: if they do not answer, or are fewer than the requested replication.
    """
    try:
        brokers = len(ask_any(bootstrap, MetadataRequest(topics=[])).brokers)
    except TargetError as error:
        raise TargetError(f"{name} does not answer: {error}") from error
    if replication is None:
        replication = min(REPLICATION_MAX, brokers)
    elif not 1 <= replication <= brokers:
        raise TargetError(f"{name}: replication {replication}, but there are {brokers} brokers")
    return Target(
        name=name,
        bootstrap=bootstrap,
        replication=replication,
        configuration={"bootstrap_servers": bootstrap, "replication": replication},
    )


def _size(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())
