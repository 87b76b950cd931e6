"""Rules on a real node, with an unmodified Kafka client as its administrator and as its user.

Nothing here proves who a client is, so everybody is User:ANONYMOUS: first a super user, and after a
restart one that the rules decide about.
"""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.runtime.test_node import Place, running, started

pytestmark = pytest.mark.cluster

WAIT_S: Final = 15.0
ME: Final = "User:ANONYMOUS"
EVERY: Final = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


def settings(super_user: str, audit: Path) -> list[str]:
    chosen = (
        "node.raise_after_s=0",
        "security.authorizer=acl",
        f"security.super_users={super_user}",
        f"security.audit_log={audit}",
    )
    return [part for one in chosen for part in ("--set", one)]


def binding(name: str, operation: AclOperation, **fields: Any) -> AclBinding:
    chosen = {
        "restype": ResourceType.TOPIC,
        "resource_pattern_type": ResourcePatternType.LITERAL,
        "principal": ME,
        "host": "*",
        "permission_type": AclPermissionType.ALLOW,
    } | fields
    return AclBinding(name=name, operation=operation, **chosen)


def produced(bootstrap: str, topic: str) -> str:
    """ "" or the name of the error."""
    outcome: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 10_000})
    producer.produce(
        topic, b"x", on_delivery=lambda error, _: outcome.append(error.name() if error else "")
    )
    producer.flush(WAIT_S)
    return outcome[0]


def test_rules_by_kafkas_own_client(tmp_path: Path) -> None:
    place, audit = Place(tmp_path), tmp_path / "audit.log"
    bootstrap = f"127.0.0.1:{place.ports}"
    write = binding("allowed", AclOperation.WRITE)
    read = binding("app-", AclOperation.READ, resource_pattern_type=ResourcePatternType.PREFIXED)
    with running(place, *settings(ME, audit)) as process:
        started(process)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        created = admin.create_topics([NewTopic(one, 1, 1) for one in ("allowed", "hidden")])
        assert [one.result(WAIT_S) for one in created.values()] == [None, None]
        for one in admin.create_acls([write, read], request_timeout=WAIT_S).values():
            one.result(WAIT_S)
        assert set(admin.describe_acls(EVERY, request_timeout=WAIT_S).result(WAIT_S)) == {
            write,
            read,
        }
        wrong = binding("t", AclOperation.CLUSTER_ACTION)
        with pytest.raises(KafkaException, match="does not exist"):
            admin.create_acls([wrong], request_timeout=WAIT_S)[wrong].result(WAIT_S)
        assert produced(bootstrap, "hidden") == "", "super users need no rule"
    with running(place, *settings("User:somebody-else", audit)) as process:
        started(process)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        assert set(admin.list_topics(timeout=WAIT_S).topics) == {"allowed"}
        assert produced(bootstrap, "allowed") == ""
        assert produced(bootstrap, "hidden") == "TOPIC_AUTHORIZATION_FAILED"
        described = admin.describe_acls(EVERY, request_timeout=WAIT_S)
        assert described.result(WAIT_S) == [], "this client keeps the error to itself"
        with pytest.raises(KafkaException, match="Cluster authorization failed"):
            admin.create_acls([write], request_timeout=WAIT_S)[write].result(WAIT_S)
        _, body = place.get("/metrics")
        assert b'evenkeel_access_denied_total{operation="Describe"}' in body
        assert b"evenkeel_access_rules 2" in body
    with running(place, *settings(ME, audit)) as process:
        started(process)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        (gone,) = admin.delete_acls([EVERY], request_timeout=WAIT_S).values()
        assert set(gone.result(WAIT_S)) == {write, read}, "also after two restarts"
        assert not admin.describe_acls(EVERY, request_timeout=WAIT_S).result(WAIT_S)
    denied = [json.loads(line) for line in audit.read_text().splitlines()]
    assert {one["event"] for one in denied} == {"denied"}
    assert {(one["principal"], one["host"]) for one in denied} == {(ME, "127.0.0.1")}
    assert {"hidden", "kafka-cluster"} <= {one["resource"] for one in denied}
    assert audit.stat().st_mode & 0o077 == 0, "readable by its owner only"


def test_what_is_half_configured_does_not_start(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for chosen, said in (
        ("security.authorizer=yes", 'expected "none" or "acl"'),
        ("security.authorizer=acl", "nobody could ever add a rule"),
        ("security.super_users=User:a", "everybody may do everything"),
    ):
        with running(place, "--set", chosen) as process:
            assert process.exit_code() == 2
            assert said in "\n".join(process.lines)
    unwritable = settings(ME, tmp_path / "missing" / "audit.log")
    with running(place, *unwritable) as process:
        assert process.exit_code() == 2
        assert "security.audit_log" in "\n".join(process.lines)
