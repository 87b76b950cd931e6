"""What `python -m benchmarks.studies.spark` counts and prints; it is run by hand
(`make bench-spark`)."""

import subprocess
import sys

from benchmarks.studies.spark import Cost, rate, table, tree_cpu_s, typical

BUSY_S = 0.2
PARENT = f"""
import subprocess, sys, time
busy = "import time; until = time.process_time() + {BUSY_S}\\nwhile time.process_time() < until: 0"
subprocess.run([sys.executable, "-c", busy])
child = subprocess.Popen([sys.executable, "-c", busy + "\\nprint(flush=True); input()"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print("ready", flush=True)
input()
child.communicate(b"\\n")
"""


def test_what_children_spent_counts_and_what_the_dead_had_spent() -> None:
    """Spark's workers come and go."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        own, children = tree_cpu_s(parent.pid)
        parent.communicate(b"\n")
    assert children >= 2 * BUSY_S - 0.05
    assert own < children


def test_rates_and_their_table() -> None:
    cost = typical([Cost(2.0, 1.0, 0.5), Cost(9.0, 9.0, 9.0), Cost(1.0, 0.0, 0.25)])
    assert cost == Cost(2.0, 1.0, 0.5)
    line = rate("Spark", 4_000_000, 100, cost)
    assert (line["rows/s"], line["MB/s"], line["CPU s/Mrow"]) == (2_000_000, 200.0, 0.38)
    printed = table([line, rate("plain", 10, 1000, cost)]).splitlines()
    assert len(printed) == 3
    assert len({len(row) for row in printed}) == 1
    assert "2,000,000" in printed[1]
