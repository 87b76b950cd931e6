"""Paxos groups: their masters, for how long, how often they change, whether copies keep up."""

from typing import Final

from dashboards import panels
from dashboards.panels import (
    BLUE,
    GREEN,
    RED,
    YELLOW,
    Dashboard,
    Kind,
    Panel,
    Query,
    Row,
    Step,
    Unit,
)
from dashboards.queries import BY_NODE, CLUSTER, NODES, nought

CHOSEN: Final = 'cluster="$cluster",node=~"$node",group=~"$group"'
BY_GROUP: Final = "Paxos group {{group}}"
MACHINE: Final = "{{machine}}"

MASTERS: Final = Row(
    "Masters",
    [
        Panel(
            title="Masters by node",
            description="Even by default: weights, capacities, pins and "
            "draining nodes make it uneven. evenkeel balance show says why.",
            queries=[Query(f"sum by (node) (evenkeel_group_acting{{{CLUSTER}}})", BY_NODE)],
            stacked=True,
            width=12,
        ),
        Panel(
            title="Masters by machine",
            description="Of all nodes of a machine (node.zone): even for its number of nodes. "
            "Empty where nodes have no zone.",
            queries=[Query(f"max by (machine) (evenkeel_machine_masters{{{CLUSTER}}})", MACHINE)],
            stacked=True,
            width=12,
        ),
        Panel(
            title="Nodes that run, by machine",
            description="Of a machine (node.zone), as the nodes hear them.",
            queries=[Query(f"max by (machine) (evenkeel_machine_nodes{{{CLUSTER}}})", MACHINE)],
            width=12,
        ),
        Panel(
            title="Who is master of what",
            description="Paxos group 0 is the registry. A Paxos group that is missing has no "
            "master.",
            queries=[
                Query(f"sum by (group, node) (evenkeel_group_acting{{{CHOSEN}}} == 1)"),
            ],
            kind=Kind.TABLE,
            width=12,
        ),
        Panel(
            title="Acting as master",
            description="One line for each Paxos group: how many nodes act as its master. 0 for "
            "longer "
            "than a lease: EvenkeelGroupMasterless. More than 1 for longer than two scrapes: "
            "EvenkeelGroupTwoMasters.",
            queries=[
                Query(
                    'sum by (group) (evenkeel_group_acting{cluster="$cluster",group=~"$group"})',
                    BY_GROUP,
                )
            ],
            kind=Kind.STATES,
            width=12,
            height=10,
            words=[(0, "no master", RED), (1, "one master", GREEN), (2, "two masters", YELLOW)],
        ),
        Panel(
            title="Changes of masters in five minutes",
            description="By Paxos group. A few after a restart or a plan are normal; a Paxos "
            "group that keeps "
            "changing flaps: EvenkeelMasterFlapping.",
            queries=[
                Query(
                    f"sum by (group) (increase(evenkeel_masterships_total{{{CHOSEN}}}[5m]))",
                    BY_GROUP,
                )
            ],
            width=12,
            height=10,
            stacked=True,
        ),
    ],
)

LEASES: Final = Row(
    "Leases",
    [
        Panel(
            title="Least left of a lease, by master",
            description="Renewed when two thirds are left, by default. Near 0 it gets lost: "
            "look at the event loop and fsync of that node.",
            queries=[
                Query(
                    f"min by (node) (evenkeel_lease_remaining_seconds{{{CHOSEN}}}"
                    f" and on (node, group) evenkeel_group_acting{{{CHOSEN}}} == 1)",
                    BY_NODE,
                )
            ],
            unit=Unit.SECONDS,
        ),
        Panel(
            title="The same as a part of the lease",
            description="The lowest of five minutes; below 20 %: EvenkeelLeaseMarginLow.",
            queries=[
                Query(
                    f"min_over_time(cluster_node:evenkeel_lease_left:ratio{{{NODES}}}[5m])",
                    BY_NODE,
                )
            ],
            unit=Unit.RATIO,
            base=RED,
            steps=[Step(0.2, YELLOW), Step(0.4, GREEN)],
        ),
        Panel(
            title="Clock trusted",
            description="A node that does not trust its clock is master of nothing.",
            queries=[Query(f"evenkeel_clock_trusted{{{NODES}}}", BY_NODE)],
            kind=Kind.STATES,
            words=[(0, "not trusted", RED), (1, "trusted", GREEN)],
        ),
    ],
)

REPLICAS: Final = Row(
    "Replicas",
    [
        nought(
            "Replicas that differ",
            "Must be 0: EvenkeelReplicaDiverged says what to save first.",
            f"sum(evenkeel_group_diverged{{{CLUSTER}}})",
            width=6,
        ),
        nought(
            "Paxos groups without a vote",
            "A node has lost some of their log and fetches it again: EvenkeelNonVoting.",
            f"sum(evenkeel_groups_non_voting{{{NODES}}})",
            width=6,
        ),
        nought(
            "Paxos groups with too few copies",
            "Fewer members answer than there should be: EvenkeelUnderReplicated.",
            f"max(evenkeel_groups_under_replicated{{{CLUSTER}}})",
            width=6,
        ),
        Panel(
            title="Paxos groups that change members",
            description="Copies on their way to other nodes, after node add, node remove, or a "
            "death. For more than an hour: EvenkeelReplicaMovesStuck.",
            queries=[Query(f"max(evenkeel_groups_moving{{{CLUSTER}}})")],
            kind=Kind.STAT,
            width=6,
            height=4,
            steps=[Step(1, BLUE)],
        ),
        Panel(
            title="Paxos groups with several copies on a machine",
            description="0 while there are as many machines (zones) as copies. `stops`: those that "
            "stop if the machine is lost, EvenkeelMachineHoldsMajority.",
            queries=[
                Query(f"max by (machine) (evenkeel_machine_crowded_groups{{{CLUSTER}}})", MACHINE),
                Query(
                    f"max by (machine) (evenkeel_machine_stops_groups{{{CLUSTER}}})",
                    "{{machine}} stops",
                ),
            ],
            width=24,
            height=5,
        ),
        Panel(
            title="Entries still to apply",
            description="The most of any Paxos group. A node that stays behind cannot become "
            "master, and cannot be handed Paxos groups: EvenkeelReplicaBehind.",
            queries=[Query(f"max by (node) (evenkeel_group_slots_behind{{{CHOSEN}}})", BY_NODE)],
            width=12,
            steps=[Step(100, RED)],
        ),
        Panel(
            title="Entries applied",
            description="All Paxos groups. Members of the same Paxos groups apply the same; one "
            "that lags behind the others for long has a slow disk or CPU.",
            queries=[
                Query(
                    f"sum by (node) (rate(evenkeel_entries_applied_total{{{NODES}}}"
                    "[$__rate_interval]))",
                    BY_NODE,
                )
            ],
            unit=Unit.PER_S,
            width=12,
        ),
    ],
)

MASTERS_DASHBOARD: Final = Dashboard(
    uid="evenkeel-masters",
    title="Paxos groups and masters",
    description="Who is master of what, leases, changes of masters, copies.",
    rows=[MASTERS, LEASES, REPLICAS],
    variables=[panels.CLUSTER, panels.NODE, panels.GROUP],
)
