"""Who is let in, and who may do what: every API, asked by everybody, of a real node over TLS.

docs/security-matrix.md has the table. The full exam verifies all of it, `make test` every eighth
row; `python -m tests.cluster.security.test_matrix` writes it. What must hold does not depend on
the page: see `required`.
"""

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from broker.security.table import ROWS
from tests.broker.security.test_every_api import CASES, FAILED, LISTINGS, NEVER_SERVED, errors_in
from tests.broker.world import SERVED
from tests.cluster.security.secured import Closed, SecuredNode, Wire, new_node
from tests.cluster.security.test_sasl import refused
from tests.doses import FULL, ONLY_IN_FULL
from wire.apis import APIS, ApiKey
from wire.error_codes import ErrorCode

pytestmark = pytest.mark.cluster

PAGE: Final = Path(__file__).parents[3] / "docs" / "security-matrix.md"
WHO: Final = ("nobody", "wrong password", "right", "other user", "revoked", "expired certificate")
ADMIN, RIGHT, OTHER, REVOKED = (f"of-{name}" for name in ("admin", "alice", "bob", "carol"))
CLOSED, ANSWERED, DENIED, NO_TLS = "closed", "answered", "denied", "no TLS"
BEFORE_A_NAME: Final = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
TASTE: Final = 8
EXPIRED_DAYS: Final = -1

Row = tuple[str, ...]
Cell = Callable[[], str]


def keys() -> list[int]:
    every = sorted(int(api.key) for api in SERVED)
    last = int(ApiKey.DELETE_TOPICS)  # what the others are about is gone then
    every.remove(last)
    every.append(last)
    return every if FULL else every[:: len(every) // TASTE]


def asked(key: int) -> tuple[Any, int]:
    """A request and its version: that of the table's test, or one that says nothing."""
    if key in CASES:
        message, version, _ = CASES[key]
        return message, version
    api = APIS[key]
    return api.request(), api.accepted.last


def outcome(wire: Wire, key: int) -> str:
    try:
        answer = wire.ask(*asked(key))
    except Closed:
        return CLOSED
    return DENIED if errors_in(answer) & FAILED else ANSWERED


def once(open_one: Callable[[], Wire], key: int) -> str:
    """On a connection of its own."""
    wire = open_one()
    found = outcome(wire, key)
    wire.close()
    return found


def with_wrong_password(node: SecuredNode) -> Wire:
    wire = node.connect()
    assert wire.log_in("alice", "another") == ErrorCode.SASL_AUTHENTICATION_FAILED
    return wire


def with_expired_certificate(node: SecuredNode, files: tuple[Path, Path], key: int) -> str:
    """In TLS 1.3 a client learns of it when it reads the first answer."""
    try:
        wire = node.connect(files)
        wire.ask(*asked(key))
    except Closed:
        return NO_TLS
    return ANSWERED


@contextmanager
def prepared() -> Iterator[SecuredNode]:
    with tempfile.TemporaryDirectory() as folder:
        node = new_node(Path(folder), ADMIN)
        try:
            node.start()
            node.add_users({"alice": RIGHT, "bob": OTHER, "carol": REVOKED})
            node.add_topic("t")
            node.allow_everything("alice", "carol")
            yield node
        finally:
            node.stop()


def measured(node: SecuredNode) -> dict[int, Row]:
    """What each gets. The revoked one is connected, and has been answered, before she is
    deleted."""
    expired = node.certs.client("mallory", days=EXPIRED_DAYS)
    valid = node.certs.client("valid")
    assert once(lambda: node.connect(valid), ApiKey.API_VERSIONS) == ANSWERED, "as a check of this"
    connected = {key: node.logged_in("carol", REVOKED) for key in keys()}
    for wire in connected.values():
        assert outcome(wire, ApiKey.DESCRIBE_CLUSTER) == ANSWERED
    node.delete_users("carol")
    bob, alice = node.logged_in("bob", OTHER), node.logged_in("alice", RIGHT)
    found = {}
    for key in keys():
        if key in BEFORE_A_NAME:  # they may change what the connection is
            right = once(lambda: node.logged_in("alice", RIGHT), key)
            other = once(lambda: node.logged_in("bob", OTHER), key)
        else:
            right, other = outcome(alice, key), outcome(bob, key)
        found[key] = (
            once(node.connect, key),
            once(lambda: with_wrong_password(node), key),
            right,
            other,
            outcome(connected[key], key),
            with_expired_certificate(node, expired, key),
        )
        connected[key].close()
    return found


def required(key: int, row: Row) -> None:
    """What must hold, whatever the page says."""
    nobody, wrong, right, other, revoked, expired = row
    first = key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)
    assert nobody == (ANSWERED if first else CLOSED), "nothing else before a name is proved"
    assert wrong == revoked == CLOSED
    assert expired == NO_TLS
    if key not in BEFORE_A_NAME:
        assert right == (DENIED if key in NEVER_SERVED else ANSWERED)
        asks = bool(ROWS[key].needs) and key not in LISTINGS
        assert other == (DENIED if asks else ANSWERED)


def line(key: int, row: Row) -> str:
    return f"| {key} | {APIS[key].name} | {' | '.join(row)} |"


def test_everybody_asks_for_everything() -> None:
    with prepared() as node:
        found = measured(node)
    for key, row in found.items():
        try:
            required(key, row)
        except AssertionError as error:
            raise AssertionError(line(key, row)) from error
    page = PAGE.read_text()
    rows = dict(re.findall(r"^(\| (?:\d+) \|)( .*\|)$", page, re.MULTILINE))
    for key, row in found.items():
        told = line(key, row)
        assert f"| {key} |{rows[f'| {key} |']}" == told, (
            "python -m tests.cluster.security.test_matrix"
        )
    assert len(rows) == len(SERVED), "a row for each API"


# -- the same by a client library ------------------------------------------------------------------

GROUP_RULE: Final = AclBindingFilter(
    ResourceType.TOPIC,
    "z",
    ResourcePatternType.LITERAL,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)
BY_LIBRDKAFKA: Final[dict[int, Callable[[AdminClient], Any]]] = {
    ApiKey.DESCRIBE_GROUPS: lambda admin: admin.describe_consumer_groups(["g"]),
    ApiKey.CREATE_TOPICS: lambda admin: admin.create_topics([NewTopic("n", 1, 1)]),
    ApiKey.DELETE_ACLS: lambda admin: admin.delete_acls([GROUP_RULE]),
    ApiKey.DESCRIBE_CONFIGS: lambda admin: admin.describe_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, "t")]
    ),
    ApiKey.CREATE_PARTITIONS: lambda admin: admin.create_partitions([NewPartitions("t", 2)]),
    ApiKey.DELETE_GROUPS: lambda admin: admin.delete_consumer_groups(["g"]),
    ApiKey.DESCRIBE_CLUSTER: lambda admin: admin.describe_cluster(),
    ApiKey.DELETE_TOPICS: lambda admin: admin.delete_topics(["t"]),
}


def by_librdkafka(admin: AdminClient, key: int) -> str:
    """The same words; a group that does not exist, for one, is answered."""
    made = BY_LIBRDKAFKA[key](admin)
    for future in made.values() if isinstance(made, dict) else [made]:
        try:
            future.result(30)
        except KafkaException as error:
            if error.args[0].code() in set(map(int, FAILED)):
                return DENIED
    return ANSWERED


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_a_client_library_is_told_the_same() -> None:
    """Of rows that librdkafka has a call for, and whose errors it tells (it gives an empty list for
    a DescribeAcls that is denied); and the other columns by the first thing that it is told."""
    rows = dict(re.findall(r"^\| (\d+) \| \w+ \|( .*) \|$", PAGE.read_text(), re.MULTILINE))
    with prepared() as node:
        for name, password, column in (("bob", OTHER, 3), ("alice", RIGHT, 2)):
            admin = AdminClient(node.client(name, password))
            for key in BY_LIBRDKAFKA:
                told = rows[str(int(key))].split("|")[column].strip()
                assert by_librdkafka(admin, key) == told, (name, APIS[key].name)
        wrong = refused(node.client("alice", "another"))
        assert wrong.code() == KafkaError._AUTHENTICATION
        nobody = {"bootstrap.servers": f"localhost:{node.ports + 2}"}
        assert refused(nobody).code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
        node.delete_users("alice")
        revoked = refused(node.client("alice", RIGHT))
        assert revoked.code() == KafkaError._AUTHENTICATION


TEXT: Final = """# Who gets what: the matrix

What a node answers to everybody, for each API: measured by `tests/cluster/security/test_matrix.py`
with connections over TLS to a real node, and written by `python -m
tests.cluster.security.test_matrix`. The full exam verifies every row, `make test` some.

- **nobody** proves no name; **wrong password** has tried, and failed; **other user** has a right
  password and no rule; **right** may do everything by rules; **revoked** was connected when its
  user was deleted; **expired certificate** is shown at a listener that demands one.
- `closed`: the connection ends without an answer. `denied`: the answer has an authorization error.
  `answered`: it has none; listings leave out what may not be seen. `no TLS`: the handshake fails,
  so no request is read.
- Transactions and delegation tokens are refused to everybody.
  [security.md](security.md#operations-by-api) has what each API asks for.

"""


def page(found: dict[int, Row]) -> str:
    heads = f"| key | API | {' | '.join(WHO)} |\n|{'---|' * (2 + len(WHO))}\n"
    return TEXT + heads + "".join(f"{line(key, found[key])}\n" for key in sorted(found))


if __name__ == "__main__":
    with prepared() as made:
        PAGE.write_text(page(measured(made)))
