"""The clients' gate: shut while this node is cut off from its peers (runtime.contact, ADR 42)."""

from typing import Final

from broker.context import Broker
from paxos.ids import REGISTRY_GROUP, GroupId
from runtime.clients import CUT_OFF, Clients
from runtime.contact import Contact, Touch
from runtime.engine import Engine
from runtime.journal import Journal
from runtime.listener import Listener

WHY_CUT_OFF: Final = "no majority of the nodes answers: clients are sent to others"


class Gate:
    def __init__(self, engine: Engine, broker: Broker, clients: Clients, journal: Journal) -> None:
        self._engine, self._registry = engine, broker.registry
        self._clients, self._journal = clients, journal
        self.contact = Contact(self._touch, engine.multi.timing.lease_ns)
        broker.sends_away = lambda: self.contact.cut_off
        broker.clients_are = lambda: self.state
        self.listener: Listener | None = None
        """Of the Kafka port, once it is open."""
        self._told = False

    def tick(self, boot_ns: int) -> None:
        contact, listener = self.contact, self.listener
        contact.look(boot_ns)
        if contact.cut_off != self._told:
            self._told = contact.cut_off
            if self._told:
                self._journal.warning("cut off: who asks for the cluster is sent to other nodes")
            else:
                self._journal.warning("in touch with a majority again: clients are served")
        if listener is None or listener.accepting is not contact.closed:
            return
        if contact.closed:
            listener.refuse_all()
            closed = len(self._clients.connections)
            self._journal.warning("cut off: clients are disconnected", connections=closed)
            self._clients.close_all(CUT_OFF)
        else:
            listener.accept_again()

    def _touch(self) -> Touch:
        """A group that this node does not have counts as well: it forwards and tells of its
        master."""
        engine = self._engine
        groups = {*engine.multi.replicas, *map(GroupId, self._registry.groups), REGISTRY_GROUP}
        members = {engine.members(group) for group in groups}
        return Touch(engine.multi.me, engine.answered, members)

    @property
    def state(self) -> str:
        """What becomes of clients, in a word."""
        if self.contact.closed:
            return "disconnected"
        return "sent away" if self.contact.cut_off else "served"

    @property
    def complaint(self) -> str:
        return WHY_CUT_OFF if self.contact.cut_off else ""
