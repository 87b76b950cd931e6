"""Disks: the log, checkpoints, cold segments, room, damage, catching up."""

from typing import Final

from dashboards import panels
from dashboards.panels import GREEN, RED, YELLOW, Dashboard, Kind, Panel, Query, Row, Step, Unit
from dashboards.queries import BY_NODE, NODES, nought, quantiles, rate, share

TOPICS_SHOWN: Final = 10

LOG: Final = Row(
    "The log",
    [
        Panel(
            title="fdatasync",
            description="Write and fdatasync of one batch of all Paxos groups; every "
            "acknowledgement "
            "waits for a majority's. p99 above 100 ms: EvenkeelFsyncSlow.",
            queries=quantiles("evenkeel_wal_sync_seconds"),
            unit=Unit.SECONDS,
            steps=[Step(0.1, RED)],
        ),
        Panel(
            title="fdatasync, all of them",
            description="How many took how long. Two bands mean a disk that sometimes has "
            "something else to do.",
            queries=[
                Query(rate("evenkeel_wal_sync_seconds_bucket", "le"), "{{le}}"),
            ],
            kind=Kind.HEATMAP,
            unit=Unit.SECONDS,
        ),
        Panel(
            title="Records in one sync",
            description="Group commit: more under load. Near 1 with much load: clients wait for "
            "each answer before they send again.",
            queries=[
                Query(
                    f"{rate('evenkeel_wal_records_total')} / {rate('evenkeel_wal_syncs_total')}",
                    BY_NODE,
                )
            ],
        ),
        Panel(
            title="Bytes into the log",
            description="All Paxos groups this node is a member of, master or not: each byte "
            "produced is written by every member of its Paxos group.",
            queries=[Query(rate("evenkeel_wal_bytes_total"), BY_NODE)],
            unit=Unit.BYTES_PER_S,
        ),
        Panel(
            title="Staged, not durable",
            description="Data that waits for the disk. It grows if the disk is slower than what "
            "comes in.",
            queries=[Query(f"evenkeel_wal_unwritten_bytes{{{NODES}}}", BY_NODE)],
            unit=Unit.BYTES,
        ),
        Panel(
            title="Log kept, part of its window",
            description="About 1 is right. 2 and more: checkpoints or the move to cold segments "
            "are late, see EvenkeelLogNotTrimmed.",
            queries=[
                Query(
                    f"evenkeel_log_window_bytes{{{NODES}}}"
                    f" / evenkeel_log_window_limit_bytes{{{NODES}}}",
                    BY_NODE,
                )
            ],
            steps=[Step(2, RED)],
        ),
        Panel(
            title="Oldest checkpoint",
            description="Of the Paxos groups of each node. An idle Paxos group's may be old; a "
            "restart reads the log since then.",
            queries=[Query(f"max by (node) (evenkeel_checkpoint_age_seconds{{{NODES}}})", BY_NODE)],
            unit=Unit.SECONDS,
        ),
        Panel(
            title="Checkpoints in ten minutes",
            description="Written, and those that had no room: EvenkeelCheckpointFailing.",
            queries=[
                Query(
                    f"sum by (node) (increase(evenkeel_checkpoints_total{{{NODES}}}[10m]))",
                    "written, node {{node}}",
                ),
                Query(
                    f"sum by (node) (increase(evenkeel_checkpoint_failures_total{{{NODES}}}[10m]))",
                    "failed, node {{node}}",
                ),
            ],
        ),
        Panel(
            title="Moved to cold segments",
            description="Data that leaves the log for a file of its partition. Less than comes in, "
            "for long: EvenkeelLogNotTrimmed.",
            queries=[Query(rate("evenkeel_settled_bytes_total"), BY_NODE)],
            unit=Unit.BYTES_PER_S,
        ),
    ],
)

HANGS: Final = Row(
    "Disks that hang, or are slow",
    [
        Panel(
            title="Age of the batch being written",
            description="How long it waits for the disk. At one second the node gives up its "
            "masters: EvenkeelDiskHung.",
            queries=[Query(f"evenkeel_disk_waiting_seconds{{{NODES}}}", BY_NODE)],
            unit=Unit.SECONDS,
            steps=[Step(1, RED)],
        ),
        Panel(
            title="Hangs, slow",
            description="Nodes whose disk hangs (EvenkeelDiskHung), or is far slower than the "
            "others' (EvenkeelDiskSlow): neither has masters.",
            queries=[
                Query(f"evenkeel_disk_hung{{{NODES}}}", "hangs, node {{node}}"),
                Query(f"evenkeel_disk_slow{{{NODES}}}", "slow, node {{node}}"),
            ],
            kind=Kind.STATES,
            words=[(0, "no", GREEN), (1, "yes", RED)],
        ),
        Panel(
            title="Commands refused because of the disk",
            description="It is nearly full, or more data waits for it than memory may hold. "
            "Producers send them again: EvenkeelDiskLow.",
            queries=[Query(rate("evenkeel_refused_disk_full_total"), BY_NODE)],
            unit=Unit.PER_S,
        ),
    ],
)

ROOM: Final = Row(
    "Room",
    [
        share(
            "Used, part of the limit",
            "Of the disk or of storage.data_bytes_max. Above 85 %: EvenkeelDiskQuota. "
            "evenkeel data usage says which topics it is.",
            [
                Query(
                    f"sum by (node) (evenkeel_disk_held_bytes{{{NODES}}})"
                    f" / on (node) max by (node) (evenkeel_disk_limit_bytes{{{NODES}}})",
                    BY_NODE,
                )
            ],
        ),
        Panel(
            title="Used, by kind",
            description="All chosen nodes together. `log` has a fixed size, `cold` is what topics "
            "keep beyond it: their retention makes it smaller.",
            queries=[
                Query(f"sum by (kind) (evenkeel_disk_held_bytes{{{NODES}}})", "{{kind}}"),
            ],
            unit=Unit.BYTES,
            stacked=True,
        ),
        Panel(
            title="Used, predicted, allowed",
            description="Predicted: when the node has run for long, at today's rates. Above the "
            "allowed size it will be full one day: shorten retention.",
            queries=[
                Query(
                    f"sum by (node) (evenkeel_disk_held_bytes{{{NODES}}})", "used, node {{node}}"
                ),
                Query(f"evenkeel_disk_predicted_bytes{{{NODES}}}", "predicted, node {{node}}"),
                Query(f"evenkeel_disk_limit_bytes{{{NODES}}}", "allowed, node {{node}}"),
            ],
            unit=Unit.BYTES,
        ),
        Panel(
            title="Full in",
            description="Until writes are refused, at today's rates; no line if that is never.",
            queries=[Query(f"evenkeel_disk_full_seconds{{{NODES}}}", BY_NODE)],
            unit=Unit.SECONDS,
        ),
        Panel(
            title="Free",
            description="Of the data directory's file system. Below storage.low_water_bytes "
            "writes are refused.",
            queries=[Query(f"evenkeel_disk_free_bytes{{{NODES}}}", BY_NODE)],
            unit=Unit.BYTES,
        ),
        Panel(
            title="Largest topics",
            description="What the chosen nodes keep of them, all copies together. Too much: "
            "shorten their retention; evenkeel data usage says what each will keep.",
            queries=[
                Query(
                    f"topk({TOPICS_SHOWN}, sum by (topic) (evenkeel_topic_bytes{{{NODES}}}))",
                    "{{topic}}",
                )
            ],
            unit=Unit.BYTES,
        ),
        Panel(
            title="Removed by compaction",
            description="Of topics with cleanup.policy=compact: records replaced by later records "
            "of the same key.",
            queries=[Query(rate("evenkeel_compaction_removed_bytes_total"), BY_NODE)],
            unit=Unit.BYTES_PER_S,
            width=12,
        ),
        share(
            "Dirtiest compacted partition",
            "Part of it that later records may have replaced. Near 1 for hours: compaction gives "
            "way to something, see evenkeel_compaction_gave_way.",
            [Query(f"evenkeel_compaction_dirty_ratio{{{NODES}}}", BY_NODE)],
            width=12,
        ),
    ],
)

DAMAGE: Final = Row(
    "Damage, and catching up",
    [
        nought(
            "Damaged places",
            "Found since the nodes started. If not 0: EvenkeelLogDamage, and consider "
            "another disk.",
            f"sum(evenkeel_log_damage_total{{{NODES}}})"
            f" + sum(evenkeel_cold_damage_total{{{NODES}}})",
            width=6,
        ),
        nought(
            "Not repaired yet",
            "Peers repair them, in seconds; otherwise: EvenkeelDamageNotRepaired.",
            f"sum(evenkeel_entries_missing{{{NODES}}})",
            width=6,
        ),
        nought(
            "Reads the disk failed",
            "Of the scrubber, since the nodes started: EvenkeelScrubErrors.",
            f"sum(evenkeel_scrub_errors_total{{{NODES}}})",
            width=6,
        ),
        Panel(
            title="Still to get from peers",
            description="Paxos groups and damaged places. For more than half an hour: "
            "EvenkeelCatchingUp.",
            queries=[Query(f"sum(evenkeel_catching_up{{{NODES}}})")],
            kind=Kind.STAT,
            width=6,
            height=4,
            steps=[Step(1, YELLOW)],
        ),
        Panel(
            title="Catching up",
            description="Received from peers. Bounded by catchup.bytes_per_s and "
            "catchup.share_percent.",
            queries=[Query(rate("evenkeel_catch_up_received_bytes_total"), BY_NODE)],
            unit=Unit.BYTES_PER_S,
            width=12,
        ),
        Panel(
            title="Scrubbed",
            description="Data read again to find damage before it is needed.",
            queries=[Query(rate("evenkeel_scrubbed_bytes_total"), BY_NODE)],
            unit=Unit.BYTES_PER_S,
            width=12,
        ),
    ],
)

STORAGE_DASHBOARD: Final = Dashboard(
    uid="evenkeel-storage",
    title="Storage",
    description="The log, checkpoints, room, damage and catching up.",
    rows=[LOG, HANGS, ROOM, DAMAGE],
    variables=[panels.CLUSTER, panels.NODE],
)
