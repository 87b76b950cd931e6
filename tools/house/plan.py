"""Where each module goes: the map of the house that `mover.py` builds.

A block `@ room` names where modules are now; each line below it says which of them stand together:
`folder : module module ...`, with `old>new` for one that gets another name as well. `.` is the room
itself, `/cli` a folder at the root. Modules that stay are listed, too, so that one that the map has
not heard of is noticed. `+ FILE` takes a file along that is no module.
"""

import re
from pathlib import PurePosixPath
from typing import Final, NamedTuple

PLAN: Final = """
@ runtime
. : shell settings
system : clock journal aside_stream worker process memory
config : config fields sections options fitting>memory_limits
network : dataplane channel listener connecting>connect door>connection_limits
http : http>server http_guard>guard
membership : admission greeting>handshake lease_terms masters masterships known_groups
membership : registry_client keeping>local_records contact>quorum_contact
disk : log_writer scrubber repair scarcity>disk_pressure log_dir serving>log_server
disk : recovering>recovery
engine : engine engine_ports>ports submitting>submission statistics forwarded>forwarding
upkeep : upkeep checkpointing compacting>compactor disk_use>disk_usage
balancing : balancing>balancing_loop planning>planning_loop handovers load_meter hosting
balancing : balancer_view>view
clients : clients crowd>backpressure place>response_slot gate
peers : peers incoming outgoing large_lane frames outcomes>forward_outcomes
metrics : metrics>collector balancer_metrics>balancer compaction_metrics>compaction
metrics : consumer_metrics>consumers latency_metrics>latency node_metrics>node
metrics : topic_metrics>topics upkeep_metrics>upkeep usage_metrics>disk_usage status
admin : admin>inspection balancer_admin>balancer node_admin>nodes
console : console/book>reports console/changes console/console console/hub
console : console/own>local_report console/pages console/past>recent_traffic
console : console/picture>cluster_view console/words>messages

@ broker
. : api config ports topic_configs statistics latency traffic tail disk_watch lanes
. : registry_calls
requests : context guard refusals hints>leader_hints burdens>request_memory portions
requests : leaders metadata_cache
handlers/records : handlers/produce handlers/produce_usual>produce_fast_path handlers/fetch
handlers/records : handlers/list_offsets handlers/leader_epochs handlers/delete_records
handlers/records : handlers/producer_ids
handlers/groups : handlers/coordinators handlers/membership handlers/offsets
handlers/groups : handlers/group_admin handlers/assigned_groups
handlers/topics : handlers/topics handlers/changes>registry_changes handlers/configs
handlers/topics : handlers/alter_configs handlers/known_names handlers/places
handlers/topics : handlers/elections handlers/reassignments handlers/log_dirs
handlers/cluster : handlers/metadata handlers/cluster>describe_cluster handlers/api_versions
handlers/cluster : handlers/operations>authorized_operations
groups : consumer_groups progress>progress_requests patterns>topic_patterns
delayed : holds>delayed_operations parked>delayed_fetches produces>delayed_produces
reads : reader late_reads>disk_reads time_search searches>search_queue copying>batch_copy
producers : admissions>unknown_producers gaps>sequence_gaps producer_ids
producers : homes>producer_connections batch_checks>batch_validation
proposals : commands intake gathering>group_commit
state_machine : machine partition partition_image batch_index
state_machine : producers>producer_state writers>writer_state image>checkpoint_chunks
lifecycle : retention compaction compaction_lag compaction_plan settling>tiering
lifecycle : rates>growth_rates usage>disk_forecast catchup/bucket>token_bucket
transfer : catchup/batches catchup/codec catchup/driver catchup/effects catchup/messages
transfer : catchup/sink catchup/source

@ simulator
. : __main__ world swarm shrink script mutation clock_world
environment : clock dice loop network options trace
node : node brokers>broker_node commands>command_node kinds>node_kind machine>state_machine
node : held>group_state hosting checkpointing upkeep jobs disk wal_disk recovery
node : durable>durable_state doom>crash_points balancing registry_client disk_watch
checkers : checkers>protocol checkers_bases>bases checkers_broker>partition_logs
checkers : checkers_copies>copies checkers_groups>groups checkers_orders>orders
checkers : checkers_steals>steals checkers_times>times deaths>dead_members
clients : client>command_client admin kafka>kafka_client member reader producer
clients : pipeliner>plain_producer reborn>recreated_topic writer>token_writer
clients : operators>operator
nemesis : nemesis nemesis_clocks>clocks nemesis_disks>disks nemesis_network>network
nemesis : nemesis_words>false_messages
mutants : mutants>catalogue mutants_broker>broker mutants_clocks>clocks mutants_cold>tiering
mutants : mutants_fences>fences mutants_order>order mutants_state>state
mutants : mutants_words>false_messages planting
model : model/__main__ model/checker model/events model/observe model/runs
model : model/specification model/traces

@ benchmarks
. : __main__ target rota>turns
load : generator clients paced frames jobs worker histogram samples usage
report : report results earlier>comparison environment progress
suites : bench suite runs saturation sizes failover idle catchup dose>catchup_scale
placement : placements placement_options>options placement_ratios>ratios
studies : bulk long_kept planner record_reading profile spark spark_write
handoff : handoff/__main__ handoff/clients handoff/figures handoff/moves handoff/raw
handoff : handoff/report
limits : limits/__main__ limits/append limits/bare limits/echo limits/kafka limits/loads
limits : limits/machine limits/measure limits/ring limits/streams limits/tables
machines : machines/inside machines/limits machines/network machines/nodes machines/relay

@ storage
. : errors format identity checkpoints inspection usage witness evidence
. : unsafe>unsafe_recovery
log : wal segments index heads>segment_heads kept>live_segments log_writes
log : mark>synced_mark model opening recovery replaying>replay staged walk
log : mending>header_repair
cold : cold>store cold_cache>cache cold_file>file cold_format>format cold_merge>merge
cold : cold_reading>reading cold_rewrite>rewrite cold_writing>writing
disk : disk>files direct kernel_queue kernel_writes memory_disk>memory read_ahead closing
disk : descriptors space health

@ pyspark_evenkeel
. : source options option_values offsets patterns plain worker errors
client : cluster connection nodes opening fetching listing producing patience sasl security
client : settings
read : reading>batch streaming planning pushdown columns layout
write : sink writing>task chunks encoding partitioning replay by_destination

@ cluster
. : chaos child control health launcher process prometheus recorder rolling spec state
. : status waiting workload
/cli : cli>main balance balance_view bench_cli>bench chosen>target clients>kafka_commands
/cli : completion data group_cli>group history_cli>history node_cli>node topic_cli>topic
/cli : usage_cli>usage
/cli/demo : demo demo_report>report demo_view>view

@ balancer
. : planning replica_planning replicas problem_json
planner : planner problem proof levels quotas seats>assignment topic_spread byte_spread
registry : registry registry_commands>commands registry_image>image document records
registry : catalogue fences policy packing replica_desk>replica_sets
registry : token_desk>steal_tokens roster>nodes load
stealing : steal judgement view

@ coordinator
. : coordinator model hashing limits states timers topics subscription
replicated : store commands codec assigned_codec image kept_waits waits assigned_group
replicated : assignor
live : tenure group membership rebalance offsets admin assigning live_assigned
live : stamps>wait_records tying>orphaned_offsets parked>pending

@ evenkeel
. : client connection config errors lifetime lookups coordinator sharing
producer : producer partition_queue partitioner
consumer : consumer fetcher fetched membership assignors autocommit listener
admin : admin admin_groups>groups descriptions
tasks : tasks/config tasks/events tasks/group tasks/ledger tasks/member tasks/notes
tasks : tasks/outbox tasks/roll>enrolment tasks/sharding tasks/slices tasks/topic

@ wire
. : addresses apis cluster_view error_codes errors framing hollow murmur
codec : schema compiler decoding encoding source>generated_source primitives
records : batch batch_writer compression lz4_frame record_check>validation
records : record_columns>columns record_spans>spans record_times>times transactions
records : write_tokens
messages : messages/api_versions messages/assigned_groups messages/common messages/configs
messages : messages/consumer_protocol messages/fetch messages/group_admin
messages : messages/leader_epochs messages/list_offsets messages/logs messages/membership
messages : messages/metadata messages/offsets messages/placement messages/produce
messages : messages/producer_ids messages/sasl messages/topics

@ pipeline
. : __main__ bus session
archive : archive/check archive/compact archive/logic archive/main archive/replay
archive : archive/replay_order archive/store archive/transform
audit : audit/audit audit/calm>healthy_periods audit/columns audit/drained audit/findings
audit : audit/generate audit/lines audit/main audit/names audit/order audit/progress
audit : audit/settled audit/source audit/told>log_metadata audit/values
placement : placement/admin placement/logic placement/main placement/outlook
placement : placement/publishing placement/reading placement/stream placement/transform
report : report/files report/gaps report/logic report/main report/plots report/reading
report : report/schema report/synthetic report/tables report/transform

@ tests/runtime
. : doubles engines links offices one_node test_a_week test_node test_shell test_seed_rows
system : test_aside_stream test_clock test_memory test_worker
config : test_config
network : test_channel test_dataplane test_listener
http : test_http test_http_guard test_http_places
membership : test_admission test_contact test_greeting test_keeping test_keeping_node
membership : test_known_groups test_lease_terms test_masters
membership : +golden/link-frames-2.3.hex +golden/link-frames-3.3.hex
membership : +golden/link-frames-4.3.hex +golden/link-frames-5.3.hex
disk : test_ailing_disk test_damage_worlds test_log_writer test_repair
disk : test_scarcity>test_disk_pressure test_scrubber test_serving
engine : test_engine test_engine_handover test_forwarded
upkeep : test_checkpointing test_compacting test_compaction_lag test_retention
upkeep : test_state_transfer
balancing : test_balancing test_handovers test_hosting test_load_meter
balancing : test_planning_under_faults
clients : test_clients test_clients_floods test_clients_order test_gate
peers : test_large_lane test_peers
metrics : test_metrics
admin : test_balancer_admin test_node_admin
console : console/test_book console/test_changes console/test_console console/test_hub
console : console/test_pages console/test_words

@ tests/broker
. : batches data_world fakes group_members hostile_list real_cold world test_traffic
handlers : test_alter_configs test_api test_elections test_fetch test_idle_configs
handlers : test_known_names test_leader_epochs test_list_offsets test_logs test_metadata
handlers : test_produce test_produce_usual test_producer_ids test_reassignments test_topics
requests : test_burdens test_cut_and_whole test_hostile test_lanes test_portions
requests : test_stretches
groups : test_consumer_groups test_coordinator_moves test_progress
reads : test_cold test_copying test_late_reads test_tail
producers : test_admissions test_batch_checks test_homes>test_producer_connections
proposals : test_gathering>test_group_commit
state_machine : test_image test_machine test_partition test_producers test_rows
state_machine : test_writers +golden/chunks-v1.txt +golden/chunks-v2.txt
state_machine : +golden/chunks-v3.txt +golden/chunks-v4.txt
lifecycle : test_compaction test_compaction_lag test_compaction_plan test_retention
lifecycle : test_usage
transfer : catchup/harness catchup/test_catchup catchup/test_codec
transfer : +catchup/golden/messages-v1.hex>golden/messages-v1.hex

@ tests/storage
. : crash_points kernel_io log_maker test_checkpoints test_identity test_inspection
. : test_witness
log : test_bad_blocks test_crashes test_mark test_mending test_recovery test_wal
cold : test_cold test_cold_ends test_cold_merge test_read_now +golden/cold-1.hex
disk : test_closing test_descriptors test_direct test_disk test_health test_kernel_writes
disk : test_read_ahead test_space

@ tests/cluster
. : browser conversation faulty_node scenery streaming_job tiny_node trimmed
. : test_catching_up test_compaction test_console test_control test_coordinator
. : test_kafka_admin test_launcher test_membership test_recorder test_replicas
. : test_retention test_rolling_refusals test_spec test_state test_status test_steals
. : test_storage_faults test_three_nodes test_two_nodes test_up test_waiting
/tests/cli : test_balance test_bench_cli test_cli test_completion test_data
/tests/cli : test_demo_parts test_node_cli test_usage_cli

@ tests/evenkeel
. : conftest peers shared_cluster test_addresses test_connection test_documents
. : test_lifetime test_old_brokers test_refusals test_sent_away test_tls
producer : test_partition_queue test_partitioner test_producer
consumer : test_assigned test_assignors test_autocommit test_consumer test_fetched
consumer : test_fetcher test_groups test_leading test_membership
admin : test_admin
/tests/cli : test_command_line
tasks : tasks/histories tasks/hurt_member tasks/members tasks/parts tasks/test_histories
tasks : tasks/test_ledger tasks/test_member tasks/test_on_cluster tasks/test_sharding
tasks : tasks/test_slices tasks/test_split_brain tasks/test_worlds tasks/world

@ tests/pyspark_evenkeel
. : conftest test_offsets test_options test_patterns test_plain
client : front scram_server small_broker test_bad_brokers test_client_faults test_cluster
client : test_connections test_producing test_secure test_security_options
read : reading_scenery test_columns test_planning test_reading test_streaming test_triggers
write : test_chunks test_encoding test_partitioning test_writing
"""

DOCS: Final = {
    "runtime": "The shell: everything of a node that touches the world.",
}
"""What each folder says of itself; see `folders.py`."""


class Move(NamedTuple):
    old: str
    """A path below the root, with its ending."""
    new: str


def _path(base: str, name: str) -> str:
    return str(PurePosixPath(base, name))


def moves() -> list[Move]:
    """All of the map, also what stays where it is."""
    found: list[Move] = []
    base = ""
    for line in filter(None, map(str.strip, PLAN.splitlines())):
        if line.startswith("@"):
            base = line[1:].strip()
            continue
        folder, _, names = line.partition(" : ")
        target = folder[1:] if folder.startswith("/") else _path(base, folder)
        for name in names.split():
            is_file = name.startswith("+")
            old, _, new = name.removeprefix("+").partition(">")
            new = new or (old if is_file else re.sub(".*/", "", old))
            ending = "" if is_file else ".py"
            found.append(Move(_path(base, old) + ending, _path(target, new) + ending))
    return found


def bases() -> list[str]:
    """Where the map knows every module."""
    return re.findall(r"^@ (\S+)$", PLAN, re.MULTILINE)
