"""docs/security.md has the table of the code. `python -m tests.broker.security.test_table_document`
prints it."""

import re
from pathlib import Path

from broker.security.table import PLAIN, ROWS, Need, Row
from wire.acls import ResourceType, titled
from wire.apis import APIS

PAGE = Path(__file__).parents[3] / "docs" / "security.md"


def words(need: Need) -> str:
    said = f"{titled(need.operation)} {titled(need.resource)}"
    if need.each and need.item != PLAIN and not need.when:
        return f"{said} (each)"
    if need.item == PLAIN and not need.when:
        return f"{said} (each)"
    return f"{said} ({need.when})" if need.when else said


def line(key: int, row: Row) -> str:
    needs = "; ".join(map(words, row.needs)) or "nothing"
    return f"| {key} | {APIS[key].name} | {needs} |"


def lines() -> list[str]:
    return [line(int(key), ROWS[key]) for key in sorted(ROWS)]


def test_the_table_in_the_documentation_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| \d+ \| [A-Z].*\|$", PAGE.read_text(), re.MULTILINE)
    assert rows == lines()


def test_every_type_of_resource_with_rules_is_asked_for_somewhere() -> None:
    asked = {need.resource for row in ROWS.values() for need in row.needs}
    assert asked == set(ResourceType) - {
        ResourceType.UNKNOWN,
        ResourceType.ANY,
        ResourceType.DELEGATION_TOKEN,
        ResourceType.USER,
    }


if __name__ == "__main__":
    print("\n".join(lines()))  # noqa: T201
