"""What a node looks at every second for the sake of security: files, keys, and open connections."""

from collections.abc import Callable

from broker.requests.context import Broker
from runtime.clients.clients import Clients
from runtime.clients.cut_off import CutOffs
from runtime.clients.doors import Entrances
from runtime.oauth.keys import Keys
from runtime.shell import Shell
from runtime.system.journal import Journal


class Watch:
    def __init__(
        self,
        entrances: Entrances,
        clients: Clients,
        broker: Broker,
        keys: Keys | None,
        journal: Journal,
    ) -> None:
        submit = broker.background.submit
        self._look_at_files = entrances.looking(submit)
        self._entrances, self.keys = entrances, keys

        def wall_s() -> float:
            return broker.groups.now().wall_ns / 1e9

        self.cut_offs = CutOffs(clients, entrances.contexts, submit, wall_s, journal)

    def of(self, shell: Shell) -> None:
        """Be asked by the shell."""
        shell.look_at_files, shell.cut_off_revoked = self.tick, self.cut_offs.revoked

    def tick(self, boot_ns: int) -> None:
        self._look_at_files(boot_ns)
        if self.keys is not None:
            self.keys.tick(boot_ns)
        self.cut_offs.tick(boot_ns)

    @property
    def on_hangup(self) -> Callable[[], None] | None:
        """What SIGHUP does: look at the files at once; None where there are none."""
        tls = self._entrances.on_hangup
        keys = None if self.keys is None else self.keys.hurry
        if tls is None or keys is None:
            return tls or keys

        def both() -> None:
            tls()
            keys()

        return both
