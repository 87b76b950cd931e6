"""The balancer: what it sees, what it does, how long that takes, and its inputs."""

from typing import Final

from dashboards import panels
from dashboards.panels import GREEN, RED, YELLOW, Dashboard, Kind, Panel, Query, Row, Step, Unit
from dashboards.queries import BY_NODE, CLUSTER, NODES, nought, quantile, rate

MIND: Final = Row(
    "What it sees",
    [
        nought(
            "Paxos groups not where they belong",
            "It moves them one at a time. If this stays above 0: the reasons below.",
            f"sum(max by (group) (evenkeel_group_misplaced{{{CLUSTER}}}))",
            width=6,
        ),
        Panel(
            title="Paused",
            description="By an operator, for all Paxos groups: evenkeel balance resume.",
            queries=[Query(f"max(evenkeel_balancer_paused{{{CLUSTER}}})")],
            kind=Kind.STAT,
            width=6,
            height=4,
            words=[(0, "no", GREEN), (1, "paused", YELLOW)],
        ),
        nought(
            "Paxos groups paused",
            "An operator paused them: evenkeel balance resume --group N.",
            f"max(evenkeel_groups_paused{{{CLUSTER}}})",
            width=6,
        ),
        Panel(
            title="Most masters of a node, to the average",
            description="1 is even. 1.9 and more for a quarter of an hour: EvenkeelMasterSkew.",
            queries=[
                Query(
                    f"max(sum by (node) (evenkeel_group_acting{{{CLUSTER}}}))"
                    f" / avg(sum by (node) (evenkeel_group_acting{{{CLUSTER}}}))"
                )
            ],
            kind=Kind.STAT,
            width=6,
            height=4,
            steps=[Step(1.5, YELLOW), Step(1.9, RED)],
        ),
        Panel(
            title="Paxos groups that are not in place, by reason",
            description="As seen by the node that has the most of each reason. What "
            "the reasons mean is in docs/balancer.md; evenkeel balance show names the Paxos "
            "groups.",
            queries=[
                Query(
                    f'max by (reason) (evenkeel_balance_groups{{{NODES},reason!="in-place"}})',
                    "{{reason}}",
                )
            ],
            width=12,
            stacked=True,
        ),
        Panel(
            title="Masters by node",
            description="What it makes even, by count or by weight.",
            queries=[Query(f"sum by (node) (evenkeel_group_acting{{{CLUSTER}}})", BY_NODE)],
            width=12,
            stacked=True,
        ),
    ],
)

STEALS: Final = Row(
    "What it does",
    [
        Panel(
            title="Steals in five minutes, by outcome",
            description="All but `done` mute the Paxos group for a while. Many of them: "
            "EvenkeelStealsFailing.",
            queries=[
                Query(
                    f"sum by (outcome) (increase(evenkeel_steals_total{{{NODES}}}[5m]))",
                    "{{outcome}}",
                )
            ],
            stacked=True,
        ),
        Panel(
            title="How long a steal takes",
            description="From asking for the token. Milliseconds; far more is a slow disk or a "
            "registry that answers late.",
            queries=[
                Query(quantile(0.5, "evenkeel_steal_seconds", by=""), "p50"),
                Query(quantile(0.99, "evenkeel_steal_seconds", by=""), "p99"),
            ],
            unit=Unit.SECONDS,
        ),
        Panel(
            title="Mean of each phase",
            description="See docs/handoff.md. Producers notice freeze and propose.",
            queries=[
                Query(
                    f"{rate('evenkeel_steal_phase_seconds_sum', 'phase')}"
                    f" / {rate('evenkeel_steal_phase_seconds_count', 'phase')}",
                    "{{phase}}",
                )
            ],
            unit=Unit.SECONDS,
        ),
        Panel(
            title="Requests forwarded",
            description="During steals, and to the registry's master. If it goes on for long "
            "without steals: clients that do not follow their leaders.",
            queries=[Query(rate("evenkeel_forwarded_total"), BY_NODE)],
            unit=Unit.REQUESTS_PER_S,
        ),
        Panel(
            title="Plans in an hour",
            description="Placements that were planned: adopted, or lost to something that came "
            "first. Many: the load swings, or nodes come and go.",
            queries=[
                Query(
                    f"sum by (outcome) (increase(evenkeel_plans_total{{{NODES}}}[1h]))",
                    "{{outcome}}",
                )
            ],
        ),
        Panel(
            title="Copies on their way",
            description="Replicas to add and to drop, after nodes came or went.",
            queries=[
                Query(
                    f"max by (what) (evenkeel_replica_moves{{{CLUSTER}}})",
                    "{{what}}",
                )
            ],
        ),
    ],
)

LOAD: Final = Row(
    "Its inputs",
    [
        Panel(
            title="Weight of Paxos groups",
            description="By the built-in estimator, 1 is average; all are 1 until there are "
            "reports of half a minute. Only used with evenness=weight.",
            queries=[
                Query(
                    f"max by (group) (evenkeel_group_weight{{{CLUSTER}}})"
                    f" or max by (group) (evenkeel_group_acting{{{CLUSTER}}}) * 0 + 1",
                    "Paxos group {{group}}",
                )
            ],
        ),
        Panel(
            title="Load reports",
            description="Each node sends one every balancer.load_interval_ms. Failed: the "
            "registry's Paxos group has no master. Bad: from nodes of another version.",
            queries=[
                Query(
                    rate("evenkeel_load_reports_total", "node, outcome"),
                    "{{outcome}}, node {{node}}",
                )
            ],
            unit=Unit.PER_S,
        ),
        Panel(
            title="Produce p99 as reported",
            description="By the nodes, to each other. Above the policy's produce_p99_ms_max steals "
            "are further apart, and none goes to that node.",
            queries=[
                Query(
                    f"max by (exported_node) (evenkeel_node_produce_p99_seconds{{{CLUSTER}}})",
                    "node {{exported_node}}",
                )
            ],
            unit=Unit.SECONDS,
        ),
    ],
)

BALANCER_DASHBOARD: Final = Dashboard(
    uid="evenkeel-balancer",
    title="Balancer",
    description="What the balancer sees and does, and its inputs.",
    rows=[MIND, STEALS, LOAD],
    variables=[panels.CLUSTER, panels.NODE],
)
