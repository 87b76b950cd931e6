"""What tests with Spark share: one session, one cluster of three real nodes, one foreign broker.

All three start when a test first asks for them, and end with the last test of this folder.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.evenkeel.shared_cluster import running_cluster
from tests.spark.bus import WAIT_S, Bus, OurBus

ROOT = str(Path(__file__).parents[2])
JAVA_MIN = 17
SMALL = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stopTimeout": "20s",
    "spark.shuffle.compress": "false",
}
"""For a few rows on two cores: starting takes longer than working."""


@cache
def lacking() -> str:
    """Why there can be no session here; empty if there can."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed: pip install '.[spark]'"
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java") if home is None else f"{home}/bin/java"
    if java is None or not Path(java).exists():
        return "there is no java"
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) < JAVA_MIN:
        return f"java is older than {JAVA_MIN}: {told.splitlines()[:1]}"
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark") and lacking():
            item.add_marker(pytest.mark.skip(reason=f"needs Spark: {lacking()}"))


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session on this machine; each task has two attempts. Its workers run this checkout."""
    assert not lacking(), "a test that asks for a session carries the mark `spark`"
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", ROOT)
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_DIRS", str(folder / "local"))
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2,2]").appName("tests")
        for key, value in SMALL.items():
            builder = builder.config(key, value)
        builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        try:
            yield session
        finally:
            gateway = session.sparkContext._gateway
            session.stop()
            gateway.shutdown()
            _end_of_jvm(gateway)


def _end_of_jvm(gateway: Any) -> None:
    """It lives as long as its standard input."""
    gateway.proc.stdin.close()
    gateway.proc.wait(WAIT_S)


@pytest.fixture(scope="package")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurBus]:
    """Three nodes with short leases, and handles to hurt them; at the end of a test all nodes must
    be up and masters spread."""
    with running_cluster(tmp_path_factory.mktemp("bus")) as shared:
        yield OurBus(shared.bootstrap, shared)


@pytest.fixture(scope="package")
def foreign() -> Iterator[Bus]:
    """A Kafka that is not ours: librdkafka's mock cluster. It creates topics of four partitions
    when asked about them."""
    owner = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 2})
    brokers = owner.list_topics(timeout=WAIT_S).brokers.values()
    yield Bus(",".join(f"{one.host}:{one.port}" for one in brokers))
    owner.flush(WAIT_S)
