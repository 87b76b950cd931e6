"""What all tests share. Examples are never timed (a busy machine is no bug of ours), and the same
ones are drawn each time: so a test turns red with the change that breaks it and not a week later.
`make properties` draws others.

Modules that import Spark's packages are skipped, with a message, where these are not installed.
Nodes keep Python's compiled files, wherever these tests run: they are started 150 times. They keep
records for ever unless a test says otherwise: those of many stories are from another year.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from cluster import access

OF_SPARK = ("numpy", "pyarrow", "pyspark")
"""Packages of the optional extra `spark`."""


class ModuleOfTests(pytest.Module):
    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        try:
            return super().collect()
        except self.CollectError as error:
            why = error.__cause__
            if isinstance(why, ModuleNotFoundError) and why.name in OF_SPARK:
                pytest.skip(f"needs Spark: {why.name} is not installed", allow_module_level=True)
            raise


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    module: pytest.Module = ModuleOfTests.from_parent(parent, path=module_path)
    return module


settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("others", deadline=None, derandomize=False, print_blob=True)
settings.load_profile("same")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["EVENKEEL_BROKER__RETENTION_MS"] = "-1"


@pytest.fixture(autouse=True, scope="module")
def _ports_belong_to_nobody() -> Iterator[None]:
    """The next module's node may get the port of one that asked for TLS and a token."""
    yield
    access.forget()
