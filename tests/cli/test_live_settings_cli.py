"""`evenkeel config live` against real nodes, and what a Kafka tool makes of the same settings."""

import json
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from cli import main as cli
from tests.evenkeel.shared_cluster import STEP_S, SharedCluster

pytestmark = pytest.mark.cluster


@pytest.fixture
def where(cluster: SharedCluster) -> list[str]:
    return ["--bootstrap", cluster.bootstrap, "--timeout", "30"]


def run(capsys: pytest.CaptureFixture[str], words: list[str], code: int = 0) -> Any:
    got = cli.run(words)
    printed = capsys.readouterr()
    assert got == code, printed.err
    return json.loads(printed.out) if code == 0 and "--json" in words else printed.err


def test_settings_are_changed_on_one_node_and_taken_back(
    cluster: SharedCluster, where: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    live = ["config", "live", *where, "--json"]
    before = run(capsys, live)["nodes"]
    assert set(before) == {"1", "2", "3"}
    assert before["2"]["log.level"] == "info"
    assert len(before["2"]) == 10

    told = run(capsys, [*live, "log.level=debug", "--node", "2"])
    assert told["changed"]
    assert told["nodes"]["2"]["log.level"] == "debug"
    now = run(capsys, live)["nodes"]
    assert (now["1"]["log.level"], now["2"]["log.level"]) == ("info", "debug")
    assert '"setting changed"' in (cluster.data / "node-2.log").read_text()

    told = run(capsys, [*live, "balancer.mute_ms=777", "--dry-run"])
    assert not told["changed"]
    assert run(capsys, live)["nodes"]["3"]["balancer.mute_ms"] != "777"
    run(capsys, [*live, "--reset", "log.level", "--node", "2"])
    assert run(capsys, live)["nodes"] == before

    said = run(capsys, [*live[:-1], "limits.idle_connection_s=0"], code=1)
    assert "expected 1 to" in said
    said = run(capsys, [*live[:-1], "groups.count=9", "--node", "1"], code=1)
    assert "restart the node" in said
    assert "there is no node 9" in run(capsys, [*live[:-1], "--node", "9"], code=1)


def test_a_kafka_client_changes_them(cluster: SharedCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def value() -> str:
        resource = ConfigResource(ResourceType.BROKER, "3")
        found = admin.describe_configs([resource])[resource].result(STEP_S)
        assert found["node.id"].is_read_only
        assert not found["log.level"].is_read_only
        return str(found["log.level"].value)

    def alter(operation: AlterConfigOpType, text: str | None) -> None:
        entry = ConfigEntry("log.level", text, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, "3", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(STEP_S)

    alter(AlterConfigOpType.SET, "warning")
    assert value() == "warning"
    alter(AlterConfigOpType.DELETE, None)
    assert value() == "info"
