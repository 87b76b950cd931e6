"""The clients' gate: the Kafka port is closed while this node is cut off from its peers
(runtime.membership.quorum_contact, ADR 42).

It is also closed after a start, until the node has learned the current registry once: a node with
an empty disk, or one that was down for a while, would say that topics do not exist. For clients a
closed port means that the node is down, and they ask another.
"""

from typing import Final

from broker.requests.context import Broker
from paxos.ids import MS, REGISTRY_GROUP, GroupId
from runtime.clients.clients import Clients
from runtime.clients.endings import CUT_OFF
from runtime.engine.engine import Engine
from runtime.membership.quorum_contact import QuorumContact, QuorumView
from runtime.network.listener import Listening
from runtime.system.journal import Journal

WHY_CUT_OFF: Final = "no majority of the nodes answers: clients are sent to others"
WHY_LEARNING: Final = "still learning which topics there are: clients are not accepted yet"
LEARNING_NS_MAX: Final = 10_000 * MS
"""After this time clients are accepted anyway: some group may have a majority even if the registry
has none. The node does not say of unknown topics that they do not exist
(broker.handlers.topics.known_names)."""


class Gate:
    def __init__(self, engine: Engine, broker: Broker, clients: Clients, journal: Journal) -> None:
        self._engine, self._registry = engine, broker.registry
        self._clients, self._journal = clients, journal
        self.contact = QuorumContact(self._touch, engine.multi.timing.lease_ns)
        broker.redirects_clients = lambda: self.contact.cut_off
        broker.client_service = lambda: self.state
        self._listener: Listening | None = None
        """The listener of the Kafka port, once it is bound."""
        self.learning = True
        """Whether our copy of the registry has not been current since the start."""
        self._learning_since: int | None = None
        self._told = False

    def guard(self, listener: Listening) -> None:
        """Take over the Kafka port: bound, but closed at first."""
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
                self._journal.warning("cut off: requests for metadata are sent to other nodes")
            else:
                self._journal.warning("in contact with a majority again: clients are served")
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
            self._journal.info("clients are accepted", after_ms=waited_ns // MS)
        elif waited_ns > LEARNING_NS_MAX:
            self.learning = False
            self._journal.warning("clients are accepted, no majority of the registry is up")

    def _touch(self) -> QuorumView:
        """Our contact with the members of all groups. Those that this node does not have count as
        well: it forwards to them, and names their masters."""
        engine = self._engine
        groups = {*engine.multi.replicas, *map(GroupId, self._registry.groups), REGISTRY_GROUP}
        members = {engine.members(group) for group in groups}
        return QuorumView(engine.multi.me, engine.answered, members)

    @property
    def state(self) -> str:
        """What happens to clients, for the status."""
        if self.learning:
            return "not let in yet"
        if self.contact.closed:
            return "disconnected"
        return "sent away" if self.contact.cut_off else "served"

    @property
    def complaint(self) -> str:
        return WHY_CUT_OFF if self.contact.cut_off else ""
