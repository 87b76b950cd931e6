"""Whether a node's clock may be trusted, by what its peers say of theirs (R12, ADR 43).

A wrong clock does harm: every lease seems to have expired, and nobody knows when a lease that it
took will. So once a peer contradicts a clock, the node trusts it only while a majority, this node
included, may agree with it. After that, as at the start, it trusts it only when a majority has
proved anew that it agrees:

* What we know of a peer is an interval that contains the difference of the two clocks, taken from
  one of its answers. The interval widens with time. Another answer replaces it if it is more exact
  by then, or contradicts it. Two answers are never combined, for a clock may have been set between.
* A peer contradicts us if all of its interval is too far off, and proves us right if none of it is:
  |offset| - error to doubt, |offset| + error to trust. An interval in between keeps trust but does
  not restore it.
* A lost link says nothing about the time, so it ends neither doubt nor trust. But an answer speaks
  for or against us no longer than READING_LASTS_NS.
* If both clocks of this machine stood still (the host stopped a virtual machine), nothing on the
  machine shows it, and the lease seems to run on. But all peers are ahead by as much, and show it
  in their first messages: then we doubt the clock at once, whatever others said before. Messages
  that waited in the sockets show little at first, so they are compared with the last answer.

Pure: `boot_ns`, the reading of a clock that never steps, is an argument.
"""

from typing import Final

import attrs

from paxos.ids import MS, NodeId

SUSPECT_SHARE: Final = 0.8
"""The node gives up its masterships once it uses this share of the margin (CockroachDB: 80 %)."""

WIDENING_PER_SECOND_NS: Final = 3 * MS
"""Two clocks drift apart no faster: both are slewed, and each crystal is off by a little."""

READING_LASTS_NS: Final = 30_000 * MS
"""A peer that has not answered for so long no longer vouches for our clock."""

STOPS_TOLD_EVERY_NS: Final = 10_000 * MS
"""A peer that alone saw us stand still is believed again only after so long: its own clock may be
the one that jumps."""

_NEVER: Final = 1 << 80
"""More nanoseconds than there will be: an interval without an end."""


@attrs.frozen
class _Interval:
    """By how much a peer's clock is ahead of ours, at least and at most, as of `boot_ns`."""

    least: int
    most: int
    boot_ns: int
    asked_boot_ns: int
    """When we asked for this answer."""
    answer: int
    """Its number, counted over all peers."""
    heard_boot_ns: int
    """When the peer last answered at all."""
    answered: "_Interval | None" = None
    """What its last answer said, if the peer has since said this interval unasked."""

    def at(self, boot_ns: int) -> tuple[int, int]:
        wider = WIDENING_PER_SECOND_NS * max(0, boot_ns - self.boot_ns) // 1_000_000_000
        return self.least - wider, self.most + wider


class Trust:
    """`others_needed`: how many other nodes make a majority with this one."""

    def __init__(self, margin_ns: int, *, others_needed: int) -> None:
        self._most_ns = int(SUSPECT_SHARE * margin_ns)
        self._intervals: dict[NodeId, _Interval] = {}
        self._linked: set[NodeId] = set()
        self._answers = self._doubted_at_answer = 0
        self._stopped_boot_ns = 0
        """Answers to earlier questions prove nothing: our clocks may have stood still since."""
        self._stop_told_boot_ns: dict[NodeId, int] = {}
        self._others_needed = others_needed
        self._lasts_until_boot_ns = 0
        """Before this, no answer that counted in the last judgement expires. Until then time cannot
        end trust: it only widens the intervals, and a peer that vouches for us goes on to."""
        self.trusted = others_needed == 0
        self.compared = self.trusted
        """Whether it was ever trusted."""
        self.stood_still = 0
        """How often a peer has shown that this machine's clocks had stood still."""
        self.asks = False
        """Whether readings are wanted sooner than usual; whoever asks for them resets it."""

    # -- what peers say ------------------------------------------------------------------------

    def needs(self, others: int, boot_ns: int) -> None:
        """The cluster has grown or shrunk: so many others make a majority with this node."""
        if others != self._others_needed:
            self._others_needed = others
            self._judge(boot_ns)

    def on_answer(self, node: NodeId, offset_ns: int, error_ns: int, boot_ns: int) -> None:
        """A peer's wall clock is ahead of ours by `offset_ns`, plus or minus `error_ns`: half the
        time that asking took."""
        if error_ns < 0:
            return  # it answers a question from the future: no peer's clock explains that
        self._linked.add(node)
        self._answers += 1
        least, most = offset_ns - error_ns, offset_ns + error_ns
        asked = boot_ns - 2 * error_ns
        self._learn(node, _Interval(least, most, boot_ns, asked, self._answers, boot_ns))

    def on_told(self, node: NodeId, least_ns: int, boot_ns: int) -> None:
        """A peer's wall clock is ahead of ours by at least so much: it showed that at some time in
        the past."""
        known = self._intervals.get(node)
        if known is None:
            return
        least, most = known.at(boot_ns)
        if least_ns > (most if known.answered is None else least):
            told = attrs.evolve(
                known,
                least=least_ns,
                most=_NEVER,
                boot_ns=boot_ns,
                answered=known.answered or known,
            )
            self._learn(node, told)

    def unlinked(self, node: NodeId) -> None:
        """The link to the peer is gone. What it said about our clock remains true."""
        self._linked.discard(node)

    def drop(self, node: NodeId, boot_ns: int) -> None:
        """The node has left the cluster."""
        self._linked.discard(node)
        self._stop_told_boot_ns.pop(node, None)
        if self._intervals.pop(node, None) is not None:
            self._judge(boot_ns)

    def look(self, boot_ns: int) -> None:
        """Call regularly: time may end trust, and never begins it."""
        if self.trusted and boot_ns >= self._lasts_until_boot_ns:
            self._judge(boot_ns)

    def _learn(self, node: NodeId, heard: _Interval) -> None:
        known, boot = self._intervals.get(node), heard.boot_ns
        if known is not None:
            least, most = (known.answered or known).at(boot)
            if heard.least > most and least < self._most_ns <= heard.least:
                self._seems_stopped(node, boot)
            least, most = known.at(boot)
            agree = heard.least <= most and least <= heard.most
            if agree and heard.most - heard.least > most - least:
                heard = attrs.evolve(known, heard_boot_ns=boot)
        self._intervals[node] = heard
        self._judge(boot)

    def _seems_stopped(self, node: NodeId, boot: int) -> None:
        """This peer is suddenly far ahead: its clock was set, or ours stood still. The others can
        tell which, but only by new answers."""
        told = self._stop_told_boot_ns.get(node)
        if told is None or boot - told >= STOPS_TOLD_EVERY_NS:
            self._stop_told_boot_ns[node] = self._stopped_boot_ns = boot
            self.stood_still += 1
            self._doubt()

    def _doubt(self) -> None:
        self._doubted_at_answer = self._answers
        if self._needed:
            self.trusted = False
            self.asks = True

    def _judge(self, boot: int) -> None:
        vouching = proving = against = 0
        first_heard = _NEVER
        for known in self._intervals.values():
            if boot - known.heard_boot_ns >= READING_LASTS_NS:
                continue
            first_heard = min(first_heard, known.heard_boot_ns)
            least, most = known.at(boot)
            vouches = least < self._most_ns and most > -self._most_ns
            vouching += vouches
            against += not vouches
            if known.answer > self._doubted_at_answer and (
                known.asked_boot_ns >= self._stopped_boot_ns
            ):
                proving += -self._most_ns < least and most < self._most_ns
        self._lasts_until_boot_ns = first_heard + READING_LASTS_NS
        needed = self._needed
        if self.trusted:
            if against and vouching < needed:
                self._doubt()
        elif proving >= needed:
            self.trusted = self.compared = True
            if self._stop_told_boot_ns:  # a peer that was right may say so again at any time
                wrong = self._contradicted_by(boot)
                told = self._stop_told_boot_ns.items()
                self._stop_told_boot_ns = {node: at for node, at in told if node in wrong}

    @property
    def _needed(self) -> int:
        """As configured, or what a majority of the known nodes takes, if that is more."""
        return max(self._others_needed, len(self._intervals) // 2)

    # -- what it reports ----------------------------------------------------------------------

    def complaint(self, boot_ns: int) -> str:
        """Why this clock is not trusted, or ""."""
        if self.trusted:
            return ""
        against = self._contradicted_by(boot_ns)
        if len(against) > 1 and len(against) >= self._needed:
            return "this node's clock is off: check its time synchronisation"
        if against:
            node, offset = next(iter(sorted(against.items())))
            return (
                f"this node's clock is off from that of node {node} by {abs(offset) // MS} ms, and "
                "no majority says whose is right: check the time synchronisation of both"
            )
        if self.compared:
            return (
                "this node's clock is off, or was: no majority of the nodes has confirmed it since"
            )
        return "its clock has not been compared with others yet: is a majority of the nodes up?"

    def _contradicted_by(self, boot_ns: int) -> dict[NodeId, int]:
        """Peers whose clocks certainly differ too much, and by how much at least."""
        found = {}
        for node, interval in self._intervals.items():
            least, most = interval.at(boot_ns)
            if least >= self._most_ns or most <= -self._most_ns:
                found[node] = least if least > 0 else most
        return found

    @property
    def offsets_ns(self) -> dict[NodeId, int]:
        """Offsets of the linked peers, from their answers."""
        return {
            node: (interval.least + interval.most) // 2
            for node, interval in self._intervals.items()
            if node in self._linked and interval.most < _NEVER // 2
        }
