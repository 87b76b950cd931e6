"""Whether a node's directory is its own: what peers compare, and who may take part when.

The question is always whether a node may vote although it does not know what it has promised. The
tests are named after the history of the directory.
"""

import attrs
import pytest

from balancer.registry.records import Address, Node
from paxos.codec import PeerError
from paxos.ids import INCARNATION_MAX, Incarnation, NodeId
from runtime.membership.admission import WAIT_FOR_OTHERS_NS, Admission, Judgement, Life, Verdict
from runtime.membership.handshake import RefusalReason
from storage.disk.memory import MemoryDisk
from storage.errors import DirectoryRefused
from storage.lives import BELIEVED_MAX
from storage.witness import Witnessed, read_witness, write_witness
from tests.runtime.engines import Member, Net

NOWHERE = Address("127.0.0.1", 1)
EARLY, LATE = 1 << 32 | 900, 3 << 32 | 40


@attrs.define
class Story:
    """One node as another one knows it: what is registered, and whether the other has a log."""

    registered: dict[NodeId, Node] = attrs.Factory(dict)
    untouched: bool = False
    witnessed: Witnessed = attrs.Factory(dict)

    def asked(self) -> Admission:
        """The node that is asked: number 1 of three."""
        return Admission(
            NodeId(1),
            Incarnation(100),
            Incarnation(99),
            quorum_sets=lambda: [(NodeId(1), NodeId(2), NodeId(3))],
            nodes=lambda: self.registered,
            untouched=lambda _node: self.untouched,
            witnessed=self.witnessed,
        )

    def register(self, incarnation: int, node: int = 2) -> None:
        who = NodeId(node)
        self.registered[who] = Node(
            who, Incarnation(incarnation), NOWHERE, NOWHERE, NOWHERE, "", draining=False
        )


def life(incarnation: int, previous: int, place: int = LATE, *, settled: bool = False) -> Life:
    return Life(Incarnation(incarnation), Incarnation(previous), place, settled, asks=not settled)


def judged(asked: Admission, one: Life, node: int = 2) -> Judgement:
    return asked.judge(NodeId(node), one).judgement


# -- what peers answer ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("incarnation", "previous", "judgement"),
    [
        (51, 50, Judgement.KNOWN),  # the usual restart
        (60, 55, Judgement.KNOWN),  # boots in between that no other node heard of
        (50, 40, Judgement.KNOWN),  # the same process again after its link was lost
        (60, 49, Judgement.FORGETFUL),  # an old copy of the directory
        (60, 0, Judgement.FORGETFUL),  # an empty one
        (49, 48, Judgement.OUTDATED),  # an old copy, and a clock that was set back
    ],
)
def test_a_registered_incarnation_must_be_in_the_directorys_past(
    incarnation: int, previous: int, judgement: Judgement
) -> None:
    story = Story()
    story.register(50)
    assert judged(story.asked(), life(incarnation, previous)) is judgement


def test_a_copy_taken_while_the_same_incarnation_ran_is_too_short() -> None:
    story = Story()
    story.register(50)
    asked = story.asked()
    for place in (EARLY, LATE, LATE):
        asked.witness(NodeId(2), life(50, 49, place, settled=True))
    assert judged(asked, life(51, 50, EARLY)) is Judgement.FORGETFUL
    assert judged(asked, life(51, 50, LATE)) is Judgement.KNOWN
    # once it has accepted that, its new log counts
    story.register(51)
    for _ in range(2):
        asked.hear(NodeId(2), life(51, 50, EARLY, settled=True))
    assert judged(asked, life(52, 51, EARLY)) is Judgement.KNOWN


def test_how_far_a_log_goes_is_believed_when_it_is_said_again() -> None:
    """The value will be held against the node later: one wrong message must not take its votes."""
    story = Story()
    story.register(50)
    asked = story.asked()
    for place in (EARLY, EARLY, LATE, EARLY):
        asked.witness(NodeId(2), life(50, 49, place, settled=True))
        assert asked.witnessed.get(NodeId(2), (50, EARLY)) == (50, EARLY)
    assert judged(asked, life(51, 50, EARLY)) is Judgement.KNOWN
    for place in (LATE, LATE, EARLY, EARLY):  # twice in a row, and corrected
        asked.witness(NodeId(2), life(50, 49, place, settled=True))
    assert judged(asked, life(51, 50, EARLY)) is Judgement.KNOWN


def test_a_word_of_an_earlier_life_and_one_of_this_are_not_the_same_word_twice() -> None:
    asked = Story().asked()
    asked.witness(NodeId(2), life(50, 49, LATE, settled=True))
    asked.witness(NodeId(2), life(51, 50, LATE, settled=True))
    assert asked.witnessed == {}


def test_an_empty_directory_is_the_first_one_only_where_nobody_has_a_log() -> None:
    story = Story(untouched=True)
    asked = story.asked()
    assert judged(asked, life(7, 0)) is Judgement.KNOWN
    story.untouched = False  # a master was elected meanwhile
    assert judged(asked, life(7, 0)) is Judgement.KNOWN, "the same one asks again"
    assert judged(asked, life(8, 0)) is Judgement.FORGETFUL, "emptied since"
    assert judged(asked, life(7, 0), node=3) is Judgement.FORGETFUL, "too late"


def test_a_node_that_was_never_registered_may_have_a_log() -> None:
    """It crashed between its first votes and its registration."""
    assert judged(Story().asked(), life(8, 7)) is Judgement.KNOWN


# -- how a node uses the answers ------------------------------------------------------------------


def asking(previous: int, others: int = 2) -> Admission:
    nodes = [NodeId(node) for node in range(1, 2 + others)]
    return Admission(
        NodeId(1),
        Incarnation(100),
        Incarnation(previous),
        quorum_sets=lambda: [nodes],
        nodes=dict,
        untouched=lambda _node: not previous,
    )


def verdict(judgement: Judgement, incarnation: int = 100) -> Verdict:
    known = {Judgement.KNOWN: 0, Judgement.FORGETFUL: 50, Judgement.OUTDATED: 150}[judgement]
    return Verdict(Incarnation(incarnation), judgement, Incarnation(known))


def answer(
    admission: Admission, node: int, judgement: Judgement, at_ns: int = 0, life: int = 7
) -> None:
    """A node that takes part itself is asked, and answers."""
    admission.hear(NodeId(node), Life(Incarnation(life), Incarnation(1), LATE, True, False))
    admission.asked(NodeId(node))
    admission.on_verdict(NodeId(node), verdict(judgement), at_ns, Incarnation(life))


@pytest.mark.parametrize(
    ("previous", "others", "needed"),
    [(99, 2, 1), (0, 2, 2), (99, 4, 2), (0, 4, 4), (99, 1, 1), (0, 1, 1), (0, 0, 0), (99, 3, 2)],
)
def test_how_many_have_to_know_it(previous: int, others: int, needed: int) -> None:
    """A majority including the node itself; for an empty directory all nodes."""
    admission = asking(previous, others)
    for node in range(needed):
        assert not admission.settled
        assert admission.waits_for == needed - node
        answer(admission, 2 + node, Judgement.KNOWN)
        answer(admission, 2 + node, Judgement.KNOWN)  # counts once
    assert admission.settled
    assert not admission.forgetful


def test_who_is_in_no_group_from_the_beginning_need_not_ask() -> None:
    admission = Admission(
        NodeId(4),
        Incarnation(100),
        Incarnation(0),
        quorum_sets=list,
        nodes=dict,
        untouched=lambda _node: False,
    )
    assert admission.settled
    assert not admission.asks


def test_a_node_outside_the_registrys_group_needs_a_majority_of_it() -> None:
    circle = tuple(NodeId(node) for node in (1, 2, 3))
    admission = Admission(
        NodeId(4),
        Incarnation(100),
        Incarnation(99),
        quorum_sets=lambda: [circle],
        nodes=dict,
        untouched=lambda _node: False,
    )
    assert admission.waits_for == 2


def test_one_that_remembers_more_is_enough_to_be_careful() -> None:
    admission = asking(0)
    answer(admission, 2, Judgement.KNOWN)
    answer(admission, 3, Judgement.FORGETFUL)
    assert admission.doubted, "at once"
    assert not admission.forgetful, "when it has said so again"
    answer(admission, 3, Judgement.FORGETFUL)
    assert admission.forgetful
    assert not admission.settled


@pytest.mark.parametrize("judgement", [Judgement.FORGETFUL, Judgement.OUTDATED])
def test_one_wrong_word_takes_no_vote(judgement: Judgement) -> None:
    admission = asking(99)
    answer(admission, 2, Judgement.KNOWN)
    answer(admission, 3, judgement)
    assert admission.doubted
    admission.on_verdict(NodeId(3), verdict(judgement))  # it comes twice: nothing was asked since
    assert admission.doubted
    answer(admission, 3, Judgement.KNOWN)
    assert not admission.doubted
    assert not admission.forgetful
    assert admission.settled
    assert not admission.asks


def test_what_was_not_asked_is_not_answered() -> None:
    admission = asking(99)
    for judgement in Judgement:
        admission.on_verdict(NodeId(2), verdict(judgement))
    assert not admission.doubted
    assert not admission.settled


def test_two_nodes_that_say_the_same_are_believed() -> None:
    admission = asking(99)
    answer(admission, 2, Judgement.FORGETFUL)
    answer(admission, 3, Judgement.FORGETFUL)
    assert admission.forgetful


def test_who_has_doubts_is_asked_what_it_was_asked_at_first() -> None:
    """It compares the length of our log, which has grown since."""
    admission = asking(99)
    assert admission.life(EARLY).place == EARLY
    answer(admission, 2, Judgement.KNOWN)
    assert not admission.life(LATE).settled, "not before its directory says so"
    admission.noted = True
    usual = admission.life(LATE)
    assert (usual.place, usual.settled) == (LATE, True)
    answer(admission, 3, Judgement.FORGETFUL)
    again = admission.life(LATE)
    assert again.place == EARLY
    assert again.asks
    assert not again.settled, "else it would be kept as how far the log goes"


def test_who_said_it_and_is_not_heard_any_more_is_believed() -> None:
    admission = asking(99)
    answer(admission, 2, Judgement.FORGETFUL, at_ns=10)
    admission.tick(111, 100, lambda node, life: True)
    assert not admission.forgetful, "it will say so again, or not"
    admission.tick(110, 100, lambda node, life: False)
    assert not admission.forgetful, "it was heard a moment ago"
    admission.tick(111, 100, lambda node, life: (node, life) != (2, 7))
    assert admission.forgetful


def test_who_said_it_and_was_born_again_may_have_forgotten_it() -> None:
    admission = asking(99)
    answer(admission, 2, Judgement.FORGETFUL, life=7)
    answer(admission, 2, Judgement.KNOWN, life=8)
    assert admission.forgetful


@pytest.mark.parametrize(
    ("judgement", "known"),
    [
        (Judgement.KNOWN, 101),  # a later life is registered: it would be outdated
        (Judgement.FORGETFUL, 1 << 50),
        (Judgement.OUTDATED, 100),
        (Judgement.OUTDATED, 0),
        (Judgement.KNOWN, 99),  # not in this directory's past
    ],
)
def test_an_impossible_verdict_costs_the_link(judgement: Judgement, known: int) -> None:
    admission = asking(98)
    admission.asked(NodeId(2))
    with pytest.raises(PeerError, match="a verdict"):
        admission.on_verdict(NodeId(2), Verdict(Incarnation(100), judgement, Incarnation(known)))
    assert not admission.doubted
    assert not admission.settled


def test_every_verdict_that_a_node_gives_is_possible() -> None:
    """Only verdicts that `judge` never gives are refused as impossible."""
    for registered in (0, 49, 50, 51, 60, 99):
        for incarnation, previous in ((50, 49), (50, 0), (60, 50), (60, 49)):
            for place in (EARLY, LATE):
                story = Story(witnessed={NodeId(2): (Incarnation(50), LATE)})
                if registered:
                    story.register(registered)
                said = story.asked().judge(NodeId(2), life(incarnation, previous, place))
                admission = Admission(
                    NodeId(2),
                    Incarnation(incarnation),
                    Incarnation(previous),
                    quorum_sets=lambda: [(NodeId(1), NodeId(2))],
                    nodes=dict,
                    untouched=lambda _node: False,
                )
                admission.asked(NodeId(1))
                admission.on_verdict(NodeId(1), said)
                assert admission.settled == (said.judgement is Judgement.KNOWN)
                assert admission.doubted == (said.judgement is not Judgement.KNOWN)


@pytest.mark.parametrize(("incarnation", "previous"), [(5, 5), (5, 6), (INCARNATION_MAX, 5)])
def test_an_impossible_life_costs_the_link(incarnation: int, previous: int) -> None:
    with pytest.raises(PeerError, match="a life"):
        Life.decode(memoryview(life(incarnation, previous).encode()))


def test_verdicts_on_other_lives_and_from_strangers_mean_nothing() -> None:
    admission = asking(99)
    for node in (1, 2, 9):
        admission.asked(NodeId(node))
    admission.on_verdict(NodeId(2), verdict(Judgement.KNOWN, incarnation=99))
    admission.on_verdict(NodeId(9), verdict(Judgement.KNOWN))
    admission.on_verdict(NodeId(1), verdict(Judgement.FORGETFUL))
    assert not admission.settled
    assert not admission.doubted


def test_who_remembers_more_is_heard_however_late() -> None:
    admission = asking(99)
    answer(admission, 2, Judgement.KNOWN)
    assert admission.settled
    assert admission.life(LATE).asks, "of node 3"
    answer(admission, 3, Judgement.FORGETFUL)
    answer(admission, 3, Judgement.FORGETFUL)
    assert admission.forgetful
    assert not admission.asks


def test_when_all_have_answered_nobody_is_asked() -> None:
    admission = asking(99)
    for node in (2, 3):
        assert admission.asks
        answer(admission, node, Judgement.KNOWN)
    assert not admission.asks


def test_an_empty_directory_that_was_admitted_asks_no_further() -> None:
    """All others are proof. A node that claims more later has a log by then, and errs."""
    admission = asking(0, others=4)
    for node in (2, 3, 4, 5):
        assert admission.asks
        answer(admission, node, Judgement.KNOWN)
    assert not admission.asks
    answer(admission, 5, Judgement.FORGETFUL)
    assert not admission.doubted


def test_a_used_incarnation_must_not_run() -> None:
    admission = asking(99)
    answer(admission, 2, Judgement.OUTDATED)
    with pytest.raises(DirectoryRefused, match="knows incarnation 150 of this node"):
        answer(admission, 2, Judgement.OUTDATED)
    assert admission.outlived_by == 150, "the next start begins above it"


def test_a_number_that_leaves_no_room_for_later_lives_is_not_kept() -> None:
    admission = asking(99)
    known = Incarnation(BELIEVED_MAX + 1)
    for _ in range(2):
        admission.asked(NodeId(2))
        said = Verdict(admission.incarnation, Judgement.OUTDATED, known)
        if admission.doubted:
            with pytest.raises(DirectoryRefused, match="look for what is wrong with node 2"):
                admission.on_verdict(NodeId(2), said)
        else:
            admission.on_verdict(NodeId(2), said)
    assert admission.outlived_by is None


def test_two_old_copies_of_three_are_known_by_the_disk_of_the_third() -> None:
    """The copies were made while the same incarnation ran, and restored while all nodes were down:
    the registry shows nothing, and after a restart memory does not either."""
    disk = MemoryDisk()
    before = Story()
    heard = before.asked()
    for node in (2, 3):
        for _ in range(2):
            heard.witness(NodeId(node), life(60, 59, LATE, settled=True))
    write_witness(disk, heard.witnessed)
    disk.crash(lambda: False)
    story = Story(witnessed=read_witness(disk))
    for node in (2, 3):
        story.register(60, node)
    asked = story.asked()
    for node in (2, 3):
        assert judged(asked, life(61, 60, LATE - 1), node) is Judgement.FORGETFUL
        assert judged(asked, life(61, 60, LATE), node) is Judgement.KNOWN


def test_who_has_only_just_started_is_not_enough_while_others_may_come() -> None:
    """Two old copies of three start together, and later the third, which remembers more: they wait
    for it, and do not become a majority that knows of nothing."""
    admission = asking(99)
    answer_of_a_newcomer(admission, 2)
    admission.tick(1_000, 0, lambda *_: True)
    assert admission.waits_for == 0
    assert not admission.settled
    answer(admission, 3, Judgement.FORGETFUL)
    answer(admission, 3, Judgement.FORGETFUL)
    admission.tick(1_000 + WAIT_FOR_OTHERS_NS, 0, lambda *_: True)
    assert admission.forgetful
    assert not admission.settled, "only when it is durable that it does not vote"


def answer_of_a_newcomer(admission: Admission, node: int, previous: int = 1) -> None:
    admission.hear(NodeId(node), life(7, previous))
    admission.asked(NodeId(node))
    admission.on_verdict(NodeId(node), verdict(Judgement.KNOWN), 0, Incarnation(7))


def test_a_cluster_that_starts_without_one_of_its_nodes_waits_for_it_and_goes_on() -> None:
    admission = asking(99)
    answer_of_a_newcomer(admission, 2)
    admission.tick(1_000, 0, lambda *_: True)
    admission.tick(1_000 + WAIT_FOR_OTHERS_NS - 1, 0, lambda *_: True)
    assert not admission.settled
    admission.tick(1_000 + WAIT_FOR_OTHERS_NS, 0, lambda *_: True)
    assert admission.settled


def test_nobody_waits_when_all_have_answered_or_one_of_them_takes_part() -> None:
    all_new, one_old = asking(99), asking(99)
    answer_of_a_newcomer(all_new, 2)
    answer_of_a_newcomer(all_new, 3)
    assert all_new.settled
    answer_of_a_newcomer(one_old, 2)
    assert not one_old.settled
    one_old.hear(NodeId(2), life(7, 1, settled=True))
    assert one_old.settled


def test_an_empty_directory_that_does_not_take_part_is_no_majority() -> None:
    """It waits for all; who began without all would know nobody's empty directory that is late."""
    with_one, with_all, with_one_that_takes_part = asking(99), asking(99), asking(99)
    for one, node in ((with_one, 2), (with_all, 2), (with_all, 3), (with_one_that_takes_part, 2)):
        answer_of_a_newcomer(one, node, previous=0)
        for at_ns in (1, 1 + WAIT_FOR_OTHERS_NS):
            one.tick(at_ns, 0, lambda *_: True)
    with_one_that_takes_part.hear(NodeId(2), life(7, 0, settled=True))
    assert (with_one.settled, with_one.waits_for) == (False, 1)
    assert with_all.settled
    assert with_one_that_takes_part.settled


# -- how the engine uses the verdict --------------------------------------------------------------


def newcomer(net: Net) -> Member:
    """Node 3 has come back, and no node has yet said whether it knows its directory."""
    net.crash(3)
    net.restart(3)
    member = net[3]
    member.engine.admission = Admission(
        NodeId(3),
        member.multi.incarnation,
        Incarnation(1),
        quorum_sets=lambda: [(NodeId(1), NodeId(2), NodeId(3))],
        nodes=dict,
        untouched=lambda _node: False,
    )
    return member


def test_who_is_not_admitted_says_nothing() -> None:
    net = Net()
    master = net.elect(1)
    member = newcomer(net)
    before = len(net.sent)
    master.submit("x")
    net.advance(2_000)
    assert not [one for one in net.sent[before:] if one.source == 3]
    life = member.engine.life(NodeId(1))
    assert life is not None
    assert life.asks
    tells(member, 1, Judgement.KNOWN)
    net.until(lambda: member.ledger.texts() == ["x"])
    assert member.replica.can_vote()


def tells(member: Member, node: int, judgement: Judgement) -> None:
    """A node answers the member's next question."""
    incarnation = member.multi.incarnation
    member.engine.life(NodeId(node))
    assert member.engine.admission is not None
    member.engine.admission.hear(NodeId(node), life(7, 1, settled=True))
    known = incarnation + (judgement is Judgement.OUTDATED)
    answer = Verdict(incarnation, judgement, Incarnation(known))
    member.engine.on_verdict(NodeId(node), answer)


def test_who_has_forgotten_takes_part_when_it_is_durable_that_it_does_not_vote() -> None:
    net = Net()
    master = net.elect(1)
    master.submit("x")
    member = newcomer(net)
    member.writer.held = True
    for _ in range(2):
        tells(member, 1, Judgement.FORGETFUL)
    net.advance(200)
    assert not member.engine.takes_part
    member.writer.held = False
    net.advance(200)
    assert member.engine.takes_part
    assert member.replica.rejoin is not None
    assert member.recorder.said("directory is not the one the peers know")
    net.until(lambda: member.replica.can_vote())
    assert member.ledger.texts() == ["x"]


def test_a_late_word_still_takes_the_vote_away() -> None:
    net = Net()
    net.elect(1)
    member = newcomer(net)
    tells(member, 1, Judgement.KNOWN)
    net.until(lambda: member.replica.can_vote())
    tells(member, 2, Judgement.FORGETFUL)
    assert not member.engine.takes_part, "until it has said so again"
    assert member.replica.rejoin is None
    member.writer.held = True
    tells(member, 2, Judgement.FORGETFUL)
    assert member.replica.rejoin is not None
    net.advance(200)
    assert not member.engine.takes_part, "it must not register before that is durable"
    member.writer.held = False
    net.advance(200)
    assert member.engine.takes_part, "as one that does not vote"


@pytest.mark.parametrize("judgement", [Judgement.FORGETFUL, Judgement.OUTDATED])
def test_one_forged_verdict_costs_a_moment_and_no_vote(judgement: Judgement) -> None:
    net = Net()
    master = net.elect(1)
    member = newcomer(net)
    tells(member, 1, Judgement.KNOWN)
    net.until(lambda: member.replica.can_vote())
    tells(member, 2, judgement)
    tells(member, 2, Judgement.KNOWN)
    assert member.engine.takes_part
    assert member.replica.can_vote()
    assert member.recorder.said("peer does not know this directory: asked again")
    master.submit("x")
    net.until(lambda: member.ledger.texts() == ["x"])


def test_who_said_it_and_fell_silent_was_perhaps_the_only_one_to_know() -> None:
    net = Net()
    net.elect(1)
    member = newcomer(net)
    tells(member, 1, Judgement.KNOWN)
    net.until(lambda: member.replica.can_vote())
    tells(member, 2, Judgement.FORGETFUL)
    net.crash(2)
    net.until(lambda: member.replica.rejoin is not None)
    assert member.engine.takes_part


def test_one_that_greeted_as_another_is_no_witness() -> None:
    net = Net()
    net.elect(1)
    member = newcomer(net)
    greeted = member.multi.incarnations[NodeId(1)]
    with pytest.raises(PeerError, match="greeted as"):
        member.engine.on_life(NodeId(1), life(greeted + 1, greeted, settled=True))


def test_being_removed_has_to_be_said_twice() -> None:
    engine = Net()[1].engine
    engine.on_refused(NodeId(2), RefusalReason.REMOVED)
    assert not engine.removed_by
    engine.on_refused(NodeId(2), RefusalReason.UNKNOWN)
    assert not engine.removed_by
    engine.on_refused(NodeId(2), RefusalReason.REMOVED)
    assert engine.removed_by == {2}
    engine.draining_peers.add(NodeId(2))
    engine.disk_pressure.low_peers.add(NodeId(2))
    engine.no_peer(NodeId(2))
    assert not engine.removed_by, "what a removed node has said does not count any more"
    assert not engine.draining_peers
    assert not engine.disk_pressure.low_peers
