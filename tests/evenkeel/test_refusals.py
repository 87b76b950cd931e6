"""What is not served (docs/kafka.md) is refused at once, with a reason that confluent-kafka
shows."""

import time
from collections.abc import Callable
from functools import partial

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.evenkeel.shared_cluster import SharedCluster

pytestmark = pytest.mark.cluster

AT_ONCE_S = 10.0
"""Far below the timeouts given here, and far above the time it takes."""
PATIENT_S = 60.0


def refusal_of(act: Callable[[], object]) -> KafkaError:
    """The error it ends with, well before its timeout."""
    begun = time.monotonic()
    with pytest.raises(KafkaException) as raised:
        act()
    assert time.monotonic() - begun < AT_ONCE_S
    error: KafkaError = raised.value.args[0]
    return error


def test_transactions_end_before_they_begin(cluster: SharedCluster) -> None:
    """The error is fatal, so that no application goes on without them, and it names the reason."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "t-1"})
    error = refusal_of(partial(producer.init_transactions, PATIENT_S))
    assert error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert error.fatal()
    assert "transactional" in error.str().lower()


def test_administration_of_what_is_not_there(cluster: SharedCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    everything = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    acl = AclBinding(
        ResourceType.TOPIC,
        "t",
        ResourcePatternType.LITERAL,
        "User:me",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    error = refusal_of(lambda: admin.create_acls([acl])[acl].result())
    assert error.code() == KafkaError.SECURITY_DISABLED
    assert "No Authorizer" in error.str()
    # librdkafka shows the same error of a listing as an empty one
    assert admin.describe_acls(everything, request_timeout=PATIENT_S).result() == []
    assert admin.describe_user_scram_credentials(request_timeout=PATIENT_S).result() == {}


def test_clients_that_want_to_log_in(cluster: SharedCluster) -> None:
    """There is no SASL yet, and no client is accepted as if its password had been checked."""
    told: list[KafkaError] = []
    admin = AdminClient(
        {
            "bootstrap.servers": cluster.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "somebody",
            "sasl.password": "secret",
            "error_cb": told.append,
        }
    )
    deadline = time.monotonic() + AT_ONCE_S
    while not told and time.monotonic() < deadline:
        admin.poll(0.05)
    assert told, "silence"
    assert told[0].code() == KafkaError._AUTHENTICATION
    assert "SASL state" in told[0].str()
