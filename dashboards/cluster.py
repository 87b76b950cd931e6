"""The first dashboard to look at: is all well, what is going on, how are the nodes."""

from typing import Final

from dashboards import panels
from dashboards.panels import GREEN, RED, YELLOW, Dashboard, Kind, Panel, Query, Row, Step, Unit
from dashboards.queries import (
    BY_NODE,
    CLUSTER,
    NODES,
    nought,
    number,
    or_zero,
    quantiles,
    rate,
    share,
)

STATE: Final = Row(
    "Is all well?",
    [
        Panel(
            title="Nodes that answer",
            description="Part of the nodes Prometheus knows that gave metrics at the last scrape. "
            "Below 100 %: see the runbook of EvenkeelNodeDown.",
            queries=[Query(or_zero(f'avg(up{{job="evenkeel",{CLUSTER}}})'))],
            kind=Kind.STAT,
            unit=Unit.RATIO,
            width=4,
            height=4,
            base=RED,
            steps=[Step(1, GREEN)],
        ),
        nought(
            "Paxos groups without a master",
            "Clients can neither write to nor read from their partitions. After a crash this lasts "
            "about a lease; if it lasts longer: EvenkeelGroupMasterless.",
            f"count(max by (group) (evenkeel_group_acting{{{CLUSTER}}}) == 0) or vector(0)",
        ),
        nought(
            "Paxos groups not where they belong",
            "They move by themselves, one after the other, in seconds. If it stays: the balancer's "
            "dashboard says why.",
            f"sum(max by (group) (evenkeel_group_misplaced{{{CLUSTER}}}))",
        ),
        nought(
            "Paxos groups with too few copies",
            "Fewer members answer than there should be: a node is down or away. One more "
            "failure may stop them.",
            f"max(evenkeel_groups_under_replicated{{{CLUSTER}}})",
        ),
        nought(
            "Replicas that differ",
            "Must be 0: EvenkeelReplicaDiverged says what to save before anything else.",
            f"sum(evenkeel_group_diverged{{{CLUSTER}}})",
        ),
        nought(
            "Alerts that fire",
            "Their list is in Prometheus; each names its page in docs/runbooks.",
            f'count(ALERTS{{{CLUSTER},alertstate="firing"}}) or vector(0)',
        ),
    ],
)

TRAFFIC: Final = Row(
    "Traffic",
    [
        number(
            "Records in",
            "Accepted by all nodes together; the clients' dashboard has them by node.",
            f"sum({rate('evenkeel_produce_records_total')})",
            Unit.RECORDS_PER_S,
        ),
        number(
            "Bytes in",
            "Of record batches as they were sent: compressed ones count compressed.",
            f"sum({rate('evenkeel_produce_bytes_total')})",
            Unit.BYTES_PER_S,
        ),
        number(
            "Bytes out",
            "Of record batches sent to consumers: several times what comes in, if several "
            "consumer groups read.",
            f"sum({rate('evenkeel_fetch_bytes_total')})",
            Unit.BYTES_PER_S,
        ),
        number(
            "Connections",
            "Of Kafka clients, all nodes. If it only grows: a client that does not close its own.",
            f"sum(evenkeel_connections{{{NODES}}})",
            Unit.COUNT,
        ),
        number(
            "Consumer lag",
            "Records not yet committed as read, all consumer groups: the clients' dashboard has "
            "each of them.",
            f"sum(evenkeel_consumer_lag{{{CLUSTER}}})",
            Unit.COUNT,
        ),
        number(
            "Partitions with an error",
            "Answers to partitions that failed. Many at once are moves of masters, which clients "
            "follow; see the codes on the clients' dashboard.",
            f"sum({rate('evenkeel_errors_total')})",
            Unit.PER_S,
        ),
        Panel(
            title="Records in, by node",
            description="The work of masters. One node far above the others while masters are "
            "even: some Paxos groups are heavier; consider evenkeel balance policy "
            "evenness=weight.",
            queries=[Query(rate("evenkeel_produce_records_total"), BY_NODE)],
            unit=Unit.RECORDS_PER_S,
            stacked=True,
        ),
        Panel(
            title="Bytes out, by node",
            description="Sent to consumers. Far more than comes in: many consumer groups, or one "
            "that reads from the beginning.",
            queries=[Query(rate("evenkeel_fetch_bytes_total"), BY_NODE)],
            unit=Unit.BYTES_PER_S,
            stacked=True,
        ),
        Panel(
            title="Produce: from request to answer",
            description="Slow at all nodes: disks, load or the network. One node: see its fsync "
            "(storage) and its event loop (below).",
            queries=quantiles("evenkeel_produce_seconds"),
            unit=Unit.SECONDS,
            steps=[Step(0.1, RED)],
        ),
    ],
)

HEALTH: Final = Row(
    "Nodes",
    [
        Panel(
            title="Ready",
            description="Whether a node should be sent clients; GET /readyz says why not.",
            queries=[Query(f"evenkeel_ready{{{NODES}}}", BY_NODE)],
            kind=Kind.STATES,
            words=[(0, "not ready", RED), (1, "ready", GREEN)],
        ),
        share(
            "CPU of a core",
            "The event loop of a node uses one core: near 100 % it is the limit. Spread masters, "
            "or add a node.",
            [Query(rate("process_cpu_seconds_total"), BY_NODE)],
        ),
        Panel(
            title="Longest gap of the event loop",
            description="Of the last minute. Above a third of the lease, masters are lost: "
            "see the runbook of EvenkeelLoopLag.",
            queries=[Query(f"evenkeel_tick_gap_seconds{{{NODES}}}", BY_NODE)],
            unit=Unit.SECONDS,
            steps=[Step(0.5, RED)],
        ),
        Panel(
            title="Links between nodes",
            description="A link that is down while both nodes run: EvenkeelLinkDown.",
            queries=[Query(f"evenkeel_peer_up{{{NODES}}}", "{{node}} to {{peer}}")],
            kind=Kind.STATES,
            words=[(0, "down", RED), (1, "up", GREEN)],
        ),
        share(
            "Clock offset, part of what is allowed",
            "The largest distance to a peer's clock, relative to lease.clock_margin_ms. "
            "A node that is 80 % off the middle gives up its masters: check NTP.",
            [
                Query(
                    f"max by (node) (abs(evenkeel_clock_offset_seconds{{{NODES}}}))"
                    f" / on (node) max by (node) (evenkeel_clock_margin_seconds{{{NODES}}})",
                    BY_NODE,
                )
            ],
        ),
        Panel(
            title="Memory",
            description="Resident. It follows limits.tail_bytes and requests in progress; if it "
            "only grows, for days, it is a leak to be reported.",
            queries=[Query(f"process_resident_memory_bytes{{{NODES}}}", BY_NODE)],
            unit=Unit.BYTES,
        ),
        Panel(
            title="Frames dropped, to peers",
            description="A peer takes less than it is sent: its disk, its CPU or the network. "
            "Dropped frames are sent again later.",
            queries=[
                Query(rate("evenkeel_peer_dropped_total", "node, peer"), "{{node}} to {{peer}}")
            ],
            unit=Unit.PER_S,
            width=12,
        ),
        Panel(
            title="Started",
            description="When the process of a node began. More than once in a quarter of an hour: "
            "EvenkeelNodeRestarting.",
            queries=[Query(f"process_start_time_seconds{{{NODES}}} * 1000", BY_NODE)],
            kind=Kind.STAT,
            unit=Unit.DATE,
            width=12,
            base=YELLOW,
        ),
    ],
)

DOUBT: Final = Row(
    "What nodes distrust",
    [
        Panel(
            title="Cut off",
            description="No majority answers the node, and it accepts no clients: EvenkeelCutOff.",
            queries=[Query(f"evenkeel_cut_off{{{NODES}}}", BY_NODE)],
            kind=Kind.STATES,
            words=[(0, "no", GREEN), (1, "cut off", RED)],
        ),
        Panel(
            title="Clock trusted",
            description="A node that distrusts its clock has no masters: EvenkeelClockUntrusted.",
            queries=[Query(f"evenkeel_clock_trusted{{{NODES}}}", BY_NODE)],
            kind=Kind.STATES,
            words=[(0, "doubted", RED), (1, "trusted", GREEN)],
        ),
        Panel(
            title="Clocks that stood still, settings that differ",
            description="How often a clock was seen to have stood still "
            "(EvenkeelClockStoodStill), and how many nodes have other lease settings "
            "(EvenkeelLeaseSettingsDiffer).",
            queries=[
                Query(f"evenkeel_clock_stood_still_total{{{NODES}}}", "stood still, node {{node}}"),
                Query(f"evenkeel_lease_settings_differ{{{NODES}}}", "differ, node {{node}}"),
            ],
        ),
    ],
)

CLUSTER_DASHBOARD: Final = Dashboard(
    uid="evenkeel-cluster",
    title="Cluster",
    description="Is all well, what is going on, how are the nodes. Begin here.",
    rows=[STATE, TRAFFIC, HEALTH, DOUBT],
    variables=[panels.CLUSTER, panels.NODE],
)
