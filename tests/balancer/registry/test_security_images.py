"""Images of the registry with something of security: listeners, users, rules, quotas."""

import pytest

from balancer.registry.credentials import AlterCredentials, CredentialChange
from balancer.registry.listeners import SetListeners
from balancer.registry.packing import PackingError, encode
from balancer.registry.quotas import AlterQuotas, Entity, QuotaChange, QuotaKey
from balancer.registry.registry import Registry
from balancer.registry.rules import CreateRules, DeleteRules, Rule
from balancer.registry.security import NO_SECURITY, SECURITY, ListenerAddress
from paxos.ids import NodeId
from tests.balancer.test_registry_codec import image, run, versioned
from wire.scram import Credential

LISTENER = (ListenerAddress("TLS", 1, "h", 9093),)
RULES_OF_NOBODY = (Rule(2, "t", 3, "User:a", "*", 3, 3),)
RATES = {QuotaKey.PRODUCER_BYTE_RATE: 1024.0, QuotaKey.REQUEST_PERCENTAGE: 12.5}
OF_ADDRESS = {QuotaKey.CONNECTION_CREATION_RATE: 5.0}


def secured() -> Registry:
    """Also with the addresses of a node's listeners, a user, a rule, and quotas."""
    registry = versioned()
    run(
        registry,
        SetListeners(
            NodeId(2),
            (
                ListenerAddress("PLAINTEXT", 0, "10.0.0.2", 9092),
                ListenerAddress("TLS", 1, "bus-2.example.com", 9093),
            ),
        ),
        AlterCredentials(
            (CredentialChange("alice", 1, Credential(b"salt", bytes(32), bytes(32), 4096)),),
            b"x" * 32,
        ),
        CreateRules((Rule(2, "t", 3, "User:alice", "*", 3, 3),)),
        AlterQuotas((QuotaChange(Entity(("alice",), ("",)), RATES),)),
        AlterQuotas((QuotaChange(Entity(ip=("198.51.100.7",)), OF_ADDRESS),)),
    )
    return registry


def test_the_bytes_of_an_image_with_security_do_not_change() -> None:
    assert secured().snapshot() == image(9)
    assert Registry.restore(image(9)).snapshot() == image(9)


def test_an_image_without_anything_of_security_is_written_as_before() -> None:
    """A node that has no listeners of its own any more leaves no trace of them."""
    registry = versioned()
    run(registry, CreateRules(RULES_OF_NOBODY), SetListeners(NodeId(2), LISTENER))
    run(registry, SetListeners(NodeId(2), ()), DeleteRules(RULES_OF_NOBODY))
    assert registry.snapshot()[0] == 8
    with pytest.raises(PackingError, match="an older one says as much"):
        Registry.restore(bytes((9,)) + registry.snapshot()[1:] + encode(SECURITY, NO_SECURITY))
