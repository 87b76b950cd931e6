"""The clients' gate: shut while this node is cut off from its peers
(runtime.membership.quorum_contact, ADR 42).

And from its start until it has learned what the registry is, once: a node with an empty disk, or
one that has missed something while it was down, would say that there are no such topics. Clients
take a closed port for a node that is down, and ask another.
"""

from typing import Final

from broker.requests.context import Broker
from paxos.ids import MS, REGISTRY_GROUP, GroupId
from runtime.clients.clients import CUT_OFF, Clients
from runtime.engine.engine import Engine
from runtime.membership.quorum_contact import QuorumContact, QuorumView
from runtime.network.listener import Listening
from runtime.system.journal import Journal

WHY_CUT_OFF: Final = "no majority of the nodes answers: clients are sent to others"
WHY_LEARNING: Final = "only just learning which topics there are: clients are not let in yet"
LEARNING_NS_MAX: Final = 10_000 * MS
"""Then clients are let in to what this node has: a majority of some group may be up although none
of the registry's is. Topics it does not know it does not deny
(broker.handlers.topics.known_names)."""


class Gate:
    def __init__(self, engine: Engine, broker: Broker, clients: Clients, journal: Journal) -> None:
        self._engine, self._registry = engine, broker.registry
        self._clients, self._journal = clients, journal
        self.contact = QuorumContact(self._touch, engine.multi.timing.lease_ns)
        broker.redirects_clients = lambda: self.contact.cut_off
        broker.client_service = lambda: self.state
        self._listener: Listening | None = None
        """Of the Kafka port, once it is ours."""
        self.learning = True
        """Whether it was never known yet that our copy of the registry is all there is."""
        self._learning_since: int | None = None
        self._told = False

    def guard(self, listener: Listening) -> None:
        """Of the Kafka port: shut at first, and nobody else's."""
        self._listener = listener
        if self.learning:
            listener.refuse_all()

    def tick(self, boot_ns: int) -> None:
        contact, listener = self.contact, self._listener
        contact.look(boot_ns)
        if self.learning:
            self._look_whether_learned(boot_ns)
        if contact.cut_off != self._told:
            self._told = contact.cut_off
            if self._told:
                self._journal.warning("cut off: who asks for the cluster is sent to other nodes")
            else:
                self._journal.warning("in touch with a majority again: clients are served")
        shut = contact.closed or self.learning
        if listener is None or listener.accepting is not shut:
            return
        if shut:
            listener.refuse_all()
            closed = len(self._clients.connections)
            self._journal.warning("cut off: clients are disconnected", connections=closed)
            self._clients.close_all(CUT_OFF)
        else:
            listener.accept_again()

    def _look_whether_learned(self, boot_ns: int) -> None:
        if self._learning_since is None or self.contact.cut_off:
            self._learning_since = boot_ns
        waited_ns = boot_ns - self._learning_since
        if self._engine.is_current(REGISTRY_GROUP):
            self.learning = False
            self._journal.info("clients are let in", after_ms=waited_ns // MS)
        elif waited_ns > LEARNING_NS_MAX:
            self.learning = False
            self._journal.warning("clients are let in, no majority of the registry is up")

    def _touch(self) -> QuorumView:
        """A group that this node does not have counts as well: it forwards and tells of its
        master."""
        engine = self._engine
        groups = {*engine.multi.replicas, *map(GroupId, self._registry.groups), REGISTRY_GROUP}
        members = {engine.members(group) for group in groups}
        return QuorumView(engine.multi.me, engine.answered, members)

    @property
    def state(self) -> str:
        """What becomes of clients, in a word."""
        if self.learning:
            return "not let in yet"
        if self.contact.closed:
            return "disconnected"
        return "sent away" if self.contact.cut_off else "served"

    @property
    def complaint(self) -> str:
        return WHY_CUT_OFF if self.contact.cut_off else ""
