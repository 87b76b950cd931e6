"""Real nodes with less than three copies: what comes back by itself."""

from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from cluster import status, workload
from cluster.launcher import Launcher, launch
from cluster.spec import plan
from tests.cluster.scenery import GROUPS, QUICK, STEP_S, everything_has_a_master, in_thread, until
from tests.cluster.test_storage_faults import flip

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
