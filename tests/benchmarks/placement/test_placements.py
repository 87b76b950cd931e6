"""Balanced against concentrated: the order of the phases, the ratios, and what is refused."""

import attrs
import pytest

from benchmarks.load.jobs import Measured
from benchmarks.load.samples import BALANCED, CONCENTRATED
from benchmarks.load.usage import Usage, cores
from benchmarks.machines.limits import BY_SIZE, UNLIMITED
from benchmarks.machines.network import MachinesError
from benchmarks.placement.options import options_of
from benchmarks.placement.placements import connections_for, dealt, limit_of, phases
from benchmarks.placement.ratios import Case, Rate, as_json, links_table, ratios, table

BITS = 8_000_000
IDLE = Usage(
    1.0, (0.1, 0.1, 0.1), 0.1, 0.0, (950_000, 500_000, 500_000), (500_000, 250_000, 250_000)
)
BUSY = Usage(1.0, (0.1, 0.1, 0.1), 0.1, 1.0 * cores(), (800_000,) * 3, (700_000,) * 3)
FULL = attrs.evolve(BUSY, received_bytes=(900_000,) * 3)


def rate(
    pair: int, layout: str, size: int, per_s: int, *, usage: Usage = IDLE, bits_per_s: int = 0
) -> Rate:
    measured = Measured(seconds=1.0, count=per_s, bytes=per_s * size, usage=usage)
    case = Case(nodes=3, groups=12, readers=0, message_bytes=size)
    return Rate(case=case, pair=pair, layout=layout, bits_per_s=bits_per_s, measured=measured)


RATES = [
    rate(0, CONCENTRATED, 100, 1000),
    rate(0, BALANCED, 100, 1500),
    rate(1, BALANCED, 100, 900),
    rate(1, CONCENTRATED, 100, 1000),
    rate(2, CONCENTRATED, 100, 2000),
    rate(2, BALANCED, 100, 2400),
    rate(0, CONCENTRATED, 1000, 500),
]


def test_the_order_within_pairs_alternates() -> None:
    order = [(phase.pair, phase.layout) for phase in phases(3)]
    assert order == [
        (0, CONCENTRATED),
        (0, BALANCED),
        (1, BALANCED),
        (1, CONCENTRATED),
        (2, CONCENTRATED),
        (2, BALANCED),
    ]


def test_ratios_are_of_pairs_that_are_complete() -> None:
    assert ratios(RATES) == {Case(3, 12, 0, 100): [1.5, 0.9, 1.2]}


def test_the_table_has_medians_and_the_ratios_spread() -> None:
    words = [
        "3",
        "12",
        "0",
        "100",
        "B",
        "1,000/s",
        "1,500/s",
        "1.20",
        "0.90",
        "-",
        "1.50",
        "2.0",
        "3",
    ]
    assert table(RATES).splitlines()[-1].split()[: len(words)] == words
    assert links_table(RATES) == "", "these nodes had no links of their own"


def limited(pair: int, usage: Usage) -> list[Rate]:
    concentrated = rate(pair, CONCENTRATED, 1000, 100, bits_per_s=BITS)
    return [concentrated, rate(pair, BALANCED, 1000, 210, usage=usage, bits_per_s=BITS)]


def test_a_ratio_does_not_count_where_cpu_was_the_limit() -> None:
    """One layout is enough: there the network was not the limit."""
    both = [*limited(0, IDLE), *limited(1, BUSY)]
    assert ratios(both) == {Case(3, 12, 0, 1000): [2.1]}
    assert "1 of 2 pairs do not count: CPU was the limit" in table(both)
    assert ratios(limited(0, FULL)) == {Case(3, 12, 0, 1000): [2.1]}, "its links were full"
    sending = [attrs.evolve(one, both_ways=False) for one in limited(0, FULL)]
    assert "CPU was the limit" in table(sending), "nothing limits what they receive"
    none = table(limited(0, BUSY)).splitlines()
    assert none[-2].split()[7:9] == ["-", "2.10"], "no ratio, and what it would have been"
    assert "1 of 1 pairs do not count" in none[-1]


def test_the_links_that_were_full_are_told() -> None:
    lines = links_table(limited(0, IDLE)).splitlines()
    words = ["1,000", "B", "8mbit", CONCENTRATED, "95%", "50%", "50%", "|", "50%", "25%", "25%"]
    assert lines[-2].split()[4:] == words
    assert as_json(limited(0, IDLE))[1]["usage"]["sent_bytes"] == (950_000, 500_000, 500_000)


def test_groups_are_dealt_so_that_nodes_have_as_many() -> None:
    places = dealt([1, 2, 3], 12)
    assert len(places) == 13
    with_partitions = [places[str(group)] for group in range(1, 13)]
    assert [with_partitions.count(node) for node in (1, 2, 3)] == [4, 4, 4]
    assert dealt([1, 2, 3], 1) == {"0": 3, "1": 1}


def test_both_layouts_have_as_many_requests_under_way() -> None:
    for nodes in (3, 5, 7):
        for size in (100, 1_000, 10_000, 100_000):
            assert connections_for(Case(nodes, 12, 0, size), 20_000_000) % nodes == 0
    few, many = (connections_for(Case(3, 12, 0, 10_000), rate) for rate in (10**7, 10**9))
    assert 3 < few < many, "a slow link is full sooner"
    assert connections_for(Case(3, 12, 0, 100_000), 10**6) == 3, "at least one for each node"


def test_without_machines_nothing_is_limited_and_that_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unless a limit was asked for: then it is an error."""
    monkeypatch.setattr("benchmarks.placement.placements.why_not", lambda: "no root")
    assert limit_of(None) == (UNLIMITED, "no root")
    assert limit_of(UNLIMITED) == (UNLIMITED, "")
    with pytest.raises(MachinesError, match="no root"):
        limit_of(BY_SIZE)
    monkeypatch.setattr("benchmarks.placement.placements.why_not", lambda: "")
    assert limit_of(None) == (BY_SIZE, "")


@pytest.mark.parametrize(
    "wrong", [["--sizes", "0"], ["--sizes", "2000000"], ["--pairs", "x"], ["--nodes", "1"]]
)
def test_what_cannot_be_measured_is_refused(
    wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options_of(wrong)
    assert "is not a number from" in capsys.readouterr().err


def test_the_dose_may_be_small() -> None:
    options = options_of(["--sizes", "100", "1000", "--seconds", "0.5", "--pairs", "1"])
    assert (options.sizes, options.seconds, options.pairs) == ([100, 1000], 0.5, 1)


def test_a_limit_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options_of(["--limit", "network=fast"])
    assert "'fast' is not a rate: expected 1mbit to 10gbit" in capsys.readouterr().err


def test_what_a_ratio_can_be_at_most() -> None:
    """Each node receives a copy of every message; a master sends one to every other node and
    reader."""
    assert [Case(3, 12, readers, 1_000).ideal() for readers in (0, 1, 2)] == [2, 3, 3]
    assert [Case(nodes, 12, 1, 1_000).ideal() for nodes in (3, 5, 7)] == [3, 5, 7]
    sending = [Case(3, 12, readers, 1_000).ideal(both_ways=False) for readers in (0, 1)]
    assert sending == [3, 3]


def test_readers_that_fall_behind_spoil_a_ratio() -> None:
    """Otherwise the layout in which less was read would look faster."""
    concentrated, balanced = limited(0, IDLE)
    behind = attrs.evolve(balanced, read=(attrs.evolve(balanced.measured, count=100),))
    assert list(ratios([concentrated, behind]).values()) == [[]]
    assert "1 of 1 pairs do not count: readers fell behind" in table([concentrated, behind])


def test_where_only_concentrated_masters_were_spared_readers_the_ratio_is_a_lower_bound() -> None:
    """What the master did not send to readers left room for more acknowledgements."""
    concentrated, balanced = limited(0, IDLE)
    (kept_up,) = ratios([concentrated, balanced]).values()
    behind = attrs.evolve(concentrated, read=(attrs.evolve(concentrated.measured, count=10),))
    assert list(ratios([behind, balanced]).values()) == [kept_up]
    shown = table([behind, balanced])
    assert f">{kept_up[0]:.2f}" in shown
    assert "1 of 1 pairs are lower bounds: concentrated, readers fell behind" in shown
    assert ">" not in table([concentrated, balanced])


def test_a_node_that_falls_behind_counts_as_a_reader() -> None:
    """Its copies are sent after the measurement."""
    loads = limited(0, attrs.evolve(IDLE, received_bytes=(230_000,) * 3))
    kept_up = attrs.evolve(loads[0].measured.usage, received_bytes=(230_000,) * 3)
    behind = attrs.evolve(kept_up, received_bytes=(230_000, 230_000, 60_000))
    for who, told in ((0, "are lower bounds"), (1, "do not count")):
        both = list(loads)
        measured = attrs.evolve(both[who].measured, usage=behind)
        both[who] = attrs.evolve(both[who], measured=measured)
        shown = table(both)
        assert told in shown
        assert shown.count("a node fell behind") == 1
    assert "a node fell behind" not in table(loads)
