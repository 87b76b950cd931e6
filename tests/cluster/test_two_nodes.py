"""Real nodes with fewer than three copies, and two old copies of three: what recovers by itself,
what does not and says so, and what an operator can order in that case."""

import shutil
from functools import partial
from pathlib import Path

import pytest
import trio
from confluent_kafka import Producer

from cli import main as cli
from cluster import health, status, workload
from cluster.launcher import Launcher, launch
from cluster.spec import plan
from tests.cluster.scenery import (
    FULL,
    GROUPS,
    QUICK,
    STEP_S,
    everything_has_a_master,
    in_thread,
    until,
)
from tests.cluster.test_storage_faults import flip
from tests.doses import ONLY_IN_FULL

pytestmark = pytest.mark.cluster
TOPIC = "kept"


def send(bootstrap: str, words: list[str]) -> None:
    """All are acknowledged."""
    failed = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for word in words:
        producer.produce(TOPIC, word, on_delivery=lambda error, _: error and failed.append(error))
    assert not producer.flush(STEP_S)
    assert not failed


def everything(bootstrap: str) -> set[str]:
    read = workload.read_everything(
        bootstrap, TOPIC, partitions=1, name="reader", seconds_max=STEP_S
    )
    return {str(one.value) for one in read if one.value}


async def wait_reason(cluster: Launcher, node: int, words: str) -> str:
    """Wait until /readyz gives that reason."""
    said = ""
    with trio.move_on_after(STEP_S):
        while words not in said:
            ask = partial(
                health.request, cluster.spec.node(node).http, "GET", "/readyz", timeout_s=5
            )
            try:
                code, body = await trio.to_thread.run_sync(ask)
            except health.HealthError as error:
                said = str(error)
            else:
                said = f"{code} {body.decode()}"
            await trio.sleep(0.1)
        return said
    pytest.fail(f"node {node} never said {words!r}, last: {said}")


async def everybody_votes(cluster: Launcher) -> None:
    def votes(view: status.ClusterView) -> bool:
        return all(
            row.status is not None and all(group["voting"] for group in row.status["groups"])
            for row in view.nodes
        )

    await until(cluster, everything_has_a_master, "every group has a master")
    await until(cluster, votes, "everybody votes")


async def test_two_nodes_survive_a_flipped_bit_and_a_lost_disk(tmp_path: Path) -> None:
    spec, _ = plan(tmp_path / "data", node_count=2, groups=GROUPS, fixed_ports=False)
    async with launch(spec, overrides=QUICK) as cluster:
        await cluster.start_all()
        await until(cluster, everything_has_a_master, "every group has a master")
        create = partial(workload.create_topic, partitions=1, replication=2)
        await in_thread(partial(create, spec.bootstrap, TOPIC))
        words = [f"word-{number}-of-many" for number in range(300)]
        await in_thread(partial(send, spec.bootstrap, words))
        await cluster.kill(2)
        flip(spec.data_dir / "node-2", "word-150-of-many")
        await cluster.restart(2)
        await everybody_votes(cluster)
        await in_thread(partial(send, spec.bootstrap, ["after the bit"]))
        await cluster.replace(1)
        await everybody_votes(cluster)
        await in_thread(partial(send, spec.bootstrap, ["after the disk"]))
        found = await in_thread(partial(everything, spec.bootstrap))
        assert found == {*words, "after the bit", "after the disk"}


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_two_old_copies_of_three_are_noticed_and_an_operator_decides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only node 1 has what was acknowledged after the copies were made. Nobody serves without it
    before an operator decides, and then nothing is lost, because node 1 has it."""
    spec, _ = plan(tmp_path / "data", node_count=3, groups=GROUPS, fixed_ports=False)
    async with launch(spec, overrides=QUICK) as cluster:
        await cluster.start_all()
        await until(cluster, everything_has_a_master, "every group has a master")
        create = partial(workload.create_topic, partitions=1, replication=3)
        await in_thread(partial(create, spec.bootstrap, TOPIC))
        await in_thread(partial(send, spec.bootstrap, ["old"]))
        for node in (2, 3):
            await cluster.kill(node)
            shutil.copytree(spec.data_dir / f"node-{node}", tmp_path / f"copy-{node}")
            await cluster.restart(node)
        await until(cluster, everything_has_a_master, "every group has a master")
        await in_thread(partial(send, spec.bootstrap, ["new"]))
        witness = spec.data_dir / "node-1" / "witness"
        written = witness.stat().st_mtime_ns
        with trio.fail_after(STEP_S):
            while witness.stat().st_mtime_ns == written:  # noqa: ASYNC110 (a file sets no event)
                await trio.sleep(0.1)
        for node in (1, 2, 3):
            await cluster.kill(node)
        for node in (2, 3):
            shutil.rmtree(spec.data_dir / f"node-{node}")
            shutil.copytree(tmp_path / f"copy-{node}", spec.data_dir / f"node-{node}")
        async with trio.open_nursery() as nursery:
            for node in (1, 2, 3):
                nursery.start_soon(cluster.restart, node)  # it waits for something that never comes
            for node in (2, 3):
                await wait_reason(cluster, node, "may have forgotten what it promised")
            nursery.cancel_scope.cancel()
        await until(
            cluster,
            lambda view: all(row.master is None for row in view.groups),
            "leases of before are over, and nobody serves",
        )
        await cluster.kill(2)
        directory = str(spec.data_dir / "node-2")
        recover = ["data", "unsafe-recover", directory]
        assert await in_thread(partial(cli.run, recover)) == 2, "it is only told"
        assert "can lose acknowledged" in capsys.readouterr().out
        assert await in_thread(partial(cli.run, [*recover, "--lose-data"])) == 0
        await cluster.restart(2)
        await everybody_votes(cluster)
        found = await in_thread(partial(everything, spec.bootstrap))
        assert found == {"old", "new"}
