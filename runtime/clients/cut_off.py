"""Who is no longer believed is cut off, on open connections too.

Once a second: sessions that are over (KIP-368: Kafka waits for the next request), and certificates
that have expired. When authorities or lists of revoked certificates were read again, the chains of
open connections are judged anew, in the background thread, BATCH different ones at a time; each
batch closes its connections at once. When credentials have changed, those who came in with them.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from broker.security.authentication import CutOff
from broker.security.users import Proof
from runtime.clients.clients import Client, Clients
from runtime.network.tls_belief import Belief
from runtime.network.tls_channel import TlsChannel
from runtime.network.tls_context import TlsContexts
from runtime.system.journal import Journal

BATCH: Final = 500
"""Different certificates that are judged in one job: about a tenth of a second."""
RENEWAL_NS: Final = 10_000_000_000
"""For the messages of a re-authentication that has begun in time."""
Chain: TypeAlias = tuple[bytes, ...]
Verdicts: TypeAlias = dict[Chain, str]
Submit: TypeAlias = Callable[[Callable[[], Verdicts], Callable[[Verdicts], None]], None]


class CutOffs:
    def __init__(
        self,
        clients: Clients,
        contexts: TlsContexts | None,
        submit: Submit,
        wall_s: Callable[[], float],
        journal: Journal,
    ) -> None:
        self._clients, self._contexts, self._submit = clients, contexts, submit
        self._wall_s, self._journal = wall_s, journal
        self._judging = False
        self.closed: Counter[CutOff] = Counter()
        if contexts is not None:
            contexts.on_reload = self.judge

    def revoked(self, holds: Callable[[Proof], bool]) -> int:
        """Close the connections whose user is gone or has other credentials; returns how many."""
        sessions = [(client, client.connection.session) for client in self._clients.connections]
        revoked = [client for client, one in sessions if one is not None and one.is_revoked(holds)]
        for client in revoked:
            self._close(
                client, CutOff.CREDENTIALS, "its user's credentials were changed or deleted"
            )
        return len(revoked)

    def tick(self, boot_ns: int) -> None:
        wall_s = self._wall_s()
        for client in list(self._clients.connections):
            session, channel = client.connection.session, client.channel
            if session is not None and session.has_expired(boot_ns, RENEWAL_NS):
                why = "its session has expired, and it has not authenticated again"
                self._close(client, CutOff.EXPIRED, why)
                continue
            shown = channel.shown if isinstance(channel, TlsChannel) else None
            if shown is not None and shown.expires_s <= wall_s:
                self._close(client, CutOff.CERTIFICATE, "its certificate has expired")
        self.judge()

    def judge(self) -> None:
        """Judge the certificates of open connections that others than today's files have let
        in."""
        contexts = self._contexts
        if contexts is None or self._judging:
            return
        files = contexts.reloads_total
        chains: dict[Chain, None] = {}
        for _, channel in self._of_earlier(files):
            assert channel.shown is not None
            chains[channel.shown.chain] = None
            if len(chains) >= BATCH:
                break
        if chains:
            self._judging = True
            work = partial(_verdicts, contexts.belief, tuple(chains), self._wall_s())
            self._submit(work, partial(self._judged, files))

    def _judged(self, files: int, verdicts: Verdicts) -> None:
        self._judging = False
        closed = 0
        for client, channel in self._of_earlier(files):
            assert channel.shown is not None
            why = verdicts.get(channel.shown.chain)
            if why is None:
                continue  # its batch comes
            channel.believed_by = files
            if why:
                closed += 1
                self._close(client, CutOff.CERTIFICATE, why)
        self._journal.info(
            "certificates of open connections judged again",
            different=len(verdicts),
            connections_closed=closed,
        )
        self.judge()

    def _of_earlier(self, files: int) -> list[tuple[Client, TlsChannel]]:
        return [
            (client, client.channel)
            for client in self._clients.connections
            if isinstance(client.channel, TlsChannel)
            and client.channel.shown is not None
            and client.channel.believed_by < files
        ]

    def _close(self, client: Client, why: CutOff, words: str) -> None:
        self.closed[why] += 1
        client.close(words)


def _verdicts(belief: Belief, chains: tuple[Chain, ...], now_s: float) -> Verdicts:
    """In the background thread."""
    return {chain: _verdict(belief, chain, now_s) for chain in chains}


def _verdict(belief: Belief, chain: Chain, now_s: float) -> str:
    try:
        return belief.problem(chain, now_s)
    except Exception as error:  # noqa: BLE001  whatever a library makes of it: not believed
        return f"its certificate cannot be judged: {type(error).__name__}"
