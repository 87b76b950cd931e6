"""Clients from the nodes' view: producers, consumers, consumer groups, limits."""

from typing import Final

from dashboards import panels
from dashboards.panels import RED, Dashboard, Panel, Query, Row, Step, Unit
from dashboards.queries import BY_NODE, NODES, quantiles, rate, share

READERS: Final = 'cluster="$cluster",consumer_group=~"$consumer_group"'
BY_READERS: Final = "{{consumer_group}}: {{topic}}"

PRODUCERS: Final = Row(
    "Producers",
    [
        Panel(
            title="Records",
            description="Accepted by each node. Far apart while masters are even: some Paxos "
            "groups are heavier, see the balancer's dashboard.",
            queries=[Query(rate("evenkeel_produce_records_total"), BY_NODE)],
            unit=Unit.RECORDS_PER_S,
            stacked=True,
        ),
        Panel(
            title="From request to answer",
            description="Above 100 ms at p95: EvenkeelProduceSlow.",
            queries=quantiles("evenkeel_produce_seconds"),
            unit=Unit.SECONDS,
            steps=[Step(0.1, RED)],
        ),
        Panel(
            title="Records in a batch",
            description="Small batches cost most: linger.ms of 5 in the producers makes ten times "
            "as many records per second possible.",
            queries=[
                Query(
                    f"{rate('evenkeel_produce_records_total')}"
                    f" / {rate('evenkeel_produce_batches_total')}",
                    BY_NODE,
                )
            ],
        ),
        Panel(
            title="Errors, by code",
            description="Partitions answered with an error. 6 (NOT_LEADER_OR_FOLLOWER) after moves "
            "of masters, 7 (REQUEST_TIMED_OUT): EvenkeelProduceTimeouts, 19 "
            "(NOT_ENOUGH_REPLICAS): a full disk or too much load.",
            queries=[Query(rate("evenkeel_errors_total", "code"), "code {{code}}")],
            unit=Unit.PER_S,
        ),
        Panel(
            title="Time-outs",
            description="Requests whose fate was unknown when they were answered.",
            queries=[
                Query(rate("evenkeel_produce_timeouts_total"), "produce, node {{node}}"),
                Query(rate("evenkeel_forward_timeouts_total"), "forwarded, node {{node}}"),
            ],
            unit=Unit.PER_S,
        ),
        Panel(
            title="Batches sent again",
            description="By idempotent producers that missed an answer; applied once. Many of "
            "them: time-outs or lost connections.",
            queries=[Query(rate("evenkeel_duplicates_total"), BY_NODE)],
            unit=Unit.PER_S,
        ),
    ],
)

CONSUMERS: Final = Row(
    "Consumers",
    [
        Panel(
            title="Bytes to consumers",
            description="Of record batches. Far more than comes in: many consumer groups, or one "
            "that reads from the beginning.",
            queries=[Query(rate("evenkeel_fetch_bytes_total"), BY_NODE)],
            unit=Unit.BYTES_PER_S,
            stacked=True,
        ),
        Panel(
            title="Reading and answering a fetch",
            description="Without the wait for data. Slow where the disk is read: "
            "EvenkeelFetchSlow.",
            queries=quantiles("evenkeel_fetch_seconds"),
            unit=Unit.SECONDS,
            steps=[Step(0.1, RED)],
        ),
        Panel(
            title="Fetches",
            description="Requests, and those that waited for data. A consumer that has read "
            "everything waits.",
            queries=[
                Query(rate("evenkeel_fetch_requests_total"), "all, node {{node}}"),
                Query(rate("evenkeel_fetches_parked_total"), "waited, node {{node}}"),
            ],
            unit=Unit.REQUESTS_PER_S,
        ),
        Panel(
            title="Bytes read from the disk",
            description="For consumers behind the memory tail (log), and behind the log (cold). "
            "Larger limits.tail_bytes keep more in memory.",
            queries=[
                Query(rate("evenkeel_log_bytes_total"), "log, node {{node}}"),
                Query(rate("evenkeel_cold_bytes_total"), "cold, node {{node}}"),
            ],
            unit=Unit.BYTES_PER_S,
            width=12,
        ),
        Panel(
            title="Fetches refused a wait",
            description="Answered at once because too many wait: too many consumers on one node.",
            queries=[Query(rate("evenkeel_fetches_refused_total"), BY_NODE)],
            unit=Unit.PER_S,
            width=12,
        ),
    ],
)

GROUPS: Final = Row(
    "Consumer groups",
    [
        Panel(
            title="Lag",
            description="Records after the committed offsets. Growing: EvenkeelConsumerLag; with "
            "no progress at all: EvenkeelConsumerStuck.",
            queries=[
                Query(
                    f"max by (consumer_group, topic) (evenkeel_consumer_lag{{{READERS}}})",
                    BY_READERS,
                )
            ],
            width=12,
        ),
        Panel(
            title="Progress",
            description="Records committed per second; below the rate of production the lag grows.",
            queries=[
                Query(
                    "deriv(cluster_consumer_group_topic:evenkeel_consumer_committed:max"
                    f"{{{READERS}}}[$__rate_interval])",
                    BY_READERS,
                )
            ],
            unit=Unit.RECORDS_PER_S,
            width=12,
        ),
        Panel(
            title="Members",
            description="Of the consumer groups that each node coordinates.",
            queries=[Query(f"evenkeel_consumer_members{{{NODES}}}", BY_NODE)],
            stacked=True,
        ),
        Panel(
            title="Rebalances in five minutes",
            description="When members come and go. All the time: EvenkeelRebalanceStorm.",
            queries=[
                Query(
                    f"sum by (node) (increase(evenkeel_rebalances_total{{{NODES}}}[5m]))", BY_NODE
                )
            ],
        ),
        Panel(
            title="Members whose session expired",
            description="In five minutes. They crashed, hang, or cannot reach their coordinator.",
            queries=[
                Query(
                    f"sum by (node) (increase(evenkeel_sessions_expired_total{{{NODES}}}[5m]))",
                    BY_NODE,
                )
            ],
        ),
    ],
)

LIMITS: Final = Row(
    "Limits",
    [
        share(
            "Connections, part of the limit",
            "More than limits.connections_max are refused: EvenkeelConnectionsRefused.",
            [
                Query(
                    f"evenkeel_connections{{{NODES}}} / evenkeel_connections_limit{{{NODES}}}",
                    BY_NODE,
                )
            ],
            width=6,
        ),
        share(
            "Requests under way, part of the limit",
            "In bytes, of limits.pending_bytes_per_node. At 100 % sockets are not read: "
            "EvenkeelOverloaded.",
            [
                Query(
                    f"evenkeel_unanswered_bytes{{{NODES}}}"
                    f" / evenkeel_unanswered_limit_bytes{{{NODES}}}",
                    BY_NODE,
                )
            ],
            width=6,
        ),
        Panel(
            title="Connections accepted and refused",
            description="Thousands of new ones per minute: a client that does not keep its own.",
            queries=[
                Query(rate("evenkeel_connections_accepted_total"), "accepted, node {{node}}"),
                Query(rate("evenkeel_connections_refused_total"), "refused, node {{node}}"),
            ],
            unit=Unit.PER_S,
            width=6,
        ),
        Panel(
            title="Consumers that are not shown",
            description="Committed partitions of consumer groups that their coordinator does not "
            "store, and consumer groups beyond the limit of a scrape: evenkeel group describe "
            "has them.",
            queries=[
                Query(f"sum(evenkeel_consumer_lag_unknown{{{NODES}}})", "partitions"),
                Query(f"sum(evenkeel_consumer_groups_left_out{{{NODES}}})", "consumer groups"),
            ],
            width=6,
        ),
    ],
)

FLOODS: Final = Row(
    "Floods",
    [
        Panel(
            title="Memory held for connections",
            description="Unanswered requests, unread answers, buffers, and data that "
            "waits for peers, of all chosen nodes. It is bounded: EvenkeelMemoryWaits.",
            queries=[
                Query(f"sum by (kind) (evenkeel_buffer_bytes{{{NODES}}})", "{{kind}}"),
            ],
            unit=Unit.BYTES,
            stacked=True,
        ),
        Panel(
            title="Requests that waited for memory",
            description="Large ones are not read while there is no room for all of them.",
            queries=[Query(rate("evenkeel_memory_waits_total"), BY_NODE)],
            unit=Unit.PER_S,
        ),
        Panel(
            title="Silent connections closed to make room",
            description="They had sent no request when another client wanted to connect: "
            "EvenkeelConnectionsDisplaced.",
            queries=[Query(rate("evenkeel_connections_displaced_total"), BY_NODE)],
            unit=Unit.PER_S,
        ),
    ],
)

IDENTITIES: Final = Row(
    "Who are you",
    [
        Panel(
            title="Authentications",
            description="Clients of SASL listeners that have proved who they are, for the first "
            "time or again (KIP-368), by mechanism.",
            queries=[
                Query(
                    rate("evenkeel_authentications_succeeded_total", "mechanism"), "{{mechanism}}"
                ),
                Query(
                    rate("evenkeel_authentications_renewed_total", "mechanism"),
                    "again, {{mechanism}}",
                ),
            ],
            unit=Unit.PER_S,
        ),
        Panel(
            title="Failures",
            description="Wrong passwords, tokens and certificates, and TLS handshakes: "
            "EvenkeelAuthenticationsFailing. The log has addresses and reasons.",
            queries=[
                Query(
                    rate("evenkeel_authentications_failed_total", "listener, mechanism"),
                    "{{mechanism}}, listener {{listener}}",
                ),
                Query(rate("evenkeel_tls_handshakes_failed_total"), "TLS, node {{node}}"),
            ],
            unit=Unit.PER_S,
        ),
        Panel(
            title="Cut off",
            description="Open connections of clients that are no longer believed: other "
            "credentials, a certificate that has expired or was revoked, a session that has ended.",
            queries=[Query(rate("evenkeel_connections_cut_off_total", "why"), "{{why}}")],
            unit=Unit.PER_S,
        ),
    ],
)

CLIENTS_DASHBOARD: Final = Dashboard(
    uid="evenkeel-clients",
    title="Clients",
    description="Producers and consumers, as the nodes see them.",
    rows=[PRODUCERS, CONSUMERS, GROUPS, LIMITS, FLOODS, IDENTITIES],
    variables=[panels.CLUSTER, panels.NODE, panels.CONSUMER_GROUP],
)
