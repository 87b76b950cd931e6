"""The same requests to a real Apache Kafka broker and to Evenkeel; what differs is listed.

    python -m tests.compat.side_by_side                 all stories; docs/kafka.md is written anew
    python -m tests.compat.side_by_side --story groups  those whose name has this in it
    python -m tests.compat.side_by_side --all           also the differences that are explained

Needs Java and Maven (tests/compat/java/pom.xml). Exits with 1 if a difference has no reason in
differences.toml, or a reason has no difference.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import trio

from cluster.launcher import launch
from cluster.spec import plan
from tests.compat.languages import Missing
from tests.compat.side_by_side import absences, administration, frames, groups, page, records
from tests.compat.side_by_side.comparison import Difference, compare, reasons, unexplained
from tests.compat.side_by_side.kafka_broker import broker
from tests.compat.side_by_side.peer import Peer, advertised, common
from wire.apis import APIS

START_S_MAX: Final = 120.0
STORIES: Final = {
    f"{module.__name__.rpartition('.')[2]}, {story.__name__.replace('_', ' ')}": story
    for module in (frames, records, groups, administration, absences)
    for story in module.STORIES
}


def both(kafka: Peer, evenkeel: Peer, stories: Sequence[str]) -> list[Difference]:
    theirs, ours = advertised(kafka), advertised(evenkeel)
    kafka.common = evenkeel.common = common(theirs, ours)
    for peer in (kafka, evenkeel):
        peer.warm()
    for name in stories:
        for peer in (kafka, evenkeel):
            _tell(peer, name)
        print(f"{name}: {len(kafka.answers)} answers so far", file=sys.stderr, flush=True)
    found = [*_advertised(theirs, ours), *compare(kafka.answers, evenkeel.answers)]
    return found if list(stories) != list(STORIES) else [*found, *_never_asked(kafka)]


def _never_asked(peer: Peer) -> list[Difference]:
    """Whoever serves one more API writes a story for it."""
    asked = {one.where.partition(": ")[2].partition(",")[0] for one in peer.answers}
    return [
        Difference("no story asks", APIS[key].name, "", "")  # type: ignore[index]
        for key in peer.common
        if APIS[key].name not in asked  # type: ignore[index]
    ]


def _tell(peer: Peer, name: str) -> None:
    peer.begin(name)
    try:
        STORIES[name](peer)
    except Exception as error:
        raise RuntimeError(f"{peer.name} in {name}, after {peer.answers[-1:]}") from error
    finally:
        peer.close()


def _advertised(kafka: Mapping[int, range], evenkeel: Mapping[int, range]) -> list[Difference]:
    def show(one: range | None) -> str:
        return f"{one.start}-{one.stop - 1}" if one else "absent"

    return [
        Difference("ApiVersions", f"key {key}", show(kafka.get(key)), show(evenkeel.get(key)))
        for key in sorted({*kafka, *evenkeel})
        if kafka.get(key) != evenkeel.get(key)
    ]


async def main(options: argparse.Namespace) -> int:
    stories = [name for name in STORIES if options.story in name]
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        spec, _ = plan(directory / "evenkeel", node_count=1, groups=3, fixed_ports=False)
        async with launch(spec, overrides=["broker.retention_ms=-1"]) as cluster:
            await cluster.start_all(START_S_MAX)
            address = spec.nodes[0].kafka
            ours = Peer("evenkeel", address.host, address.port)
            try:
                found = await trio.to_thread.run_sync(_beside_kafka, directory, ours, stories)
            except Missing as missing:
                print(f"skipped: {missing}")
                return 0
    return report(found, whole=not options.story, everything=options.all)


def _beside_kafka(directory: Path, ours: Peer, stories: Sequence[str]) -> list[Difference]:
    with broker(directory / "kafka") as kafka:
        return both(kafka, ours, stories)


def report(found: Sequence[Difference], *, whole: bool, everything: bool) -> int:
    table = reasons()
    rest, idle = unexplained(found, table)
    for one in found if everything else rest:
        print(one)
    print(f"{len(found)} differences, {len(rest)} of them without a reason")
    if not whole:
        return 1 if rest else 0
    for reason in idle:
        print(f"no difference any more: {reason.where} {reason.field}: {reason.why}")
    page.write(table)
    return 1 if rest or idle else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--story", default="", help="only stories with this in their name")
    parser.add_argument("--all", action="store_true", help="explained differences too")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(trio.run(main, arguments()))
