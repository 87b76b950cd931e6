"""Settings that can be changed while a node runs; until its restart, which reads the file again.

Only such settings are here that are compared with something at each use, by one place: nothing was
sized or derived from them that would have to be built anew, and no other node relies on them. A
change makes a new Config, so that the same checks apply as at the start, and what is made of a
Config at the start is made of the new one. Changes come over the Kafka protocol
(IncrementalAlterConfigs for this node): from any Kafka tool, or `evenkeel config live`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from broker.ports import LiveSetting
from runtime import settings
from runtime.balancing.balancing_loop import BalancingLoop
from runtime.balancing.planning_loop import PlanningLoop
from runtime.clients.clients import Clients
from runtime.config.config import SECTIONS, Config, ConfigError
from runtime.config.fields import doc_of, show
from runtime.shell import Shell
from runtime.system.journal import Journal

LIVE: Final = (
    "balancer.dead_after_ms",
    "balancer.hold_down_ms",
    "balancer.mute_ms",
    "balancer.pause_between_steals_ms",
    "balancer.replace_after_s",
    "balancer.uneven_for_ms",
    "balancer.uneven_pause_ms",
    "limits.connections_per_ip_max",
    "limits.idle_connection_s",
    "log.level",
)


def wire(config: Config, journal: Journal, shell: Shell) -> None:
    shell.broker.live = LiveSettings(config, journal, shell.clients, shell.loop, shell.planner)


@attrs.define(eq=False)
class LiveSettings:
    """Conforms to `broker.ports.LiveSettings`."""

    _config: Config
    _journal: Journal
    _clients: Clients
    _loop: BalancingLoop
    _planner: PlanningLoop
    _at_start: Config = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._at_start = self._config

    def rows(self) -> Iterator[LiveSetting]:
        for name in LIVE:
            now, before = _value(self._config, name), _value(self._at_start, name)
            yield LiveSetting(
                name, str(now), str(before), isinstance(now, int), doc_of(_field(name))
            )

    def change(self, wanted: Mapping[str, str | None], *, only_check: bool) -> str:
        """Set what has a value, and take back what has None; all or nothing. Returns what is wrong,
        or ""."""
        sections: dict[str, dict[str, Any]] = {}
        for name, text in wanted.items():
            section, key = name.split(".")
            field = _field(name)
            try:
                raw = (
                    _value(self._at_start, name) if text is None else field.metadata["parse"](text)
                )
            except ValueError as error:
                return f"{name} = {show(str(text)[:100])}: {error}"
            sections.setdefault(section, {})[key] = raw
        try:
            changed = {
                section: attrs.evolve(getattr(self._config, section), **values)
                for section, values in sections.items()
            }
            config = attrs.evolve(self._config, **changed)
        except ConfigError as error:
            return str(error)
        if not only_check:
            self._apply(config)
        return ""

    def _apply(self, config: Config) -> None:
        before, self._config = self._config, config
        self._journal.set_level(config.log.level)
        for name in LIVE:
            if _value(before, name) != _value(config, name):
                was, now = _value(before, name), _value(config, name)
                self._journal.warning("setting changed", setting=name, was=was, now=now)
        self._clients.limits = settings.clients(config)
        if self._loop.machine is not None:
            self._loop.machine.configure(settings.balancing(config))
        self._planner.asked.config = settings.planning(config)


def _field(name: str) -> "attrs.Attribute[Any]":
    section, key = name.split(".")
    return attrs.fields_dict(SECTIONS[section])[key]


def _value(config: Config, name: str) -> Any:  # noqa: ANN401 (a number or a word)
    section, key = name.split(".")
    return getattr(getattr(config, section), key)
