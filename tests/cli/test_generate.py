"""`evenkeel generate`: what it writes is what systemd, containers and nodes can use."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import node
from cli import generate
from cli.main import run
from runtime.balancing.draining import DRAIN_S
from runtime.config.config import load
from wire.software import VERSION

COMMAND = Path("/opt/evenkeel/bin/evenkeel")


def lines_of(text: str, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)


def test_a_unit_starts_one_node(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate", "systemd", "--command", str(COMMAND)]) == 0
    unit = capsys.readouterr().out
    assert unit == generate.unit(COMMAND, "evenkeel", template=False)
    (start,) = lines_of(unit, "ExecStart")
    assert start == f"{COMMAND} node start --config /etc/evenkeel/node.toml"
    assert "%" not in unit


def test_a_template_is_for_several_nodes_on_a_machine() -> None:
    unit = generate.unit(COMMAND, "bus", template=True)
    (start,) = lines_of(unit, "ExecStart")
    assert start == f"{COMMAND} node start --config /etc/evenkeel/node-%i.toml"
    assert lines_of(unit, "User") == ["bus"]
    assert lines_of(unit, "SyslogIdentifier") == ["evenkeel-%i"]


def test_what_needs_a_person_is_not_started_again() -> None:
    """Restarts change nothing about these endings, and hide them."""
    (never,) = lines_of(generate.unit(COMMAND, "bus", template=False), "RestartPreventExitStatus")
    endings = {node.EXIT_CONFIG, node.EXIT_REFUSED, node.EXIT_IO}
    assert set(map(int, never.split())) == endings


def test_a_node_has_time_to_give_its_masters_away() -> None:
    (stop,) = lines_of(generate.unit(COMMAND, "bus", template=False), "TimeoutStopSec")
    assert int(stop) > 2 * DRAIN_S


@pytest.mark.parametrize("user", ["", "a b", "x\nExecStart=/bin/sh", "-x", "%i"])
def test_a_user_that_is_none_is_refused(user: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate", "systemd", f"--user={user}"]) == 1
    assert "no name of a user" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/opt/evenkeel", "/opt/evenkeel"),
        ("/opt/my bus/evenkeel", '"/opt/my bus/evenkeel"'),
        ("/opt/100%/$x", "/opt/100%%/$$x"),
        ('/opt/"a"\\b', '"/opt/\\"a\\"\\\\b"'),
    ],
)
def test_a_path_is_one_word_to_systemd(path: str, word: str) -> None:
    assert generate.escaped(path) == word


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("template", [False, True])
def test_systemd_accepts_the_units(tmp_path: Path, template: bool) -> None:
    command = tmp_path / "my bus" / "evenkeel"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    unit = tmp_path / ("evenkeel@1.service" if template else "evenkeel.service")
    unit.write_text(generate.unit(command, "root", template=template))
    words = ["systemd-analyze", "verify", "--man=no", str(unit)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert unit.name not in ran.stderr


# --- containers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [1, 3, 5])
def test_every_node_of_the_containers_gets_a_configuration_it_accepts(
    tmp_path: Path, nodes: int, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "bus"
    assert run(["generate", "compose", "--to", str(folder), "-n", str(nodes)]) == 0
    configs = [load(folder / f"node-{at}.toml", {}) for at in range(1, nodes + 1)]
    advertised = ",".join(str(config.listen.told_to_clients) for config in configs)
    assert f"bootstrap servers: {advertised}\n" in capsys.readouterr().out
    assert {config.founders for config in configs} == {tuple(range(1, nodes + 1))}
    compose = (folder / "compose.yaml").read_text()
    for at, config in enumerate(configs, 1):
        assert config.node.id == at
        assert config.peers == configs[0].peers
        host = config.peers[config.node.id].host
        assert f"\n  {host}:\n" in compose  # a container finds another one by its service's name
        port = config.listen.kafka.port
        assert port == config.listen.told_to_clients.port
        assert f'"127.0.0.1:{port}:{port}"' in compose
        assert str(config.node.data_dir).startswith(generate.STATE)
        assert f"- {host}:{generate.STATE}\n" in compose


def test_clients_elsewhere_get_the_machines_address(tmp_path: Path) -> None:
    words = ["generate", "compose", "--to", str(tmp_path / "bus"), "--host", "bus.example.com"]
    assert run(words) == 0
    config = load(tmp_path / "bus" / "node-2.toml", {})
    assert str(config.listen.told_to_clients) == "bus.example.com:9093"
    assert '- "9093:9093"' in (tmp_path / "bus" / "compose.yaml").read_text()


def test_the_container_installs_this_versions_wheel_and_starts_a_node(tmp_path: Path) -> None:
    assert run(["generate", "compose", "--to", str(tmp_path / "bus")]) == 0
    text = (tmp_path / "bus" / "Containerfile").read_text()
    assert f"COPY evenkeel-{VERSION}-py3-none-any.whl /tmp/\n" in text
    assert 'CMD ["node", "start", "--config", "/etc/evenkeel/node.toml"]' in text
    assert ":/etc/evenkeel/node.toml:ro" in (tmp_path / "bus" / "compose.yaml").read_text()


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "node-2.toml").write_text("mine")
    assert run(["generate", "compose", "--to", str(tmp_path)]) == 1
    assert "node-2.toml" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["node-2.toml"]


@pytest.mark.parametrize("words", [["-n", "0"], ["-n", "33"], ["--host", "a b"], ["--host", ""]])
def test_what_cannot_be_is_refused(tmp_path: Path, words: list[str]) -> None:
    assert run(["generate", "compose", "--to", str(tmp_path / "bus"), *words]) == 1
    assert not (tmp_path / "bus").exists()


# --- one node in the foreground ------------------------------------------------------------------


def test_node_start_ends_as_the_node_does(tmp_path: Path) -> None:
    """It becomes the node: a supervisor sees the node's own exit code."""
    (tmp_path / "node.toml").write_text("[node]\nid = 1\n")
    command = [sys.executable, "-m", "cli.main", "node", "start"]
    command += shlex.split(f"--config {tmp_path / 'node.toml'} --set log.level=debug")
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == node.EXIT_CONFIG
    assert "node.cluster_id" in ran.stderr
