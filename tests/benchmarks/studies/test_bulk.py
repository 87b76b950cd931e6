"""The benchmark of one node's bulk work does all of the work, or it would measure nothing."""

from pathlib import Path

from benchmarks.studies.bulk import PARTITIONS, Node, main, measure


def test_all_that_is_written_is_settled_and_read(tmp_path: Path) -> None:
    """`read` itself asserts that it has reached the end of every partition."""
    node = Node(tmp_path, 20_000, 1_000_000)
    node.append()
    assert all(one.next_offset for one in node.partitions)
    node.read()
    node.settle()
    assert not any(len(one.index) for one in node.partitions), "nothing is left in the log"
    assert node.cold.held().keys() == set(range(1, PARTITIONS + 1))
    node.forget_cache()
    node.read()


def test_every_step_has_its_cost(tmp_path: Path) -> None:
    costs = measure(tmp_path, 300_000, 4_000_000)
    assert list(costs) == ["log written", "log read", "settled", "cold read"]
    assert all(one.cpu > 0 and one.wall > 0 for one in costs.values())


def test_a_result_is_kept(tmp_path: Path) -> None:
    kept = tmp_path / "result.json"
    arguments = ["--megabytes", "1", "--rounds", "1", "--directory", str(tmp_path)]
    assert main([*arguments, "--json", str(kept)]) == 0
    assert '"cold read"' in kept.read_text(encoding="utf-8")
