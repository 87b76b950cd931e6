"""A plugin for pytest in aiokafka's tests: a running cluster where they would start a container."""

import os
import sys
from types import ModuleType
from typing import Any

import pytest


class Nothing:
    """What stands where a container was asked to do something: it has nothing to undo."""

    def cleanup(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        pytest.skip(f"there is no container that could do {name!r}")


def kafka_server() -> tuple[str, int, int, int, int, Nothing]:
    """Host and port, the ports for SSL, SASL, and both (there are none), and the container."""
    host, port = os.environ["EVENKEEL_BOOTSTRAP"].split(",")[0].rsplit(":", 1)
    return host, int(port), 0, 0, 0, Nothing()


INSTEAD = {
    "docker": Nothing,
    "kafka_server": kafka_server,
    "acl_manager": Nothing,
    "kerberos_utils": Nothing,
}


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> object | None:
    """A value that is not None is the fixture's; theirs is not called then."""
    if fixturedef.argname not in INSTEAD:
        return None
    value = INSTEAD[fixturedef.argname]()
    fixturedef.cached_result = (value, fixturedef.cache_key(request), None)
    return value


sys.modules.setdefault("docker", ModuleType("docker"))  # their conftest imports it
