"""What a node looks at every second for the sake of security: files, keys, and open connections."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry

from broker.requests.context import Broker
from runtime.clients.cut_off import CutOffs
from runtime.clients.doors import Entrances
from runtime.metrics.authentication import AuthenticationMetrics
from runtime.metrics.listeners import ListenerMetrics
from runtime.network.tls_context import TlsContexts
from runtime.shell import Shell
from runtime.system.journal import Journal


class Watch:
    """Tells the shell to call it, and the registry of metrics what it has seen."""

    def __init__(
        self,
        entrances: Entrances,
        of_links: TlsContexts | None,
        broker: Broker,
        shell: Shell,
        registry: CollectorRegistry,
        journal: Journal,
    ) -> None:
        self._look_at_files = entrances.looking(broker.background.submit, of_links)
        self._entrances = entrances
        self._keys = None if broker.authentication is None else broker.authentication.keys

        def wall_s() -> float:
            return broker.groups.now().wall_ns / 1e9

        self.cut_offs = CutOffs(
            shell.clients, entrances.contexts, broker.background.submit, wall_s, journal
        )
        shell.look_at_files, shell.cut_off_revoked = self.tick, self.cut_offs.revoked
        ListenerMetrics(registry, entrances, shell.peers)
        AuthenticationMetrics(registry, broker.authentication, self.cut_offs.closed)

    def tick(self, boot_ns: int) -> None:
        self._look_at_files(boot_ns)
        if self._keys is not None:
            self._keys.tick(boot_ns)
        self.cut_offs.tick(boot_ns)

    @property
    def on_hangup(self) -> Callable[[], None] | None:
        """What SIGHUP does: look at the files at once; None where there are none."""
        tls = self._entrances.on_hangup
        keys = None if self._keys is None else self._keys.hurry
        if tls is None or keys is None:
            return tls or keys

        def both() -> None:
            tls()
            keys()

        return both
