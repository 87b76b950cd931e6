"""Client quotas in the registry: whom they hold for, what they limit, and what is refused.

An entity is a user, a client id, both together, or an IP address; each of them may be the default,
which holds for all that have none of their own (KIP-546). What may be set is what Kafka's
ClientQuotaControlManager accepts; who is throttled by which is `broker.security.quotas`.
"""

import math
from collections.abc import Mapping
from enum import IntEnum
from ipaddress import ip_address
from typing import Final, NamedTuple

import attrs

from balancer.registry.packing import (
    STRING,
    Field,
    PackingError,
    Reader,
    enum,
    mapping,
    number,
    optional,
    record,
    sequence,
)

QUOTAS_MAX: Final = 10_000
"""Entities with quotas in a cluster."""
NAME_CHARS_MAX: Final = 256
CHANGES_MAX: Final = 1_000
"""Entities in one command."""

Name = tuple[str, ...]
"""() is no name: this kind does not matter; ("",) the default; ("alice",) alice."""
ABSENT: Final[Name] = ()
DEFAULT: Final[Name] = ("",)


class Entity(NamedTuple):
    """Whom a quota holds for."""

    user: Name = ABSENT
    client_id: Name = ABSENT
    ip: Name = ABSENT


class QuotaKey(IntEnum):
    """What is limited, on each node for itself, as in Kafka."""

    PRODUCER_BYTE_RATE = 1
    """Bytes of Produce requests a second."""
    CONSUMER_BYTE_RATE = 2
    """Bytes of Fetch answers a second."""
    REQUEST_PERCENTAGE = 3
    """Of the time of one thread (KIP-124)."""
    CONTROLLER_MUTATION_RATE = 4
    """Partitions created and deleted a second (KIP-599)."""
    CONNECTION_CREATION_RATE = 5
    """New connections a second, of an IP address (KIP-612)."""

    @property
    def kafka_name(self) -> str:
        return self.name.lower()


KEY_NAMED: Final[Mapping[str, QuotaKey]] = {key.kafka_name: key for key in QuotaKey}
_FRACTIONS: Final = (QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONTROLLER_MUTATION_RATE)
_OF_ADDRESSES: Final = (QuotaKey.CONNECTION_CREATION_RATE,)
_FRACTION_MAX: Final = 1e-6
"""Kafka takes a number for whole that is as close as this to one."""
_WHOLE_MAX: Final = {
    QuotaKey.PRODUCER_BYTE_RATE: 2**63 - 1,
    QuotaKey.CONSUMER_BYTE_RATE: 2**63 - 1,
    QuotaKey.CONNECTION_CREATION_RATE: 2**31 - 1,
}

Quotas = Mapping[Entity, Mapping[QuotaKey, float]]
"""Replaced as a whole, never changed in place: what is derived from it compares the object."""


@attrs.frozen
class QuotaChange:
    """None takes a value back."""

    entity: Entity
    values: Mapping[QuotaKey, float | None]


@attrs.frozen
class AlterQuotas:
    """Change the quotas of some entities: of all or of none."""

    changes: tuple[QuotaChange, ...]


_F64: Final = number("d")


def _write_rate(out: bytearray, value: float) -> None:
    if not math.isfinite(value):
        raise PackingError(f"{value} is no rate")
    _F64.write(out, value)


def _read_rate(reader: Reader) -> float:
    value: float = _F64.read(reader)
    if not math.isfinite(value):
        raise PackingError(f"{value} is no rate")
    return value


_RATE: Final = Field(_write_rate, _read_rate)
_NAME: Final = sequence(STRING, 1)
_KEY: Final = enum(QuotaKey)
_ENTITY: Final = record(Entity, _NAME, _NAME, _NAME)
_CHANGE: Final = record(QuotaChange, _ENTITY, mapping(_KEY, optional(_RATE), len(QuotaKey)))
ALTER_QUOTAS: Final = record(AlterQuotas, sequence(_CHANGE, CHANGES_MAX))
QUOTAS: Final[Field[Quotas]] = mapping(_ENTITY, mapping(_KEY, _RATE, len(QuotaKey)), QUOTAS_MAX)


def entity_problem(entity: Entity) -> str:
    """Why no quota can be set for it; "" if it can."""
    if entity.ip and (entity.user or entity.client_id):
        return "an ip is not combined with a user or a client-id"
    if entity == Entity():
        return "the entity names no user, client-id or ip"
    for name in (one for part in entity for one in part):
        if len(name) > NAME_CHARS_MAX:
            return f"a name of {len(name)} characters: at most {NAME_CHARS_MAX}"
    if entity.ip and entity.ip != DEFAULT:
        try:
            ip_address(entity.ip[0])
        except ValueError:
            return f"{entity.ip[0][:60]} is not an IP address"
    return ""


def value_problem(entity: Entity, key: QuotaKey, value: float | None) -> str:
    """Why this cannot be its quota; "" if it can."""
    if (key in _OF_ADDRESSES) != bool(entity.ip):
        return f"{key.kafka_name} is no quota of such an entity"
    if value is None:
        return ""
    if not (value > 0 and math.isfinite(value)):
        return f"quota {key.kafka_name} must be greater than 0"
    if key not in _FRACTIONS and abs(value - round(value)) > _FRACTION_MAX:
        return f"{key.kafka_name} cannot be a fractional value"
    if key not in _FRACTIONS and not 0 < round(value) <= _WHOLE_MAX[key]:
        return f"quota {key.kafka_name} is too great, or less than 1"
    return ""


def change_problem(change: QuotaChange) -> str:
    """Why the registry refuses the change; "" if it does not."""
    problems = (value_problem(change.entity, key, value) for key, value in change.values.items())
    return entity_problem(change.entity) or next(filter(None, problems), "")


def altered(before: Quotas, command: AlterQuotas) -> Quotas | str:
    """The quotas after the command, or why it is refused."""
    after = dict(before)
    for change in command.changes:
        problem = change_problem(change)
        if problem:
            return problem
        values = dict(after.get(change.entity, {}))
        for key, value in change.values.items():
            values.pop(key, None)
            if value is not None:
                values[key] = value
        after.pop(change.entity, None)
        if values:
            after[change.entity] = dict(sorted(values.items()))
    if len(after) > max(QUOTAS_MAX, len(before)):
        return f"quotas for {len(after)} entities: at most {QUOTAS_MAX}"
    return dict(sorted(after.items()))
