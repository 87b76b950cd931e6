"""Whose directory a node has: what peers compare, and who may take part when.

The question is always whether a node may vote that does not know what it has promised; the tests
name the story of the directory.
"""

import attrs
import pytest

from balancer.records import Address, Node
from paxos.ids import Incarnation, NodeId
from runtime.admission import Admission, Judgement, Life, Verdict
from storage.errors import DirectoryRefused
from storage.memory_disk import MemoryDisk
from storage.witness import Witnessed, read_witness, write_witness
from tests.runtime.engines import Member, Net
from tests.runtime.links import World
from tests.runtime.links import world as world  # a fixture

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
            circles=lambda: [(NodeId(1), NodeId(2), NodeId(3))],
            nodes=lambda: self.registered,
            untouched=lambda: self.untouched,
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


# -- what peers say -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("incarnation", "previous", "judgement"),
    [
        (51, 50, Judgement.KNOWN),  # the usual restart
        (60, 55, Judgement.KNOWN),  # boots in between that reached nobody
        (50, 40, Judgement.KNOWN),  # the same process again, its link was lost
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
    asked.witness(NodeId(2), life(50, 49, EARLY, settled=True))
    asked.witness(NodeId(2), life(50, 49, LATE, settled=True))
    assert judged(asked, life(51, 50, EARLY)) is Judgement.FORGETFUL
    assert judged(asked, life(51, 50, LATE)) is Judgement.KNOWN
    # once it has come to terms with that, its new log counts
    asked.witness(NodeId(2), life(51, 50, EARLY, settled=True))
    story.register(51)
    assert judged(asked, life(52, 51, EARLY)) is Judgement.KNOWN


def test_an_empty_directory_is_the_first_one_only_where_nobody_has_a_log() -> None:
    story = Story(untouched=True)
    asked = story.asked()
    assert judged(asked, life(7, 0)) is Judgement.KNOWN
    story.untouched = False  # a master was elected meanwhile
    assert judged(asked, life(7, 0)) is Judgement.KNOWN, "the same one asks again"
    assert judged(asked, life(8, 0)) is Judgement.FORGETFUL, "emptied since"
    assert judged(asked, life(7, 0), node=3) is Judgement.FORGETFUL, "too late"


def test_a_node_that_was_never_registered_may_have_a_log() -> None:
    """It has crashed between its first votes and its registration."""
    assert judged(Story().asked(), life(8, 7)) is Judgement.KNOWN


# -- what a node makes of it ----------------------------------------------------------------------


def asking(previous: int, others: int = 2) -> Admission:
    nodes = [NodeId(node) for node in range(1, 2 + others)]
    return Admission(
        NodeId(1),
        Incarnation(100),
        Incarnation(previous),
        circles=lambda: [nodes],
        nodes=dict,
        untouched=lambda: not previous,
    )


def verdict(judgement: Judgement, incarnation: int = 100) -> Verdict:
    return Verdict(Incarnation(incarnation), judgement, Incarnation(50))


@pytest.mark.parametrize(
    ("previous", "others", "needed"),
    [(99, 2, 1), (0, 2, 2), (99, 4, 2), (0, 4, 4), (99, 1, 1), (0, 1, 1), (0, 0, 0), (99, 3, 2)],
)
def test_how_many_have_to_know_it(previous: int, others: int, needed: int) -> None:
    """A majority with the node itself; for an empty directory everybody."""
    admission = asking(previous, others)
    for node in range(needed):
        assert not admission.settled
        assert admission.waits_for == needed - node
        admission.on_verdict(NodeId(2 + node), verdict(Judgement.KNOWN))
        admission.on_verdict(NodeId(2 + node), verdict(Judgement.KNOWN))  # counts once
    assert admission.settled
    assert not admission.forgetful


def test_who_is_in_no_group_from_the_beginning_need_not_ask() -> None:
    admission = Admission(
        NodeId(4), Incarnation(100), Incarnation(0), circles=list, nodes=dict, untouched=bool
    )
    assert admission.settled
    assert not admission.asks


def test_a_node_outside_the_registrys_group_needs_a_majority_of_it() -> None:
    circle = tuple(NodeId(node) for node in (1, 2, 3))
    admission = Admission(
        NodeId(4),
        Incarnation(100),
        Incarnation(99),
        circles=lambda: [circle],
        nodes=dict,
        untouched=bool,
    )
    assert admission.waits_for == 2


def test_one_that_remembers_more_is_enough_to_be_careful() -> None:
    admission = asking(0)
    admission.on_verdict(NodeId(2), verdict(Judgement.KNOWN))
    admission.on_verdict(NodeId(3), verdict(Judgement.FORGETFUL))
    assert admission.forgetful
    assert not admission.settled


def test_verdicts_on_other_lives_and_from_strangers_mean_nothing() -> None:
    admission = asking(99)
    admission.on_verdict(NodeId(2), verdict(Judgement.KNOWN, incarnation=99))
    admission.on_verdict(NodeId(9), verdict(Judgement.KNOWN))
    admission.on_verdict(NodeId(1), verdict(Judgement.FORGETFUL))
    assert not admission.settled
    assert not admission.forgetful


def test_who_remembers_more_is_heard_however_late() -> None:
    admission = asking(99)
    admission.on_verdict(NodeId(2), verdict(Judgement.KNOWN))
    assert admission.settled
    assert admission.life(LATE).asks, "of node 3"
    admission.on_verdict(NodeId(3), verdict(Judgement.FORGETFUL))
    assert admission.forgetful
    assert not admission.asks


def test_when_all_have_answered_nobody_is_asked() -> None:
    admission = asking(99)
    for node in (2, 3):
        assert admission.asks
        admission.on_verdict(NodeId(node), verdict(Judgement.KNOWN))
    assert not admission.asks


def test_an_empty_directory_that_was_admitted_asks_no_further() -> None:
    """All others are proof. Who says more later has a log by then, and errs."""
    admission = asking(0, others=4)
    for node in (2, 3, 4, 5):
        assert admission.asks
        admission.on_verdict(NodeId(node), verdict(Judgement.KNOWN))
    assert not admission.asks
    admission.on_verdict(NodeId(5), verdict(Judgement.FORGETFUL))
    assert not admission.forgetful


def test_a_used_incarnation_must_not_run() -> None:
    with pytest.raises(DirectoryRefused, match="knows incarnation 50 of this node"):
        asking(99).on_verdict(NodeId(2), verdict(Judgement.OUTDATED))


def test_two_old_copies_of_three_are_known_by_the_disk_of_the_third() -> None:
    """Taken while the same incarnation ran, put back while all were down: the registry knows of
    nothing, and in memory there is nothing after a restart."""
    disk = MemoryDisk()
    before = Story()
    heard = before.asked()
    for node in (2, 3):
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


# -- what the engine makes of it ------------------------------------------------------------------


def newcomer(net: Net) -> Member:
    """Node 3 has come back, and nobody has said yet whether its directory is known."""
    net.crash(3)
    net.restart(3)
    member = net[3]
    member.engine.admission = Admission(
        NodeId(3),
        member.multi.incarnation,
        Incarnation(1),
        circles=lambda: [(NodeId(1), NodeId(2), NodeId(3))],
        nodes=dict,
        untouched=lambda: False,
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
    life = member.engine.life()
    assert life is not None
    assert life.asks
    incarnation = member.multi.incarnation
    known = Verdict(incarnation, Judgement.KNOWN, incarnation)
    member.engine.on_verdict(NodeId(1), known)
    net.until(lambda: member.ledger.texts() == ["x"])
    assert member.replica.can_vote()


def test_who_has_forgotten_takes_part_when_it_is_durable_that_it_does_not_vote() -> None:
    net = Net()
    master = net.elect(1)
    master.submit("x")
    member = newcomer(net)
    member.writer.held = True
    incarnation = member.multi.incarnation
    member.engine.on_verdict(NodeId(1), Verdict(incarnation, Judgement.FORGETFUL, incarnation))
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
    incarnation = member.multi.incarnation
    member.engine.on_verdict(NodeId(1), Verdict(incarnation, Judgement.KNOWN, incarnation))
    net.until(lambda: member.replica.can_vote())
    member.engine.on_verdict(NodeId(2), Verdict(incarnation, Judgement.FORGETFUL, incarnation))
    assert member.replica.rejoin is not None
    assert member.engine.takes_part, "as one that does not vote"


# -- on the wire ----------------------------------------------------------------------------------


def test_a_life_is_told_first_and_with_every_ping_and_answered(world: World) -> None:
    mine = life(7, 6, 1 << 33)
    world[1].handler.own_life = mine
    world.connect(1, 2)
    world.plane.run_until(lambda: world[2].handler.lives == [(1, mine)])
    world[1].peers.ping(draining=False)
    world.settle()
    assert world[2].handler.lives == [(1, mine), (1, mine)]
    world.connect(2, 1)
    answer = verdict(Judgement.FORGETFUL, 7)
    world[2].peers.answer_life(NodeId(1), answer)
    world.settle()
    assert world[1].handler.verdicts == [(2, answer)]
