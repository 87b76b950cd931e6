"""CPU and memory from /proc, of this process itself."""

import os
import subprocess
import sys

import pytest

from benchmarks.load import usage


def burn(seconds: float) -> None:
    until = usage.snapshot(()).client_s + seconds
    while usage.snapshot(()).client_s < until:
        sum(range(1000))


def test_cpu_time_of_a_process_is_what_it_used() -> None:
    begin = usage.snapshot([os.getpid()])
    burn(0.2)
    spent = usage.between(begin, usage.snapshot([os.getpid()]))
    assert 0.15 < spent.nodes_s[0] < 1
    assert 0.2 <= spent.client_s < 1
    assert spent.seconds >= 0.2
    assert 0 <= spent.others_share <= 1.1


def test_the_machine_is_at_least_as_busy_as_we_are() -> None:
    before = usage.machine_busy_s()
    burn(0.1)
    assert usage.machine_busy_s() - before >= 0.05


def test_resident_memory_grows_with_what_is_touched() -> None:
    """In a process that does nothing else: this one may free memory of other tests."""
    size = 32 * 1024 * 1024
    script = f"print(flush=True); input(); kept = b'x' * {size}; print(flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        before = usage.rss_bytes(child.pid)
        print(file=child.stdin, flush=True)
        child.stdout.readline()
        grown = usage.rss_bytes(child.pid) - before
        child.stdin.close()
    assert size * 0.9 < grown < size * 2


def test_a_process_that_has_ended_is_told_so() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with pytest.raises(usage.ProcessGone, match=str(ended.pid)):
        usage.rss_bytes(ended.pid)


def test_usage_survives_json() -> None:
    spent = usage.Usage(2.5, (0.5, 0.25), 1.0, 0.125)
    assert usage.from_json(usage.to_json(spent)) == spent
