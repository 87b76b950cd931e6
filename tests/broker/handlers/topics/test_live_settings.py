"""Changing a node's settings over the Kafka protocol: BROKER and BROKER_LOGGER resources."""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import pytest

from broker.ports import LiveSetting
from tests.broker.handlers.topics.test_idle_configs import BROKER, LOGGER, described
from tests.broker.world import World
from wire.error_codes import ErrorCode
from wire.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)

SET, DELETE, APPEND, SUBTRACT = range(4)


@attrs.define
class Live:
    """Two settings; 13 is a bad number."""

    at_start: dict[str, str] = attrs.Factory(lambda: {"limits.x": "5", "log.level": "info"})
    now: dict[str, str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.now = dict(self.at_start)

    def rows(self) -> Iterable[LiveSetting]:
        for name, value in self.now.items():
            yield LiveSetting(name, value, self.at_start[name], name != "log.level", "words")

    def change(self, wanted: Mapping[str, str | None], *, only_check: bool) -> str:
        if "13" in wanted.values():
            return "limits.x = 13: unlucky"
        if not only_check:
            self.now |= {
                name: self.at_start[name] if value is None else value
                for name, value in wanted.items()
            }
        return ""


@pytest.fixture
def world() -> World:
    world = World()
    world[1].broker.live = Live()
    return world


def now(world: World) -> dict[str, str]:
    live = world[1].broker.live
    assert isinstance(live, Live)
    return live.now


def alter(
    world: World, kind: int, name: str, *changes: tuple[str, int, str | None], check: bool = False
) -> Any:
    rows = [IncrementalAlterableConfig(*one) for one in changes]
    resource = IncrementalAlterConfigsResource(kind, name, rows)
    [result] = world.ask(1, IncrementalAlterConfigsRequest([resource], check), 1).responses
    return result


def test_a_setting_is_told_and_changed(world: World) -> None:
    found = {one.name: one for one in described(world, BROKER, "1").configs}
    assert not found["limits.x"].read_only
    assert (found["limits.x"].value, found["limits.x"].config_source) == ("5", 4)
    assert found["node.id"].read_only
    assert alter(world, BROKER, "1", ("limits.x", SET, "7")).error_code == ErrorCode.NONE
    found = {one.name: one for one in described(world, BROKER, "1", include_synonyms=True).configs}
    assert (found["limits.x"].value, found["limits.x"].config_source) == ("7", 2)
    assert [(one.value, one.source) for one in found["limits.x"].synonyms] == [("7", 2), ("5", 4)]
    assert alter(world, BROKER, "1", ("limits.x", DELETE, None)).error_code == ErrorCode.NONE
    assert now(world)["limits.x"] == "5"


def test_only_checked(world: World) -> None:
    assert alter(world, BROKER, "1", ("limits.x", SET, "7"), check=True).error_code == 0
    assert alter(world, BROKER, "1", ("limits.x", SET, "13"), check=True).error_code != 0
    assert now(world)["limits.x"] == "5"


@pytest.mark.parametrize(
    ("name", "changes", "error", "words"),
    [
        ("1", [("limits.x", SET, "13")], ErrorCode.INVALID_CONFIG, "unlucky"),
        ("1", [("limits.x", SET, None)], ErrorCode.INVALID_REQUEST, "no value"),
        ("1", [("limits.x", APPEND, "7")], ErrorCode.INVALID_CONFIG, "not a list"),
        ("1", [("limits.x", SUBTRACT, "5")], ErrorCode.INVALID_CONFIG, "not a list"),
        (
            "1",
            [("limits.x", SET, "7"), ("limits.x", SET, "8")],
            ErrorCode.INVALID_REQUEST,
            "twice",
        ),
        ("1", [("num.partitions", SET, "7")], ErrorCode.INVALID_REQUEST, "restart"),
        (
            "1",
            [("limits.x", SET, "7"), ("num.partitions", SET, "7")],
            ErrorCode.INVALID_REQUEST,
            "restart",
        ),
        ("", [("limits.x", SET, "7")], ErrorCode.INVALID_REQUEST, "name one"),
        ("2", [("limits.x", SET, "7")], ErrorCode.INVALID_REQUEST, "unexpected broker id"),
    ],
)
def test_what_is_refused_changes_nothing(
    world: World, name: str, changes: list[Any], error: ErrorCode, words: str
) -> None:
    result = alter(world, BROKER, name, *changes)
    assert result.error_code == error
    assert words in result.error_message
    assert now(world) == {"limits.x": "5", "log.level": "info"}


def test_the_older_request_takes_back_what_it_does_not_name(world: World) -> None:
    alter(world, BROKER, "1", ("log.level", SET, "debug"))
    resource = AlterConfigsResource(BROKER, "1", [AlterableConfig("limits.x", "7")])
    [result] = world.ask(1, AlterConfigsRequest([resource]), 2).responses
    assert result.error_code == ErrorCode.NONE
    assert now(world) == {"limits.x": "7", "log.level": "info"}


@pytest.mark.parametrize(
    ("level", "own"),
    [("DEBUG", "debug"), ("TRACE", "debug"), ("warn", "warning"), ("FATAL", "error")],
)
def test_kafkas_tools_set_the_level_of_the_root_logger(world: World, level: str, own: str) -> None:
    assert alter(world, LOGGER, "1", ("root", SET, level)).error_code == ErrorCode.NONE
    assert now(world)["log.level"] == own
    [root] = described(world, LOGGER, "1").configs
    assert root.name == "root"
    assert root.value == {"debug": "DEBUG", "warning": "WARN", "error": "ERROR"}[own]
    assert root.config_source == 6
    assert alter(world, LOGGER, "1", ("root", DELETE, None)).error_code == ErrorCode.NONE
    assert now(world)["log.level"] == "info"


@pytest.mark.parametrize(
    ("node", "name", "level", "error"),
    [
        ("1", "root", "LOUD", ErrorCode.INVALID_CONFIG),
        ("1", "kafka.controller", "INFO", ErrorCode.INVALID_CONFIG),
        ("1", "root", None, ErrorCode.INVALID_REQUEST),
        ("", "root", "INFO", ErrorCode.INVALID_REQUEST),
        ("2", "root", "INFO", ErrorCode.INVALID_REQUEST),
    ],
)
def test_loggers_that_are_not_there(
    world: World, node: str, name: str, level: str | None, error: ErrorCode
) -> None:
    result = alter(world, LOGGER, node, (name, SET, level))
    assert result.error_code == error
    assert now(world)["log.level"] == "info"
