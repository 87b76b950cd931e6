"""Settings that are changed while a node runs: what is made of them, and what is refused."""

import json
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from node import Node
from paxos.ids import MS
from runtime import live_settings, settings
from runtime.config.config import SECTIONS
from runtime.live_settings import LIVE, LiveSettings
from runtime.system.journal import Journal
from tests.runtime.one_node import one_node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with one_node(tmp_path) as node:
        yield node


def live(node: Node) -> LiveSettings:
    assert isinstance(node.broker.live, LiveSettings)
    return node.broker.live


def change(node: Node, name: str, value: str | None) -> str:
    return live(node).change({name: value}, only_check=False)


def test_all_of_them_are_settings_of_the_file(node: Node) -> None:
    rows = {one.name: one for one in live(node).rows()}
    assert tuple(rows) == LIVE == tuple(sorted(LIVE))
    for name, row in rows.items():
        section, key = name.split(".")
        assert key in attrs.fields_dict(SECTIONS[section])
        assert row.value == row.at_start == str(getattr(getattr(node.config, section), key))


@pytest.mark.parametrize("name", [name for name in LIVE if name != "log.level"])
def test_each_is_used_from_now_on(node: Node, name: str) -> None:
    """What is built of the configuration at the start is as if it had been in the file."""
    before = {one.name: one.value for one in live(node).rows()}
    wanted = str(int(before[name]) - 1) if name != "balancer.replace_after_s" else "1000"
    assert change(node, name, wanted) == ""
    section, key = name.split(".")
    part = attrs.evolve(getattr(node.config, section), **{key: int(wanted)})
    config = attrs.evolve(node.config, **{section: part})
    assert node.clients.limits == settings.clients(config)
    assert node.loop.machine is not None
    assert node.loop.machine.config == settings.balancing(config)
    assert node.planner.asked.config == settings.planning(config)
    made = (settings.clients, settings.balancing, settings.planning)
    assert any(one(config) != one(node.config) for one in made), "it has no effect"
    assert change(node, name, None) == ""
    assert {one.name: one.value for one in live(node).rows()} == before
    assert node.clients.limits == settings.clients(node.config)


def test_a_mute_is_as_long_as_it_says(node: Node) -> None:
    assert change(node, "balancer.mute_ms", "1234") == ""
    assert node.loop.machine is not None
    assert node.loop.machine._limits.cool_down_ns == 1234 * MS


def test_the_level_of_the_log() -> None:
    class Lines:
        def __init__(self) -> None:
            self.lines: list[str] = []

        def write(self, text: str) -> int:
            self.lines.append(json.loads(text)["event"])
            return len(text)

        def flush(self) -> None: ...

    stream = Lines()
    journal = Journal("warning", stream)
    journal.info("one")
    journal.set_level("debug")
    journal.debug("two")
    journal.set_level("error")
    journal.warning("three")
    assert stream.lines == ["two"]


def test_changes_are_logged_with_what_was_before(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[dict[str, object]] = []
    monkeypatch.setattr(node.journal, "warning", lambda event, **fields: said.append(fields))
    assert change(node, "log.level", "debug") == ""
    assert change(node, "log.level", "debug") == ""
    assert said == [{"setting": "log.level", "was": node.config.log.level, "now": "debug"}]


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("log.level", "loud", "expected"),
        ("limits.idle_connection_s", "soon", "expected a whole number"),
        ("limits.idle_connection_s", "0", "expected 1 to"),
        ("limits.idle_connection_s", "9" * 5_000, "expected"),
        ("limits.connections_per_ip_max", "999999", "limits"),
        ("balancer.dead_after_ms", "80000000", "replace_after_s"),
    ],
)
def test_what_the_file_could_not_say_is_refused(
    node: Node, name: str, value: str, why: str
) -> None:
    before = list(live(node).rows())
    said = change(node, name, value)
    assert why in said
    assert len(said) < 500
    assert list(live(node).rows()) == before


def test_all_or_nothing(node: Node) -> None:
    wanted = {"log.level": "debug", "limits.idle_connection_s": "0"}
    assert live(node).change(wanted, only_check=False)
    assert {one.name: one.value for one in live(node).rows()}["log.level"] == "info"
    wanted["limits.idle_connection_s"] = "9"
    assert not live(node).change(wanted, only_check=True)
    assert {one.name: one.value for one in live(node).rows()}["log.level"] == "info"
    assert not live(node).change(wanted, only_check=False)
    assert {one.name: one.value for one in live(node).rows()}["log.level"] == "debug"


def test_a_restart_forgets(tmp_path: Path) -> None:
    with one_node(tmp_path) as node:
        assert change(node, "log.level", "debug") == ""
    with one_node(tmp_path) as node:
        assert {one.name: one.value for one in live(node).rows()}["log.level"] == "info"


def test_every_node_has_them(node: Node) -> None:
    assert live_settings.wire.__module__ == "runtime.live_settings"
    assert node.broker.live is not None
