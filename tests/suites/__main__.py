"""make suites SUITES=DIR: the tests of the clients themselves, against three real nodes.

    python -m tests.suites DIR                      each checkout in DIR that is known by its name
    python -m tests.suites DIR --suite franz-go --test "Group|Txn"

DIR holds checkouts: `librdkafka`, `franz-go`, `aiokafka`. Nothing is fetched. Every test is to
pass but the exceptions in this folder's NAME.toml, each of which has its reason. Exits with 1 if
a test ended otherwise than expected: also if one passes that is expected to fail.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import trio

from tests.compat.__main__ import nodes
from tests.suites import aiokafka, expected, franz_go, librdkafka
from tests.suites.expected import Outcome, Suite, Unfit

SUITES: Final[Mapping[str, Suite]] = {
    "librdkafka": librdkafka.Librdkafka(),
    "franz-go": franz_go.FranzGo(),
    "aiokafka": aiokafka.Aiokafka(),
}
SETTINGS: Final = [
    "broker.auto_create_topics=true",  # these tests use topics that nobody has created
]


def run(suite: Suite, checkout: Path, bootstrap: str, wanted: str) -> dict[str, Outcome]:
    outcomes: dict[str, Outcome] = {}
    for test in suite.build(checkout):
        if re.search(wanted, test):
            found = suite.run(checkout, bootstrap, test)
            for name, one in found.items():
                said = "" if one.verdict == "pass" else one.said[:400]
                print(f"{name:50} {one.verdict:6} {one.seconds:6.1f} s {said}", flush=True)
            outcomes |= found
    return outcomes


async def main(options: argparse.Namespace) -> int:
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.suite or SUITES:
            checkout = (options.folder / name).resolve()
            if not checkout.is_dir():
                print(f"{name}: skipped, there is no {checkout}")
                continue
            async with nodes(Path(scratch) / name, 3, SETTINGS) as cluster:
                try:
                    outcomes = await trio.to_thread.run_sync(
                        run, SUITES[name], checkout, cluster.spec.bootstrap, options.test
                    )
                except Unfit as unfit:
                    print(f"{name}: skipped, {unfit}")
                    continue
            differences = expected.read(name).differences(outcomes)
            passed = sum(one.verdict == "pass" for one in outcomes.values())
            print(f"{name}: {passed} of {len(outcomes)} pass, {len(differences)} not as expected")
            print("".join(f"  {difference}\n" for difference in differences), end="")
            wrong += len(differences)
    return 1 if wrong else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make suites",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="where the checkouts are")
    parser.add_argument("--suite", action="append", choices=SUITES)
    parser.add_argument("--test", default="", help="a regular expression")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(trio.run(main, arguments()))
