"""The wheel for Spark's executors is sufficient, and contains nothing that they do not need."""

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.cluster.scenery import FULL
from tests.doses import ONLY_IN_FULL
from tests.spark.bus import OurBus, Row
from wire.software import VERSION

ROOT = Path(__file__).parents[2]
THE_CLUSTERS = ("pyspark", "py4j")
"""Every executor has these; the wheel does not require them."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make wheel` builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-build-isolation", "-w", str(folder), "tools/spark_wheel"]
    subprocess.run(command, cwd=ROOT, check=True)
    (built,) = folder.iterdir()
    return built


def dependencies(wheel: Path, folder: Path) -> Path:
    """The packages that the wheel requires, in a folder without anything of ours."""
    (ours,) = metadata.distributions(path=[str(wheel)])
    asked_for = [re.split(r"[^\w-]", line, maxsplit=1)[0] for line in ours.requires or ()]
    assert "pyarrow" in asked_for
    for name in (*asked_for, *THE_CLUSTERS):
        theirs = metadata.distribution(name)
        for top in {path.parts[0] for path in theirs.files or ()} - {"..", "__pycache__"}:
            folder.joinpath(top).symlink_to(theirs.locate_file(top))
    return folder


def installed(wheel: Path, folder: Path) -> Path:
    """The wheel beside them, without anything else of ours."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-index", "--target", str(folder), str(wheel)]
    subprocess.run(command, check=True)
    return dependencies(wheel, folder)


def alone(folder: Path, script: str, *words: str) -> str:
    """The output of a script that can import only the folder's contents and Python's own
    library."""
    command = [sys.executable, "-S", "-P", "-c", script, *words]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder)}
    ran = subprocess.run(command, cwd=folder, env=env, check=True, stdout=subprocess.PIPE)
    return ran.stdout.decode()


COPY = """
import sys
from functools import partial
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark_evenkeel import DefaultSource
from pyspark_evenkeel.client.cluster import Cluster
from pyspark_evenkeel.options import parse_sink
from pyspark_evenkeel.write.task import Task, write_task

bootstrap, source, target = sys.argv[1:]
servers = {"bootstrap.servers": bootstrap}
data_source = DefaultSource(CaseInsensitiveDict({**servers, "subscribe": source}))
reader = data_source.reader(data_source.schema())
batches = (batch for part in reader.partitions() for batch in reader.read(part))
options = parse_sink({**servers, "topic": target, "writeId": "copy"}, streaming=False)
print(write_task(batches, options, Task("copy", 0, 0), partial(Cluster, options.cluster)).rows)
import wire
print(sorted({"trio", "broker", "evenkeel", "history"} & sys.modules.keys()), wire.MINE)
"""
"""What Spark has an executor's Python do, in one process; a module of the user's is there too."""


def test_it_puts_one_name_into_an_environment(wheel: Path) -> None:
    """An executor's environment is for others' modules too, `wire` among them."""
    (ours,) = metadata.distributions(path=[str(wheel)])
    tops = {path.parts[0] for path in ours.files or ()}
    assert tops == {"pyspark_evenkeel", f"pyspark_evenkeel-{VERSION}.dist-info"}
    assert ours.version == VERSION


@pytest.mark.spark
@pytest.mark.cluster
def test_a_process_reads_and_writes_with_nothing_else(
    wheel: Path, tmp_path: Path, bus: OurBus
) -> None:
    source, target = bus.create("there", 2), bus.create("here", 2)
    rows: dict[int, list[Row]] = {0: [(b"k", b"v"), (None, b"w")], 1: [(b"k", b"x")]}
    bus.produce(source, rows)
    folder = installed(wheel, tmp_path)
    folder.joinpath("wire.py").write_text("MINE = True\n")
    told = alone(folder, COPY, bus.bootstrap, source, target)
    assert told.splitlines() == ["3", "[] True"]
    assert bus.contents(target) == rows


@pytest.mark.spark
def test_its_modules_import_without_the_rest_of_ours(wheel: Path, tmp_path: Path) -> None:
    folder = installed(wheel, tmp_path)
    assert not [name for name in ("trio", "broker", "evenkeel") if (folder / name).exists()]
    names = [
        ".".join(path.relative_to(folder).with_suffix("").parts)
        for path in sorted(folder.joinpath("pyspark_evenkeel").rglob("*.py"))
    ]
    inside = "pyspark_evenkeel._internal.wire.records.batch"
    assert {inside, "pyspark_evenkeel.__init__"} <= set(names)
    script = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    alone(folder, script, *(name.removesuffix(".__init__") for name in names))


STREAM = """
import sys
from pyspark.sql import SparkSession

bootstrap, source, target, checkpoint = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
servers = {"bootstrap.servers": bootstrap}
rows = spark.readStream.format("evenkeel").options(
    **servers, subscribe=source, startingOffsets="earliest", maxPartitions="2"
).load()
query = rows.select("key", "value", "partition").writeStream.format("evenkeel").options(
    **servers, topic=target, checkpointLocation=checkpoint
)
query.trigger(availableNow=True).start().awaitTermination()
print(spark.sparkContext.master)
"""


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_two_executors_of_a_spark_cluster_get_the_wheel_by_spark_submit(
    wheel: Path, tmp_path: Path, bus: OurBus
) -> None:
    """A streaming query, with --py-files for executors and PYTHONPATH for the driver (the planner
    of a streaming read does not see --py-files)."""
    source, target = bus.create("there", 2), bus.create("here", 2)
    rows: dict[int, list[Row]] = {
        at: [(None, f"{at}-{n}".encode()) for n in range(500)] for at in (0, 1)
    }
    bus.produce(source, rows)
    folder = tmp_path / "theirs"
    folder.mkdir()
    dependencies(wheel, folder)
    python, program = tmp_path / "python", tmp_path / "program.py"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -P "$@"\n')
    python.chmod(0o755)
    program.write_text(STREAM)
    command = [str(Path(sys.executable).parent / "spark-submit")]
    command += ["--master", "local-cluster[2,1,1024]", "--py-files", str(wheel), str(program)]
    command += [bus.bootstrap, source, target, str(tmp_path / "checkpoint")]
    spark = metadata.distribution("pyspark").locate_file("pyspark")
    env = {**os.environ, "PYSPARK_PYTHON": str(python), "SPARK_HOME": str(spark)}
    env["PYTHONPATH"] = os.pathsep.join((str(wheel), str(folder)))
    ran = subprocess.run(command, cwd=tmp_path, env=env, check=True, stdout=subprocess.PIPE)
    assert b"local-cluster" in ran.stdout
    assert bus.contents(target) == rows
