"""The alerts, the most urgent subject first. Each has a page in docs/runbooks."""

from collections.abc import Sequence
from typing import Final

from dashboards.rules import Alert

NODE: Final = "node {{ $labels.node }} of {{ $labels.cluster }}"
GROUP: Final = "Paxos group {{ $labels.group }} of {{ $labels.cluster }}"
CLUSTER: Final = "cluster {{ $labels.cluster }}"
READERS: Final = "consumer group {{ $labels.consumer_group }} on {{ $labels.topic }}"
VALUE: Final = "{{ $value | humanize }}"
PERCENT: Final = "{{ $value | humanizePercentage }}"
DURATION: Final = "{{ $value | humanizeDuration }}"

CRITICAL: Final = "critical"
WARNING: Final = "warning"
INFO: Final = "info"

NODES: Final[Sequence[Alert]] = (
    Alert(
        name="EvenkeelNodeDown",
        value='up{job="evenkeel"}',
        when="== 0",
        lasts="1m",
        severity=CRITICAL,
        summary=f"{NODE} gives no metrics",
        description="It is down, hangs, or cannot be reached. Its Paxos groups have other masters "
        "by now; one more failure may leave Paxos groups without a majority.",
    ),
    Alert(
        name="EvenkeelNodeNotScraped",
        value="max by (cluster) (sum by (cluster, node) (evenkeel_nodes))"
        ' - on (cluster) count by (cluster) (up{job="evenkeel"})',
        when="> 0",
        lasts="10m",
        severity=WARNING,
        summary=f"{CLUSTER} has {VALUE} nodes that Prometheus does not know",
        description="Nothing watches them. Add them to the targets of Prometheus.",
    ),
    Alert(
        name="EvenkeelNodeNotReady",
        value="evenkeel_ready",
        when="== 0",
        lasts="2m",
        severity=WARNING,
        summary=f"{NODE} is not ready",
        description="It runs, but should not be sent clients: /readyz says why.",
    ),
    Alert(
        name="EvenkeelNodeRestarting",
        value='changes(process_start_time_seconds{job="evenkeel"}[15m])',
        when="> 2",
        severity=WARNING,
        summary=f"{NODE} was started {VALUE} times in 15 minutes",
        description="Something ends it again and again: the last lines of its log say what.",
    ),
    Alert(
        name="EvenkeelNodeBusy",
        value="cluster_node:evenkeel_cpu:ratio_rate5m",
        when="> 0.9",
        lasts="10m",
        severity=WARNING,
        summary=f"{NODE} uses {PERCENT} of a core",
        description="Its event loop uses one core and has no time left: requests wait.",
    ),
    Alert(
        name="EvenkeelLoopLag",
        value="evenkeel_tick_gap_seconds",
        when="> 0.5",
        lasts="2m",
        severity=WARNING,
        summary=f"{NODE}: its event loop stood still for {DURATION}",
        description="Everything the node does waits this long, including renewals of leases.",
    ),
    Alert(
        name="EvenkeelLinkDown",
        value="evenkeel_peer_up",
        when="== 0 unless on (cluster, peer)"
        ' label_replace(up{job="evenkeel"} == 0, "peer", "$1", "node", "(.*)")',
        lasts="1m",
        severity=CRITICAL,
        summary=f"{NODE} has no link to node {{{{ $labels.peer }}}}, which runs",
        description="The network between them is cut, or one refuses the other.",
    ),
    Alert(
        name="EvenkeelFramesDropped",
        value="rate(evenkeel_peer_dropped_total[5m])",
        when="> 0",
        lasts="5m",
        severity=WARNING,
        summary=f"{NODE} drops {VALUE} frames/s to node {{{{ $labels.peer }}}}",
        description="The peer takes less than it is sent; dropped frames are sent again later.",
    ),
    Alert(
        name="EvenkeelClockUntrusted",
        value="evenkeel_clock_trusted",
        when="== 0",
        lasts="30s",
        severity=CRITICAL,
        summary=f"{NODE}: its clock is off, or was never compared",
        description="It is not master of any Paxos group until its clock is right.",
    ),
    Alert(
        name="EvenkeelClockOffset",
        value="max by (cluster, node) (abs(evenkeel_clock_offset_seconds))"
        " / on (cluster, node) max by (cluster, node) (evenkeel_clock_margin_seconds)",
        when="> 0.5",
        lasts="5m",
        severity=WARNING,
        summary=f"{NODE}: clocks differ by {PERCENT} of what is allowed",
        description="A node that is 80 % off the middle of all clocks gives up its masters.",
    ),
    Alert(
        name="EvenkeelClockStoodStill",
        value="increase(evenkeel_clock_stood_still_total[1h])",
        when="> 0",
        severity=WARNING,
        summary=f"{NODE}: clocks stood still {VALUE} times in the last hour",
        description="Its machine was frozen while the others continued, or a peer's was. It gives "
        "up its masters when it notices.",
    ),
    Alert(
        name="EvenkeelLeaseSettingsDiffer",
        value="evenkeel_lease_settings_differ",
        when="> 0",
        lasts="15m",
        severity=WARNING,
        summary=f"{NODE}: {VALUE} nodes have other lease settings than this node",
        description="Each node judges clocks and leases by its own settings, and safety needs "
        "all to judge alike.",
    ),
    Alert(
        name="EvenkeelCutOff",
        value="evenkeel_cut_off",
        when="== 1",
        lasts="15s",
        severity=CRITICAL,
        summary=f"{NODE} is cut off from a majority of the nodes",
        description="It redirects its clients and accepts none until it hears from a majority.",
    ),
    Alert(
        name="EvenkeelNotDurable",
        value='(sum by (cluster, node) (evenkeel_node_info{durability!="fsync"})'
        " or sum by (cluster, node) (evenkeel_node_info) * 0)",
        when="> 0",
        severity=WARNING,
        summary=f"{NODE} does not sync what it acknowledges",
        description="storage.durability is unsafe-none: a power cut may lose data.",
    ),
)

MASTERS: Final[Sequence[Alert]] = (
    Alert(
        name="EvenkeelGroupMasterless",
        value="cluster_group:evenkeel_group_acting:sum",
        when="== 0",
        lasts="30s",
        severity=CRITICAL,
        summary=f"{GROUP} has no master",
        description="Its partitions can be neither written nor read. After a crash this lasts "
        "about a lease; longer means no majority, or clocks that are off.",
    ),
    Alert(
        name="EvenkeelGroupTwoMasters",
        value="cluster_group:evenkeel_group_acting:sum",
        when="> 1",
        lasts="1m",
        severity=CRITICAL,
        summary=f"{GROUP}: {VALUE} nodes act as its master",
        description="Must never happen. Ballots protect the log, but reads may be old. Scrapes are "
        "not simultaneous, so this only counts when it lasts.",
    ),
    Alert(
        name="EvenkeelMasterFlapping",
        value="sum by (cluster, group) (increase(evenkeel_masterships_total[10m]))",
        when="> 6",
        severity=WARNING,
        summary=f"{GROUP} had {VALUE} masters in 10 minutes",
        description="Something takes its master away again and again: a slow disk or loop, a "
        "bad link, or a node that restarts.",
    ),
    Alert(
        name="EvenkeelMasterSkew",
        value="max by (cluster) (cluster_node:evenkeel_masters:sum)"
        " / on (cluster) avg by (cluster) (cluster_node:evenkeel_masters:sum)",
        when=">= 1.9",
        lasts="15m",
        severity=WARNING,
        summary=f"{CLUSTER}: a node has {VALUE} times the average of masters",
        description="That node does the work of others, whose CPUs, disks and links are idle.",
    ),
    Alert(
        name="EvenkeelLeaseMarginLow",
        value="min_over_time(cluster_node:evenkeel_lease_left:ratio[5m])",
        when="< 0.2",
        lasts="2m",
        severity=WARNING,
        summary=f"{NODE}: leases of its Paxos groups fell to {PERCENT}",
        description="Renewals are late. When one comes too late, the Paxos group loses its master.",
    ),
)

REPLICAS: Final[Sequence[Alert]] = (
    Alert(
        name="EvenkeelReplicaDiverged",
        value="evenkeel_group_diverged",
        when="> 0",
        severity=CRITICAL,
        summary=f"{GROUP}: node {{{{ $labels.node }}}} sees {VALUE} members with another log",
        description="Must never happen: replicas have applied different entries.",
    ),
    Alert(
        name="EvenkeelUnderReplicated",
        value="max by (cluster) (evenkeel_groups_under_replicated)",
        when="> 0",
        lasts="5m",
        severity=WARNING,
        summary=f"{CLUSTER}: {VALUE} Paxos groups have fewer copies than they should",
        description="One more failure may stop them.",
    ),
    Alert(
        name="EvenkeelMachineHoldsMajority",
        value="max by (cluster, machine) (evenkeel_machine_stops_groups)",
        when="> 0",
        lasts="15m",
        severity=WARNING,
        summary=f"{CLUSTER}: the loss of machine {{{{ $labels.machine }}}} would stop {VALUE} "
        "Paxos groups",
        description="They have so many copies on it that the others are no majority. There "
        "are fewer machines than copies, or a machine is gone.",
    ),
    Alert(
        name="EvenkeelReplicaBehind",
        value="max by (cluster, node) (evenkeel_group_slots_behind)",
        when="> 100",
        lasts="2m",
        severity=WARNING,
        summary=f"{NODE} has {VALUE} entries of a Paxos group still to apply",
        description="It cannot take Paxos groups over until it has caught up.",
    ),
    Alert(
        name="EvenkeelNonVoting",
        value="evenkeel_groups_non_voting",
        when="> 0",
        lasts="10m",
        severity=WARNING,
        summary=f"{NODE} may not vote in {VALUE} Paxos groups",
        description="It has lost some of their log, and fetches it from its peers.",
    ),
    Alert(
        name="EvenkeelCatchingUp",
        value="evenkeel_catching_up",
        when="> 0",
        lasts="30m",
        severity=WARNING,
        summary=f"{NODE} still has to get {VALUE} Paxos groups or damaged places from peers",
        description="It takes long: until then these have one copy less.",
    ),
    Alert(
        name="EvenkeelReplicaMovesStuck",
        value="max by (cluster) (evenkeel_groups_moving)",
        when="> 0",
        lasts="1h",
        severity=WARNING,
        summary=f"{CLUSTER}: {VALUE} Paxos groups have been changing their members for an hour",
        description="A node that should have them does not get them, or one that should leave "
        "them does not answer.",
    ),
)

STORAGE: Final[Sequence[Alert]] = (
    Alert(
        name="EvenkeelDiskLow",
        value="evenkeel_disk_low",
        when="== 1",
        severity=CRITICAL,
        summary=f"{NODE}: its disk is nearly full, writes are refused",
        description="Producers to Paxos groups with this member get NOT_ENOUGH_REPLICAS and retry. "
        "Reads continue.",
    ),
    Alert(
        name="EvenkeelDiskStuck",
        value="evenkeel_disk_stuck",
        when="== 1",
        severity=CRITICAL,
        summary=f"{NODE}: its disk is full, it pauses",
        description="There is no room for another record. It continues by itself when there is.",
    ),
    Alert(
        name="EvenkeelDiskHung",
        value="evenkeel_disk_hung",
        when="== 1",
        severity=CRITICAL,
        summary=f"{NODE}: its disk hangs",
        description="Nothing becomes durable. The node has given up its masters, but answers.",
    ),
    Alert(
        name="EvenkeelDiskSlow",
        value="evenkeel_disk_slow",
        when="== 1",
        lasts="1m",
        severity=WARNING,
        summary=f"{NODE}: its disk is much slower than those of the others",
        description="It gives its masters to nodes with better disks.",
    ),
    Alert(
        name="EvenkeelDiskWillBeFull",
        value="evenkeel_disk_full_seconds",
        when="< 86400",
        lasts="15m",
        severity=WARNING,
        summary=f"{NODE}: at today's rates its disk is full in {DURATION}",
        description="What topics may keep is more than there is room for.",
    ),
    Alert(
        name="EvenkeelDiskQuota",
        value="cluster_node:evenkeel_disk_used:ratio",
        when="> 0.85",
        lasts="10m",
        severity=WARNING,
        summary=f"{NODE} has used {PERCENT} of the space for its files",
        description="The limit is the disk, or storage.data_bytes_max.",
    ),
    Alert(
        name="EvenkeelFsyncSlow",
        value="cluster_node:evenkeel_wal_sync_seconds:p99_5m",
        when="> 0.1",
        lasts="5m",
        severity=WARNING,
        summary=f"{NODE}: one fdatasync in a hundred takes {DURATION}",
        description="Every acknowledgement waits for a majority's disks, so producers are slow.",
    ),
    Alert(
        name="EvenkeelLogDamage",
        value="cluster_node:evenkeel_damage:sum - (cluster_node:evenkeel_damage:sum offset 1h"
        " or cluster_node:evenkeel_damage:sum * 0)",
        when="> 0",
        severity=CRITICAL,
        summary=f"{NODE} found {VALUE} damaged places in the last hour",
        description="The disk returned other bytes than were written. They are never served, "
        "and are fetched again from peers.",
    ),
    Alert(
        name="EvenkeelDamageNotRepaired",
        value="evenkeel_entries_missing",
        when="> 0",
        lasts="15m",
        severity=CRITICAL,
        summary=f"{NODE}: {VALUE} damaged entries are not repaired",
        description="No peer could supply them so far.",
    ),
    Alert(
        name="EvenkeelScrubErrors",
        value="increase(evenkeel_scrub_errors_total[1h])",
        when="> 0",
        severity=WARNING,
        summary=f"{NODE}: its disk failed reads of the scrubber",
        description="The disk itself reports that it cannot read: it will fail soon.",
    ),
    Alert(
        name="EvenkeelCheckpointFailing",
        value="increase(evenkeel_checkpoint_failures_total[1h])",
        when="> 0",
        severity=WARNING,
        summary=f"{NODE} had no room for {VALUE} checkpoints",
        description="Without them the log grows, and a restart reads all of it.",
    ),
    Alert(
        name="EvenkeelLogNotTrimmed",
        value="evenkeel_log_window_bytes / evenkeel_log_window_limit_bytes",
        when="> 2",
        lasts="15m",
        severity=WARNING,
        summary=f"{NODE} keeps {VALUE} times the log it should",
        description="Checkpoints are too old, or data is not moved out of the log fast enough.",
    ),
)

BALANCER: Final[Sequence[Alert]] = (
    Alert(
        name="EvenkeelMastersMisplaced",
        value="sum by (cluster) (max by (cluster, group) (evenkeel_group_misplaced))",
        when="> 0",
        lasts="10m",
        severity=WARNING,
        summary=f"{CLUSTER}: {VALUE} Paxos groups have not been where they belong for 10 minutes",
        description="The balancer makes no progress: its reason codes say why.",
    ),
    Alert(
        name="EvenkeelBalancerPaused",
        value="max by (cluster) (evenkeel_balancer_paused)",
        when="== 1",
        lasts="1h",
        severity=INFO,
        summary=f"{CLUSTER}: its balancer has been paused for an hour",
        description="Someone paused it, and may have forgotten to resume it.",
    ),
    Alert(
        name="EvenkeelStealsFailing",
        value='sum by (cluster, node) (increase(evenkeel_steals_total{outcome!="done"}[15m]))',
        when="> 3",
        severity=WARNING,
        summary=f"{NODE}: {VALUE} of its steals failed in 15 minutes",
        description="A master does not hand over, or the link to it is bad.",
    ),
)

CLIENTS: Final[Sequence[Alert]] = (
    Alert(
        name="EvenkeelErrorRate",
        value="cluster_node:evenkeel_errors:ratio_rate5m",
        when="> 0.01",
        lasts="5m",
        severity=WARNING,
        summary=f"{NODE} answers {PERCENT} as many errors as requests",
        description="Clients retry most of them; the code says which.",
    ),
    Alert(
        name="EvenkeelProduceSlow",
        value="cluster_node:evenkeel_produce_seconds:p95_5m",
        when="> 0.1",
        lasts="5m",
        severity=WARNING,
        summary=f"{NODE}: one produce request in twenty takes {DURATION} or more",
        description="The disk, the loop, or a peer that is slow to answer.",
    ),
    Alert(
        name="EvenkeelFetchSlow",
        value="cluster_node:evenkeel_fetch_seconds:p95_5m",
        when="> 0.1",
        lasts="5m",
        severity=WARNING,
        summary=f"{NODE}: one fetch in twenty takes {DURATION} or more to read",
        description="Consumers read data no longer in memory; disk reads delay all of them.",
    ),
    Alert(
        name="EvenkeelProduceTimeouts",
        value="increase(evenkeel_produce_timeouts_total[5m])"
        " + increase(evenkeel_forward_timeouts_total[5m])",
        when="> 0",
        severity=WARNING,
        summary=f"{NODE} let {VALUE} produce requests time out in 5 minutes",
        description="Their fate was unknown when they were answered; producers that are not "
        "idempotent may write twice.",
    ),
    Alert(
        name="EvenkeelOverloaded",
        value="evenkeel_unanswered_bytes / evenkeel_unanswered_limit_bytes",
        when="> 0.8",
        lasts="2m",
        severity=WARNING,
        summary=f"{NODE}: requests in progress take {PERCENT} of their memory limit",
        description="At 100 % it reads no more from its clients until it has caught up.",
    ),
    Alert(
        name="EvenkeelConnectionsRefused",
        value="increase(evenkeel_connections_refused_total[5m])",
        when="> 0",
        severity=WARNING,
        summary=f"{NODE} refused {VALUE} connections in 5 minutes",
        description="A limit is reached: limits.connections_max, or the one per address.",
    ),
    Alert(
        name="EvenkeelMemoryWaits",
        value="increase(evenkeel_memory_waits_total[5m])",
        when="> 0",
        lasts="5m",
        severity=WARNING,
        summary=f"{NODE}: {VALUE} requests waited for memory in 5 minutes",
        description="Requests and answers fill the memory for connections: large requests are "
        "not read until there is room.",
    ),
    Alert(
        name="EvenkeelConnectionsDisplaced",
        value="increase(evenkeel_connections_displaced_total[5m])",
        when="> 20",
        severity=WARNING,
        summary=f"{NODE} closed {VALUE} silent connections in 5 minutes to make room",
        description="Connections without requests fill limits.connections_max, or an address's.",
    ),
    Alert(
        name="EvenkeelConsumerStuck",
        value="cluster_consumer_group_topic:evenkeel_consumer_lag:max",
        when="> 0 and on (cluster, consumer_group, topic)"
        " changes(cluster_consumer_group_topic:evenkeel_consumer_committed:max[10m]) == 0",
        lasts="10m",
        severity=WARNING,
        summary=f"{READERS} commits nothing, with {VALUE} records to read",
        description="It is stopped, or cannot get past a record.",
    ),
    Alert(
        name="EvenkeelConsumerLag",
        value="cluster_consumer_group_topic:evenkeel_consumer_lag:max",
        when="> 10000 and on (cluster, consumer_group, topic)"
        " deriv(cluster_consumer_group_topic:evenkeel_consumer_lag:max[10m]) > 0",
        lasts="15m",
        severity=WARNING,
        summary=f"{READERS} is {VALUE} records behind, and falls further behind",
        description="It reads more slowly than others write.",
    ),
    Alert(
        name="EvenkeelRebalanceStorm",
        value="sum by (cluster) (increase(evenkeel_rebalances_total[10m]))",
        when="> 50",
        severity=INFO,
        summary=f"{CLUSTER}: {VALUE} rebalances in 10 minutes",
        description="Members come and go all the time, and their consumer groups read nothing "
        "meanwhile.",
    ),
)

SECURITY: Final[Sequence[Alert]] = (
    Alert(
        name="EvenkeelInsecureListener",
        value="evenkeel_insecure_listeners",
        when="> 0",
        lasts="5m",
        severity=INFO,
        summary=f"{NODE}: everyone who reaches {VALUE} of its listeners may do everything",
        description="security.insecure_listeners allows it. Give clients a listener with TLS and "
        "certificates, and links between nodes mutual TLS, and take the setting back.",
    ),
    Alert(
        name="EvenkeelCertificateExpires",
        value="evenkeel_tls_expires_timestamp_seconds - time()",
        when="< 1209600",
        lasts="10m",
        severity=WARNING,
        summary=f"{NODE}: its {{{{ $labels.of }}}} expires in {DURATION}",
        description="With an expired certificate of the node clients refuse it, and without an "
        "authority it refuses clients. Put new files in their place: the node reads them without a "
        "restart.",
    ),
    Alert(
        name="EvenkeelTlsFilesRefused",
        value="evenkeel_tls_files_refused",
        when="> 0",
        lasts="1m",
        severity=WARNING,
        summary=f"{NODE}: its new TLS files are wrong",
        description="It goes on with those of before, and would not start with these: its log says "
        "what is wrong.",
    ),
    Alert(
        name="EvenkeelAuthenticationsFailing",
        value="sum by (cluster, node) (increase(evenkeel_authentications_failed_total[5m]))",
        when="> 100",
        severity=WARNING,
        summary=f"{NODE}: {VALUE} clients in 5 minutes could not prove who they are",
        description="Somebody guesses, or clients have an old password, or tokens that have "
        "expired. The log has addresses and reasons.",
    ),
    Alert(
        name="EvenkeelTokenKeysRefused",
        value="evenkeel_token_keys_refused",
        when="> 0",
        lasts="5m",
        severity=WARNING,
        summary=f"{NODE} cannot read the keys that access tokens are signed with",
        description="It goes on with those of before: tokens with newer keys are refused. Its log "
        "says what is wrong.",
    ),
)

ALERTS: Final = {
    "evenkeel-nodes": NODES,
    "evenkeel-masters": MASTERS,
    "evenkeel-replicas": REPLICAS,
    "evenkeel-storage": STORAGE,
    "evenkeel-balancer": BALANCER,
    "evenkeel-clients": CLIENTS,
    "evenkeel-security": SECURITY,
}
"""By the name of the group of rules in Prometheus."""
