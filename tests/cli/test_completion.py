"""`evenkeel completion`: the scripts, run by the shells themselves."""

import os
import pty
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from cli import main as cli

STEP_S = 30.0
ASK_BASH = """
source {script}
COMP_WORDS=({words})
COMP_CWORD={last}
$(complete -p evenkeel | sed 's/.*-F \\([^ ]*\\).*/\\1/') evenkeel
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def script(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Path:
    """The output of `evenkeel completion SHELL`, in a file."""
    assert cli.run(["completion", request.param]) == 0
    path = tmp_path / f"completion.{request.param}"
    path.write_text(capsys.readouterr().out)
    return path


def offered_by_bash(script: Path, line: str, cwd: Path) -> set[str]:
    """What bash's own function for the command offers at the end of the line."""
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    asked = ASK_BASH.format(script=script, words=quoted, last=len(words) - 1)
    command = ["bash", "--norc", "-c", asked]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=cwd)
    return {one for one in done.stdout.splitlines() if one}


@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash_offers_what_the_parser_knows(script: Path, tmp_path: Path) -> None:
    (tmp_path / "a-directory").mkdir()
    (tmp_path / "a-file").touch()

    def offered(line: str) -> set[str]:
        return offered_by_bash(script, line, tmp_path)

    assert {"up", "topic", "group", "balance", "completion"} <= offered("evenkeel ")
    assert offered("evenkeel rol") == {"rolling-restart"}
    assert offered("evenkeel topic ") >= {"create", "list", "produce", "consume"}
    assert offered("evenkeel group d") == {"describe", "delete"}
    assert offered("evenkeel group seek billing --d") == {"--data", "--dry-run"}
    assert "--dry-run" not in offered("evenkeel group list --")
    assert offered("evenkeel topic produce orders --compression z") == {"zstd"}
    assert offered("evenkeel bench --pe") == {"--peer"}
    assert "failover" in offered("evenkeel bench --only ")
    assert offered("evenkeel completion ") == {"bash", "zsh", "fish"}
    assert offered("evenkeel status --data a-") == {"a-directory"}
    assert offered("evenkeel history check a-f") == {"a-file"}


def typed_into_bash(script: Path, keys: bytes, wanted: bytes) -> bytes:
    """What a terminal shows after these keys; one of them is the tabulator."""
    terminal, theirs = pty.openpty()
    env = {"PATH": os.environ["PATH"], "TERM": "dumb"}
    command = ["bash", "--norc", "--noprofile", "-i"]
    shown, sent = b"", False
    bash = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True
    )
    try:
        os.write(terminal, f"source {script}; echo sour''ced\n".encode())
        deadline = time.monotonic() + STEP_S
        while wanted not in shown and time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.1)[0]:
                shown += os.read(terminal, 4096)
            if not sent and b"sourced" in shown:
                sent = bool(os.write(terminal, keys))
        return shown
    finally:
        bash.kill()
        bash.wait()
        os.close(terminal)
        os.close(theirs)


@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash_completes_at_the_press_of_a_key(script: Path) -> None:
    """In a terminal of its own, by readline: the words are completed."""
    shown = typed_into_bash(script, b"evenkeel top\tcre\torders --part\t", b"--partitions ")
    assert b"evenkeel topic create orders --partitions " in shown


@pytest.mark.parametrize("script", ["zsh", "fish"], indirect=True)
def test_other_shells_can_read_theirs(script: Path) -> None:
    """The shell checks it where it is installed; otherwise the test checks that it contains all the
    commands."""
    text = script.read_text()
    for word in ("rolling-restart", "seek", "dry-run", "compression"):
        assert word in text
    shell = script.suffix[1:]
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: it was not asked")
    done = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
