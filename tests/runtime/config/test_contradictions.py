"""Addresses that contradict each other are refused with the cure; all others are left alone."""

import pytest

from paxos.ids import NodeId
from runtime.config.config import ConfigError, load
from runtime.config.contradictions import mistaken_machine
from runtime.config.fields import parse_address

OPEN = "security.insecure_listeners=true"
"""Who may do everything is not the question here."""
NODE = ("node.id=1", "node.cluster_id=c", "node.data_dir=d", OPEN)
THREE = tuple(f"peers.{node}=10.0.0.{node}:7092" for node in (1, 2, 3))
RIGHT = ("listen.peer=10.0.0.1:7092", "listen.kafka=10.0.0.1:9092")


def refusal(*settings: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(None, {}, [*NODE, *settings])
    return str(caught.value)


def test_loopback_with_peers_elsewhere_is_refused_with_both_cures() -> None:
    """The example that formed no cluster: every listener is at its default."""
    message = refusal(*THREE)
    assert 'set listen.peer = "10.0.0.1:7092"' in message
    assert 'set listen.kafka = "0.0.0.0:9092" and listen.advertised_kafka' in message
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ((*RIGHT, "listen.peer=10.0.0.1:7093"), 'peers.1 = "10.0.0.1:7092"'),
        ((*RIGHT, "listen.peer=10.0.0.9:7092"), "make them equal, or listen on 0.0.0.0"),
        ((*RIGHT, "peers.1=127.0.0.1:7092", "listen.peer=0.0.0.0:7092"), "name this machine's own"),
        (("listen.peer=10.0.0.1:7092",), "only clients on this machine can connect to it"),
        (("listen.peer=localhost:7092", *RIGHT[1:]), "only this machine can connect to it"),
        (("peers.2=bus-2.lan:7092", "listen.kafka=10.0.0.1:9092"), "is on another"),
    ],
)
def test_contradictions(settings: tuple[str, ...], complaint: str) -> None:
    assert complaint in refusal(*THREE, *settings)


@pytest.mark.parametrize(
    "settings",
    [
        (*THREE, *RIGHT),
        (*THREE, "listen.peer=0.0.0.0:7092", *RIGHT[1:]),
        (*THREE, *RIGHT, "listen.kafka=0.0.0.0:9092", "listen.advertised_kafka=54.1.2.3:19092"),
        (*THREE, *RIGHT, "listen.advertised_kafka=bus-1.lan:9092"),
        (*THREE, *RIGHT, "listen.advertised_kafka=54.1.2.3:9092"),  # translated on the way
        (*THREE, RIGHT[0], "listen.advertised_kafka=bus.example.com:9093"),  # a proxy beside it
        (
            "peers.1=[fd00::1]:7092",
            "peers.2=[fd00::2]:7092",
            "listen.peer=[FD00::1]:7092",
            "listen.kafka=[::]:9092",
            "listen.advertised_kafka=[fd00::1]:9092",
        ),
        ("peers.1=127.0.0.1:7001", "peers.2=localhost.localdomain:7002"),
        ("peers.1=127.0.0.1:7092",),
        ("peers.1=10.0.0.1:7092",),
        ("peers.1=127.0.0.1:7001", "peers.2=127.0.0.1:7002", "listen.peer=127.0.0.1:7003"),
        (
            "peers.1=node-1:7092",
            "peers.2=node-2:7092",
            "listen.peer=0.0.0.0:7092",
            "listen.kafka=0.0.0.0:9092",
            "listen.advertised_kafka=127.0.0.1:9092",
        ),
    ],
)
def test_what_may_well_be_meant(settings: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """`localhost.localdomain` stands for a name in /etc/hosts."""
    here = [(None, None, None, "", ("127.0.0.1", 7002))]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_args, **_named: here)
    load(None, {}, [*NODE, *settings])


def test_another_nodes_file_on_this_machine() -> None:
    """Then two nodes would have one id."""
    peers = {NodeId(node): parse_address(f"10.0.0.{node}:7092") for node in (1, 2, 3)}
    message = mistaken_machine(NodeId(1), peers, lambda host: host == "10.0.0.2")
    assert "node.id = 1: this is the machine of node 2" in message
    assert "use the configuration of node 2 here" in message
    assert mistaken_machine(NodeId(2), peers, lambda host: host == "10.0.0.2") == ""
    assert mistaken_machine(NodeId(1), peers, lambda _host: False) == ""
    assert mistaken_machine(NodeId(1), {NodeId(1): parse_address("127.0.0.1:1")}) == ""
