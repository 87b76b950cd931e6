"""Kafka's own command-line tools, through the classes that their scripts start."""

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import Final

from tests.compat.java.jvm import call, until
from tests.compat.language_rows import create, log_of, numbers, write
from tests.compat.languages import Ground, Program, Row

TOOLS: Final = "org.apache.kafka.tools"
TOPICS: Final = f"{TOOLS}.TopicCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"
GROUPS: Final = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
REASSIGN: Final = f"{TOOLS}.reassign.ReassignPartitionsCommand"
ELECT: Final = f"{TOOLS}.LeaderElectionCommand"
PERF: Final = f"{TOOLS}.ProducerPerformance"
VERIFIABLE: Final = f"{TOOLS}.VerifiableProducer"
OFFSETS: Final = f"{TOOLS}.GetOffsetShell"
DELETE_RECORDS: Final = f"{TOOLS}.DeleteRecordsCommand"
LOG_DIRS: Final = f"{TOOLS}.LogDirsCommand"


def server(ground: Ground) -> tuple[str, str]:
    return "--bootstrap-server", ground.bootstrap


def topics(program: Program, ground: Ground) -> None:
    ask = partial(call, program, ground, TOPICS, *server(ground))
    ask("--create", "--topic", ground.name, "--partitions", 2, "--config", "retention.ms=1000")
    until(lambda: "PartitionCount: 2" in ask("--describe", "--topic", ground.name), lambda: "2")
    described = ask("--describe", "--topic", ground.name)
    assert "retention.ms=1000" in described, described
    assert described.count("Leader: ") == 2, described
    ask("--alter", "--topic", ground.name, "--partitions", 4)
    until(lambda: "PartitionCount: 4" in ask("--describe", "--topic", ground.name), lambda: "4")
    ask("--create", "--topic", ground.name, "--if-not-exists")
    assert ground.name in ask("--list").split()
    ask("--delete", "--topic", ground.name)
    assert ground.name not in ask("--list").split()


def configs(program: Program, ground: Ground) -> None:
    create(ground)
    ask = partial(call, program, ground, CONFIGS, *server(ground))
    named = ("--entity-type", "topics", "--entity-name", ground.name)
    ask("--alter", *named, "--add-config", "retention.ms=5000,cleanup.policy=[compact,delete]")
    until(
        lambda: "retention.ms=5000" in ask("--describe", *named), lambda: ask("--describe", *named)
    )
    assert "cleanup.policy=compact,delete" in ask("--describe", *named)
    ask("--alter", *named, "--delete-config", "retention.ms")
    until(lambda: "retention.ms" not in ask("--describe", *named), lambda: "not deleted")
    assert "retention.ms=" in ask("--describe", "--all", *named)
    ask("--describe", "--entity-type", "brokers", "--entity-name", 1, "--all")
    ask("--describe", "--entity-type", "brokers")


def groups(program: Program, ground: Ground) -> None:
    create(ground)
    write(ground, 100)
    ask = partial(call, program, ground, GROUPS, *server(ground))
    named = ("--group", ground.name)
    reset = ("--reset-offsets", *named, "--topic", ground.name)
    ask(*reset, "--to-offset", 40, "--execute")
    assert ground.name in ask("--list").split()
    assert re.search(rf"{ground.name}\s+0\s+40\s+100\s+60", ask("--describe", *named))
    assert "Empty" in ask("--describe", *named, "--state")
    ask("--describe", *named, "--members")
    ask(*reset, "--shift-by", -10, "--execute")
    assert re.search(rf"{ground.name}\s+0\s+30\s+100\s+70", ask("--describe", *named))
    ask("--delete-offsets", *named, "--topic", ground.name)
    ask(*reset, "--to-latest", "--execute")
    ask("--delete", *named)
    assert ground.name not in ask("--list").split()


def reassign(program: Program, ground: Ground) -> None:
    create(ground)
    moved = {"topic": ground.name, "partition": 0, "replicas": [3, 1, 2]}
    plan = ground.scratch / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    named = ground.scratch / "topics.json"
    named.write_text(json.dumps({"version": 1, "topics": [{"topic": ground.name}]}))
    ask = partial(call, program, ground, REASSIGN, *server(ground))
    ask("--generate", "--topics-to-move-json-file", named, "--broker-list", "1,2,3")
    with_plan = ("--reassignment-json-file", plan)
    ask("--execute", *with_plan)
    until(
        lambda: "is completed" in ask("--verify", *with_plan), lambda: ask("--verify", *with_plan)
    )
    ask("--list")
    ask("--cancel", *with_plan)


def elect(program: Program, ground: Ground) -> None:
    create(ground)
    named = ("--topic", ground.name, "--partition", 0)
    call(program, ground, ELECT, *server(ground), "--election-type", "preferred", *named)


def perf(program: Program, ground: Ground) -> None:
    create(ground)
    count = ("--num-records", 2_000, "--record-size", 100, "--throughput", 1_000)
    to = ("--producer-props", f"bootstrap.servers={ground.bootstrap}")
    said = call(program, ground, PERF, "--topic", ground.name, *count, *to)
    assert "2000 records sent" in said, said
    assert len(log_of(ground.bootstrap, ground.name)) == 2_000


def verifiable(program: Program, ground: Ground) -> None:
    create(ground)
    count = ("--max-messages", 500, "--throughput", 1_000)
    said = call(program, ground, VERIFIABLE, *server(ground), "--topic", ground.name, *count)
    assert said.count('"producer_send_success"') == 500, said[-500:]
    found = [value for _, value in log_of(ground.bootstrap, ground.name)]
    assert found == [str(int(value)) for value in numbers(500)]


def offsets(program: Program, ground: Ground) -> None:
    create(ground)
    write(ground, 10, start_ms=1_700_000_000_000)
    named = ("--topic", ground.name, "--time")
    expected = {"-1": 10, "-2": 0, "-3": 9, "-4": 0, "1700000004500": 5}
    for time, offset in expected.items():
        said = call(program, ground, OFFSETS, *server(ground), *named, time)
        assert f"{ground.name}:0:{offset}" in said.split(), (time, said)


def delete_records(program: Program, ground: Ground) -> None:
    create(ground)
    write(ground, 10)
    file = ground.scratch / "offsets.json"
    row = {"topic": ground.name, "partition": 0, "offset": 4}
    file.write_text(json.dumps({"version": 1, "partitions": [row]}))
    said = call(program, ground, DELETE_RECORDS, *server(ground), "--offset-json-file", file)
    assert "low_watermark: 4" in said, said
    assert [offset for offset, _ in log_of(ground.bootstrap, ground.name)] == list(range(4, 10))


def log_dirs(program: Program, ground: Ground) -> None:
    create(ground)
    said = call(
        program, ground, LOG_DIRS, *server(ground), "--describe", "--topic-list", ground.name
    )
    told = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    assert {one["broker"] for one in told["brokers"]} == {1, 2, 3}, told


ROWS: Final[Mapping[str, Row]] = {
    "kafka-topics": topics,
    "kafka-configs": configs,
    "kafka-consumer-groups": groups,
    "kafka-reassign-partitions": reassign,
    "kafka-leader-election": elect,
    "kafka-producer-perf-test": perf,
    "kafka-verifiable-producer": verifiable,
    "kafka-get-offsets": offsets,
    "kafka-delete-records": delete_records,
    "kafka-log-dirs": log_dirs,
}
