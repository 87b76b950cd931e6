"""For every alert a short story in which it fires, beside series that must not make it fire.

A story is a table of series, one value every STEP_S. All but the wrong one are a healthy neighbour,
a value just on the right side, or a problem for which another alert fires.
"""

from collections.abc import Mapping, Sequence

import attrs

STEP_S = 15
PER_MINUTE = 60 // STEP_S


def steady(*parts: tuple[float, float]) -> str:
    """(value, minutes), one part after the other."""
    found: list[str] = []
    for value, minutes in parts:
        found += [f"{value:g}"] * round(minutes * PER_MINUTE)
    return " ".join(found)


def rising(per_minute: float, minutes: float, start: float = 0) -> str:
    """A counter."""
    return f"{start:g}+{per_minute / PER_MINUTE:g}x{round(minutes * PER_MINUTE)}"


@attrs.frozen(kw_only=True)
class Story:
    alert: str
    series: Mapping[str, str]
    fires: str
    """When it must fire, with exactly these labels (beside its own name and severity)."""
    labels: Mapping[str, str]
    quiet: Sequence[str]
    """When it must not fire: not wrong yet, not for long enough, or not any more."""


def of_node(alert: str, metric: str, wrong: float, right: float, fires: str, quiet: str) -> Story:
    """A gauge of each node that is wrong on node 1 from minute 5 on, for 65 minutes."""
    return Story(
        alert=alert,
        series={
            f'{metric}{{cluster="c",node="1"}}': steady((right, 5), (wrong, 65), (right, 5)),
            f'{metric}{{cluster="c",node="2"}}': steady((right, 75)),
        },
        fires=fires,
        labels={"cluster": "c", "node": "1"},
        quiet=("4m", quiet, "74m"),
    )


def of_cluster(
    alert: str, metric: str, wrong: float, right: float, fires: str, quiet: str
) -> Story:
    """The same, as each of two nodes sees it."""
    return Story(
        alert=alert,
        series={
            f'{metric}{{cluster="c",node="1"}}': steady((right, 5), (wrong, 85), (right, 5)),
            f'{metric}{{cluster="c",node="2"}}': steady((right, 95)),
            f'{metric}{{cluster="d",node="1"}}': steady((right, 95)),
        },
        fires=fires,
        labels={"cluster": "c"},
        quiet=("4m", quiet, "94m"),
    )


def stops(cluster: str, node: int, machine: str) -> str:
    labels = f'cluster="{cluster}",node="{node}",machine="{machine}"'
    return f"evenkeel_machine_stops_groups{{{labels}}}"


def of_histogram(alert: str, histogram: str) -> Story:
    """A tenth of node 1's observations take half a second, from minute 20 on; none of node 2's."""
    series = {}
    for le, minutes in (("0.05", 90), ("0.5", 100), ("+Inf", 100)):
        slow = rising(minutes, 20, 2_000)
        name = f'{histogram}_bucket{{cluster="c",le="{le}"'
        series[f'{name},node="1"}}'] = f"{rising(100, 20)} {slow}"
        series[f'{name},node="2"}}'] = rising(100, 40)
    return Story(
        alert=alert,
        series=series,
        fires="32m",
        labels={"cluster": "c", "node": "1"},
        quiet=("19m", "24m"),
    )


def of_counter(alert: str, metric: str, *, fires: str = "12m", healed: str) -> Story:
    """It happens a few times from minute 8 on, for four minutes."""
    return Story(
        alert=alert,
        series={
            f'{metric}{{cluster="c",node="1"}}': f"{steady((3, 8))} {rising(4, 4, 3)} "
            + steady((19, 80)),
            f'{metric}{{cluster="c",node="2"}}': steady((7, 92)),
        },
        fires=fires,
        labels={"cluster": "c", "node": "1"},
        quiet=("7m", healed),
    )


def group(cluster: str, node: int, number: int, metric: str = "evenkeel_group_acting") -> str:
    return f'{metric}{{cluster="{cluster}",group="{number}",node="{node}"}}'


def up(cluster: str, node: int) -> str:
    return f'up{{cluster="{cluster}",job="evenkeel",node="{node}"}}'


NODES = [
    Story(
        alert="EvenkeelNodeDown",
        series={
            up("c", 1): steady((1, 5), (0, 5), (1, 5)),
            up("c", 2): steady((1, 15)),
            up("c", 3).replace("evenkeel", "else"): steady((0, 15)),
        },
        fires="7m",
        labels={"cluster": "c", "node": "1", "job": "evenkeel"},
        quiet=("4m", "5m45s", "14m"),
    ),
    Story(
        alert="EvenkeelNodeNotScraped",
        series={
            'evenkeel_nodes{cluster="c",node="1",state="serving"}': steady((2, 15)),
            'evenkeel_nodes{cluster="c",node="1",state="dead"}': steady((1, 15)),
            up("c", 1): steady((1, 15)),
            up("c", 2): steady((1, 15)),
            'evenkeel_nodes{cluster="d",node="1",state="serving"}': steady((2, 15)),
            up("d", 1): steady((1, 15)),
            up("d", 2): steady((0, 15)),
        },
        fires="11m",
        labels={"cluster": "c"},
        quiet=("9m",),
    ),
    of_node("EvenkeelNodeNotReady", "evenkeel_ready", 0, 1, "8m", "6m30s"),
    Story(
        alert="EvenkeelNodeRestarting",
        series={
            'process_start_time_seconds{job="evenkeel",cluster="c",node="1"}': steady(
                (100, 3), (300, 3), (500, 3), (700, 30)
            ),
            'process_start_time_seconds{job="evenkeel",cluster="c",node="2"}': steady(
                (100, 3), (300, 3), (500, 30)
            ),
            'process_start_time_seconds{job="else",cluster="c",node="3"}': steady(
                (100, 3), (300, 3), (500, 3), (700, 30)
            ),
        },
        fires="10m",
        labels={"cluster": "c", "node": "1", "job": "evenkeel"},
        quiet=("8m", "35m"),
    ),
    Story(
        alert="EvenkeelNodeBusy",
        series={
            'process_cpu_seconds_total{job="evenkeel",cluster="c",node="1"}': rising(57, 20),
            'process_cpu_seconds_total{job="evenkeel",cluster="c",node="2"}': rising(50, 20),
        },
        fires="17m",
        labels={"cluster": "c", "node": "1"},
        quiet=("8m",),
    ),
    of_node("EvenkeelLoopLag", "evenkeel_tick_gap_seconds", 0.6, 0.4, "8m", "6m30s"),
    Story(
        alert="EvenkeelLinkDown",
        series={
            'evenkeel_peer_up{cluster="c",node="1",peer="2"}': steady((1, 5), (0, 5)),
            'evenkeel_peer_up{cluster="c",node="1",peer="3"}': steady((1, 5), (0, 5)),
            'evenkeel_peer_up{cluster="c",node="2",peer="1"}': steady((1, 10)),
            up("c", 1): steady((1, 10)),
            up("c", 2): steady((1, 10)),
            up("c", 3): steady((1, 5), (0, 5)),
            up("d", 2): steady((0, 10)),
        },
        fires="7m",
        labels={"cluster": "c", "node": "1", "peer": "2"},
        quiet=("4m", "5m45s"),
    ),
    Story(
        alert="EvenkeelFramesDropped",
        series={
            'evenkeel_peer_dropped_total{cluster="c",node="1",peer="2"}': rising(4, 20),
            'evenkeel_peer_dropped_total{cluster="c",node="2",peer="1"}': steady((9, 20)),
        },
        fires="7m",
        labels={"cluster": "c", "node": "1", "peer": "2"},
        quiet=("4m",),
    ),
    of_node("EvenkeelClockUntrusted", "evenkeel_clock_trusted", 0, 1, "6m", "5m15s"),
    Story(
        alert="EvenkeelClockOffset",
        series={
            'evenkeel_clock_offset_seconds{cluster="c",node="1",peer="2"}': steady((-0.15, 15)),
            'evenkeel_clock_offset_seconds{cluster="c",node="1",peer="3"}': steady((0.01, 15)),
            'evenkeel_clock_offset_seconds{cluster="c",node="2",peer="1"}': steady((0.09, 15)),
            'evenkeel_clock_margin_seconds{cluster="c",node="1"}': steady((0.2, 15)),
            'evenkeel_clock_margin_seconds{cluster="c",node="2"}': steady((0.2, 15)),
        },
        fires="7m",
        labels={"cluster": "c", "node": "1"},
        quiet=("4m",),
    ),
    of_counter("EvenkeelClockStoodStill", "evenkeel_clock_stood_still_total", healed="80m"),
    of_node("EvenkeelLeaseSettingsDiffer", "evenkeel_lease_settings_differ", 1, 0, "21m", "19m"),
    of_node("EvenkeelCutOff", "evenkeel_cut_off", 1, 0, "6m", "5m"),
    Story(
        alert="EvenkeelNotDurable",
        series={
            'evenkeel_node_info{cluster="c",durability="fsync",node="2"}': steady((1, 9)),
            'evenkeel_node_info{cluster="c",durability="unsafe-none",node="1"}': "_x8 "
            + steady((1, 7)),
        },
        fires="5m",
        labels={"cluster": "c", "node": "1"},
        quiet=("1m",),
    ),
]

MASTERS = [
    Story(
        alert="EvenkeelGroupMasterless",
        series={
            group("c", 1, 1): steady((1, 5), (0, 5), (0, 5)),
            group("c", 2, 1): steady((0, 5), (0, 5), (1, 5)),
            group("c", 1, 2): steady((0, 15)),
            group("c", 2, 2): steady((1, 15)),
        },
        fires="6m",
        labels={"cluster": "c", "group": "1"},
        quiet=("4m", "5m15s", "12m"),
    ),
    Story(
        alert="EvenkeelGroupTwoMasters",
        series={
            group("c", 1, 1): steady((1, 15)),
            group("c", 2, 1): steady((0, 5), (1, 5), (0, 5)),
            group("c", 1, 2): steady((1, 5), (0, 10)),
            group("c", 2, 2): steady((0, 4.75), (1, 10.25)),  # a steal, seen askew
            group("d", 1, 1): steady((1, 15)),
        },
        fires="7m",
        labels={"cluster": "c", "group": "1"},
        quiet=("4m", "5m45s", "14m"),
    ),
    Story(
        alert="EvenkeelMasterFlapping",
        series={
            group("c", 1, 1, "evenkeel_masterships_total"): rising(1, 20),
            group("c", 2, 1, "evenkeel_masterships_total"): rising(1, 20),
            group("c", 1, 2, "evenkeel_masterships_total"): rising(0.25, 20),
            group("c", 2, 2, "evenkeel_masterships_total"): rising(0.25, 20),
        },
        fires="10m",
        labels={"cluster": "c", "group": "1"},
        quiet=("2m",),
    ),
    Story(
        alert="EvenkeelMasterSkew",
        series={
            **{group("c", 1, number): steady((1, 25)) for number in range(1, 9)},
            group("c", 2, 9): steady((1, 25)),
            group("c", 3, 10): steady((1, 25)),
            **{group("d", 1, number): steady((1, 25)) for number in range(1, 6)},  # one drains
            **{group("d", 2, number): steady((1, 25)) for number in range(6, 11)},
            group("d", 3, 1): steady((0, 25)),
        },
        fires="17m",
        labels={"cluster": "c"},
        quiet=("14m",),
    ),
    Story(
        alert="EvenkeelLeaseMarginLow",
        series={
            group("c", 1, 1): steady((1, 20)),
            group("c", 1, 2): steady((0, 20)),
            group("c", 2, 1): steady((0, 20)),
            group("c", 2, 2): steady((1, 20)),
            group("c", 1, 1, "evenkeel_lease_remaining_seconds"): steady((2, 5), (0.3, 1), (2, 14)),
            group("c", 1, 2, "evenkeel_lease_remaining_seconds"): steady((2, 20)),
            group("c", 2, 1, "evenkeel_lease_remaining_seconds"): steady((0, 20)),  # not its own
            group("c", 2, 2, "evenkeel_lease_remaining_seconds"): steady((0.9, 20)),
            'evenkeel_lease_seconds{cluster="c",node="1"}': steady((3, 20)),
            'evenkeel_lease_seconds{cluster="c",node="2"}': steady((3, 20)),
        },
        fires="8m",
        labels={"cluster": "c", "node": "1"},
        quiet=("4m", "6m", "15m"),
    ),
]

REPLICAS = [
    Story(
        alert="EvenkeelReplicaDiverged",
        series={
            group("c", 1, 1, "evenkeel_group_diverged"): steady((0, 5), (1, 5)),
            group("c", 2, 1, "evenkeel_group_diverged"): steady((0, 10)),
            group("c", 1, 2, "evenkeel_group_diverged"): steady((0, 10)),
        },
        fires="5m30s",
        labels={"cluster": "c", "node": "1", "group": "1"},
        quiet=("4m",),
    ),
    of_cluster("EvenkeelUnderReplicated", "evenkeel_groups_under_replicated", 2, 0, "11m", "9m"),
    Story(
        alert="EvenkeelMachineHoldsMajority",
        series={
            stops("c", 1, "a"): steady((0, 5), (4, 40), (0, 5)),
            stops("c", 2, "a"): steady((0, 50)),
            stops("c", 1, "b"): steady((0, 50)),
            stops("d", 1, "a"): steady((0, 50)),
        },
        fires="21m",
        labels={"cluster": "c", "machine": "a"},
        quiet=("4m", "19m", "49m"),
    ),
    Story(
        alert="EvenkeelReplicaBehind",
        series={
            group("c", 1, 1, "evenkeel_group_slots_behind"): steady((0, 5), (500, 5)),
            group("c", 1, 2, "evenkeel_group_slots_behind"): steady((90, 10)),
            group("c", 2, 1, "evenkeel_group_slots_behind"): steady((99, 10)),
        },
        fires="8m",
        labels={"cluster": "c", "node": "1"},
        quiet=("4m", "6m30s"),
    ),
    of_node("EvenkeelNonVoting", "evenkeel_groups_non_voting", 3, 0, "16m", "14m"),
    of_node("EvenkeelCatchingUp", "evenkeel_catching_up", 5, 0, "36m", "34m"),
    of_cluster("EvenkeelReplicaMovesStuck", "evenkeel_groups_moving", 1, 0, "66m", "64m"),
]

STORAGE = [
    of_node("EvenkeelDiskLow", "evenkeel_disk_low", 1, 0, "6m", "4m30s"),
    of_node("EvenkeelDiskStuck", "evenkeel_disk_stuck", 1, 0, "6m", "4m30s"),
    of_node("EvenkeelDiskHung", "evenkeel_disk_hung", 1, 0, "5m15s", "4m30s"),
    of_node("EvenkeelDiskSlow", "evenkeel_disk_slow", 1, 0, "7m", "5m45s"),
    of_node("EvenkeelDiskWillBeFull", "evenkeel_disk_full_seconds", 7e4, 9e4, "21m", "19m"),
    Story(
        alert="EvenkeelDiskQuota",
        series={
            'evenkeel_disk_held_bytes{cluster="c",kind="log",node="1"}': steady((50, 20)),
            'evenkeel_disk_held_bytes{cluster="c",kind="cold",node="1"}': steady((40, 20)),
            'evenkeel_disk_limit_bytes{cluster="c",node="1"}': steady((100, 20)),
            'evenkeel_disk_held_bytes{cluster="c",kind="log",node="2"}': steady((84, 20)),
            'evenkeel_disk_limit_bytes{cluster="c",node="2"}': steady((100, 20)),
        },
        fires="12m",
        labels={"cluster": "c", "node": "1"},
        quiet=("9m",),
    ),
    of_histogram("EvenkeelFsyncSlow", "evenkeel_wal_sync_seconds"),
    Story(
        alert="EvenkeelLogDamage",
        series={
            'evenkeel_log_damage_total{cluster="c",node="1"}': steady((0, 5), (1, 80)),
            'evenkeel_cold_damage_total{cluster="c",node="1"}': steady((0, 85)),
            'evenkeel_log_damage_total{cluster="c",node="2"}': steady((0, 85)),
            'evenkeel_cold_damage_total{cluster="c",node="2"}': steady((0, 85)),
        },
        fires="6m",
        labels={"cluster": "c", "node": "1"},
        quiet=("4m", "70m"),
    ),
    of_node("EvenkeelDamageNotRepaired", "evenkeel_entries_missing", 1, 0, "21m", "19m"),
    of_counter("EvenkeelScrubErrors", "evenkeel_scrub_errors_total", healed="80m"),
    of_counter("EvenkeelCheckpointFailing", "evenkeel_checkpoint_failures_total", healed="80m"),
    Story(
        alert="EvenkeelLogNotTrimmed",
        series={
            'evenkeel_log_window_bytes{cluster="c",node="1"}': steady((2.5e9, 20)),
            'evenkeel_log_window_limit_bytes{cluster="c",node="1"}': steady((1e9, 20)),
            'evenkeel_log_window_bytes{cluster="c",node="2"}': steady((1.9e9, 20)),
            'evenkeel_log_window_limit_bytes{cluster="c",node="2"}': steady((1e9, 20)),
        },
        fires="17m",
        labels={"cluster": "c", "node": "1"},
        quiet=("14m",),
    ),
]

BALANCER = [
    Story(
        alert="EvenkeelMastersMisplaced",
        series={
            group("c", 1, 1, "evenkeel_group_misplaced"): steady((1, 20)),
            group("c", 2, 1, "evenkeel_group_misplaced"): steady((1, 20)),
            group("c", 1, 2, "evenkeel_group_misplaced"): steady((1, 8), (0, 12)),
            group("d", 1, 1, "evenkeel_group_misplaced"): steady((1, 8), (0, 12)),
        },
        fires="12m",
        labels={"cluster": "c"},
        quiet=("9m",),
    ),
    of_cluster("EvenkeelBalancerPaused", "evenkeel_balancer_paused", 1, 0, "66m", "64m"),
    Story(
        alert="EvenkeelStealsFailing",
        series={
            'evenkeel_steals_total{cluster="c",node="1",outcome="aborted"}': rising(0.4, 40),
            'evenkeel_steals_total{cluster="c",node="1",outcome="lost"}': rising(0.4, 40),
            'evenkeel_steals_total{cluster="c",node="2",outcome="aborted"}': rising(0.1, 40),
            'evenkeel_steals_total{cluster="c",node="2",outcome="done"}': rising(60, 40),
        },
        fires="20m",
        labels={"cluster": "c", "node": "1"},
        quiet=("1m",),
    ),
]


def requests(node: int, errors_per_minute: float) -> Mapping[str, str]:
    labels = f'cluster="c",node="{node}"'
    return {
        f"evenkeel_produce_requests_total{{{labels}}}": rising(100, 20),
        f"evenkeel_fetch_requests_total{{{labels}}}": rising(100, 20),
        f'evenkeel_errors_total{{{labels},code="6"}}': rising(errors_per_minute / 2, 20),
        f'evenkeel_errors_total{{{labels},code="7"}}': rising(errors_per_minute / 2, 20),
    }


def reading(consumer_group: str, lag: str, committed: str) -> Mapping[str, str]:
    """Reported by node 1, and from minute 20 on by node 2: its coordinator has moved."""
    labels = f'cluster="c",consumer_group="{consumer_group}",topic="t"'
    found = {}
    for name, values in (("lag", lag), ("committed", committed)):
        every = values.split(" ")
        at = 20 * PER_MINUTE
        first = [*every[:at], *["stale"] * (len(every) > at)]
        found[f'evenkeel_consumer_{name}{{{labels},node="1"}}'] = " ".join(first)
        second = [*["_"] * at, *every[at:]]
        found[f'evenkeel_consumer_{name}{{{labels},node="2"}}'] = " ".join(second)
    return found


def growing(start: float, per_minute: float, minutes: int) -> str:
    steps = range(minutes * PER_MINUTE)
    return " ".join(f"{start + step * per_minute / PER_MINUTE:g}" for step in steps)


CLIENTS = [
    Story(
        alert="EvenkeelErrorRate",
        series={**requests(1, errors_per_minute=10), **requests(2, errors_per_minute=1)},
        fires="8m",
        labels={"cluster": "c", "node": "1"},
        quiet=("4m",),
    ),
    of_histogram("EvenkeelProduceSlow", "evenkeel_produce_seconds"),
    of_histogram("EvenkeelFetchSlow", "evenkeel_fetch_seconds"),
    Story(
        alert="EvenkeelProduceTimeouts",
        series={
            'evenkeel_produce_timeouts_total{cluster="c",node="1"}': rising(1, 5)
            + " "
            + steady((5, 20)),
            'evenkeel_forward_timeouts_total{cluster="c",node="1"}': steady((0, 25)),
            'evenkeel_produce_timeouts_total{cluster="c",node="2"}': steady((3, 25)),
            'evenkeel_forward_timeouts_total{cluster="c",node="2"}': steady((4, 25)),
        },
        fires="4m",
        labels={"cluster": "c", "node": "1"},
        quiet=("15m",),
    ),
    Story(
        alert="EvenkeelOverloaded",
        series={
            'evenkeel_unanswered_bytes{cluster="c",node="1"}': steady((10, 5), (90, 5)),
            'evenkeel_unanswered_limit_bytes{cluster="c",node="1"}': steady((100, 10)),
            'evenkeel_unanswered_bytes{cluster="c",node="2"}': steady((75, 10)),
            'evenkeel_unanswered_limit_bytes{cluster="c",node="2"}': steady((100, 10)),
        },
        fires="8m",
        labels={"cluster": "c", "node": "1"},
        quiet=("4m", "6m30s"),
    ),
    of_counter("EvenkeelConnectionsRefused", "evenkeel_connections_refused_total", healed="30m"),
    Story(
        alert="EvenkeelMemoryWaits",
        series={
            'evenkeel_memory_waits_total{cluster="c",node="1"}': rising(4, 20),
            'evenkeel_memory_waits_total{cluster="c",node="2"}': f"{rising(4, 2)} "
            + steady((8, 18)),
        },
        fires="8m",
        labels={"cluster": "c", "node": "1"},
        quiet=("4m",),
    ),
    Story(
        alert="EvenkeelConnectionsDisplaced",
        series={
            'evenkeel_connections_displaced_total{cluster="c",node="1"}': f"{rising(30, 10)} "
            + steady((300, 10)),
            'evenkeel_connections_displaced_total{cluster="c",node="2"}': rising(3, 20),
        },
        fires="8m",
        labels={"cluster": "c", "node": "1"},
        quiet=("0m30s", "19m"),
    ),
    Story(
        alert="EvenkeelConsumerStuck",
        series={
            **reading("stuck", growing(5, 1, 40), steady((700, 40))),
            **reading("slow", growing(5, 1, 40), growing(0, 1, 40)),
            **reading("done", steady((0, 40)), steady((700, 40))),
        },
        fires="25m",
        labels={"cluster": "c", "consumer_group": "stuck", "topic": "t"},
        quiet=("5m",),
    ),
    Story(
        alert="EvenkeelConsumerLag",
        series={
            **reading("slow", growing(20_000, 10, 40), growing(0, 10, 40)),
            **reading("catching-up", growing(90_000, -10, 40), growing(0, 90, 40)),
            **reading("near", growing(9_000, 10, 40), growing(0, 10, 40)),
        },
        fires="30m",
        labels={"cluster": "c", "consumer_group": "slow", "topic": "t"},
        quiet=("14m",),
    ),
    Story(
        alert="EvenkeelRebalanceStorm",
        series={
            'evenkeel_rebalances_total{cluster="c",node="1"}': rising(4, 20),
            'evenkeel_rebalances_total{cluster="c",node="2"}': rising(4, 20),
            'evenkeel_rebalances_total{cluster="d",node="1"}': rising(4, 20),
        },
        fires="10m",
        labels={"cluster": "c"},
        quiet=("3m",),
    ),
]

SECURITY = [
    of_node("EvenkeelInsecureListener", "evenkeel_insecure_listeners", 1, 0, "11m", "9m"),
    of_node(
        "EvenkeelCertificateExpires",
        "evenkeel_tls_expires_timestamp_seconds",
        *(1_000_000, 9_000_000),
        *("16m", "14m"),
    ),
    of_node("EvenkeelTlsFilesRefused", "evenkeel_tls_files_refused", 1, 0, "7m", "5m45s"),
    Story(
        alert="EvenkeelAuthenticationsFailing",
        series={
            'evenkeel_authentications_failed_total{cluster="c",node="1",mechanism="PLAIN"}': (
                f"{steady((3, 8))} {rising(30, 10, 3)} {steady((303, 60))}"
            ),
            'evenkeel_authentications_failed_total{cluster="c",node="1",mechanism="none"}': (
                rising(1, 78)
            ),
            'evenkeel_authentications_failed_total{cluster="c",node="2",mechanism="PLAIN"}': (
                rising(10, 78)
            ),
        },
        fires="15m",
        labels={"cluster": "c", "node": "1"},
        quiet=("7m", "40m"),
    ),
    of_node("EvenkeelTokenKeysRefused", "evenkeel_token_keys_refused", 1, 0, "11m", "9m"),
]

STORIES = [*NODES, *MASTERS, *REPLICAS, *STORAGE, *BALANCER, *CLIENTS, *SECURITY]
