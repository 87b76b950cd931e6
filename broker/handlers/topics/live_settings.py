"""A node's settings that can be changed while it runs, and its log level under Kafka's name.

Kafka has the levels of its loggers as a resource of their own, BROKER_LOGGER (KIP-412); a node here
has one logger, `root`. Changes last until the node's restart, as those of Kafka's loggers do.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from broker.handlers.topics.registry_changes import DONE, Verdict
from broker.handlers.topics.settings import Setting, Source
from broker.requests.context import Broker
from broker.topic_configs import ConfigType
from wire.error_codes import ErrorCode
from wire.messages.configs import DescribeConfigsSynonym

LOG_LEVEL: Final = "log.level"
ROOT: Final = "root"
OF_KAFKA: Final = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR"}
OURS: Final = {"TRACE": "debug", "FATAL": "error", **{name: own for own, name in OF_KAFKA.items()}}


def live_settings(broker: Broker) -> Iterator[Setting]:
    for one in () if broker.live is None else broker.live.rows():
        source = Source.STATIC_BROKER if one.value == one.at_start else Source.DYNAMIC_BROKER
        before = DescribeConfigsSynonym(one.name, one.at_start, Source.STATIC_BROKER)
        now = DescribeConfigsSynonym(one.name, one.value, Source.DYNAMIC_BROKER)
        yield Setting(
            one.name,
            one.value,
            source,
            ConfigType.LONG if one.is_number else ConfigType.STRING,
            one.documentation,
            synonyms=(before,) if one.value == one.at_start else (now, before),
        )


def is_live(broker: Broker, name: str) -> bool:
    return broker.live is not None and any(one.name == name for one in broker.live.rows())


def change(broker: Broker, wanted: Mapping[str, str | None], *, only_check: bool) -> Verdict:
    """Set what has a value, take back what has None: all of it, or nothing."""
    assert broker.live is not None
    wrong = broker.live.change(wanted, only_check=only_check)
    return Verdict(ErrorCode.INVALID_CONFIG, wrong) if wrong else DONE


def loggers(broker: Broker, node: str) -> Iterator[Setting] | Verdict:
    wrong = _logger_problem(broker, node)
    return wrong or _root(broker)


def _root(broker: Broker) -> Iterator[Setting]:
    for one in live_settings(broker):
        if one.name == LOG_LEVEL:
            level = OF_KAFKA[one.value or ""]
            text = "the lowest level that is logged; the node has one logger"
            yield Setting(ROOT, level, Source.DYNAMIC_LOGGER, ConfigType.STRING, text)


def change_loggers(
    broker: Broker, node: str, wanted: Mapping[str, str | None], *, only_check: bool
) -> Verdict:
    wanted = {name: one for name, one in wanted.items() if name == ROOT or one is not None}
    wrong = _logger_problem(broker, node)
    if wrong is not None and wanted:
        return wrong
    for name, level in wanted.items():
        if name != ROOT:
            return Verdict(ErrorCode.INVALID_CONFIG, f"there is one logger, root, not {name[:100]}")
        if level is not None and level.upper() not in OURS:
            known = ", ".join(OURS)
            return Verdict(ErrorCode.INVALID_CONFIG, f"{level[:20]!r} is not one of {known}")
    if not wanted:
        return DONE
    level = wanted[ROOT]
    own = None if level is None else OURS[level.upper()]
    return change(broker, {LOG_LEVEL: own}, only_check=only_check)


def _logger_problem(broker: Broker, node: str) -> Verdict | None:
    if node == str(broker.me) and broker.live is not None:
        return None
    text = f"unexpected broker id: expected {broker.me}, but received {node[:20]!r}"
    return Verdict(ErrorCode.INVALID_REQUEST, text)
