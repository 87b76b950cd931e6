"""`evenkeel acl`, as typed, against one real node where everybody is a super user."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli import main as cli
from tests.cluster.security.test_access_rules import ME, settings
from tests.runtime.test_node import Place, running, started

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    tmp_path = tmp_path_factory.mktemp("acl")
    place = Place(tmp_path)
    with running(place, *settings(ME, tmp_path / "audit.log")) as process:
        started(process)
        yield f"127.0.0.1:{place.ports}"


class Typed:
    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._where = ["--bootstrap", bootstrap]
        self._capsys = capsys

    def __call__(self, line: str, code: int = 0) -> str:
        assert cli.run(["acl", *line.split(), *self._where]) == code
        said = self._capsys.readouterr()
        return said.out + said.err


@pytest.fixture
def typed(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Iterator[Typed]:
    one = Typed(bootstrap, capsys)
    yield one
    one("delete --all")


def test_rules_are_added_listed_checked_and_deleted(typed: Typed) -> None:
    assert typed("list") == "no rules\n"
    typed("add --allow alice --operation read --operation describe-configs --topic app- --prefixed")
    typed("add --deny alice --operation Read --topic app-secret")
    rows = [line.split() for line in typed("list --topic app-x --matching").splitlines()[1:]]
    assert ["allow", "User:alice", "Read", "Topic", "app-", "...", "*"] in rows
    assert len(rows) == 2
    yes = typed("check alice --operation describe --topic app-1")
    assert yes == "yes: Describe: allow User:alice Read on prefixed Topic app-\n"
    no = typed("check alice --operation read --topic app-secret", code=1)
    assert no == "no: Read: deny User:alice Read on Topic app-secret\n"
    assert typed("check bob --operation read --topic t", code=1) == "no: Read: no rule allows it\n"
    assert "1 rules would be deleted" in typed("delete --topic app-secret --dry-run")
    assert "1 rules were deleted" in typed("delete --topic app-secret")
    assert typed("check alice --operation read --topic app-secret").startswith("yes")


def test_programs_get_json(typed: Typed) -> None:
    typed("add --allow User:a --operation all --cluster --json")
    (rule,) = json.loads(typed("list --json"))
    assert rule == {
        "allow": True,
        "principal": "User:a",
        "operation": "All",
        "resource_type": "Cluster",
        "name": "kafka-cluster",
        "prefixed": False,
        "host": "*",
    }
    (said,) = json.loads(typed("check a --operation alter --cluster --json"))
    assert said["allowed"] is True
    assert said["rule"] == "allow User:a All on Cluster kafka-cluster"


def test_a_rule_of_one_host_is_for_that_host(typed: Typed) -> None:
    typed("add --allow a --operation write --topic t --host 192.0.2.1")
    assert typed("check a --operation write --topic t", code=1).startswith("no")
    said = typed("check a --operation write --topic t --host 192.0.2.1")
    assert said == "yes: Write: allow User:a Write on Topic t from 192.0.2.1\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("add --allow a --operation cluster-action --topic t", "nobody can ClusterAction a Topic"),
        ("add --allow a --operation read --topic t --host example.org", "is not an IP address"),
        ("delete", "this would delete every rule"),
        ("list --matching", "--matching needs a resource"),
    ],
)
def test_nonsense_is_refused_in_words(typed: Typed, line: str, said: str) -> None:
    assert said in typed(line, code=1)


def test_an_unknown_operation_names_the_known_ones(
    typed: Typed, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        typed("add --allow a --operation fly --topic t")
    assert "known are All, Read, Write" in capsys.readouterr().err


def test_a_cluster_without_an_authorizer_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place: Any = Place(tmp_path)
    with running(place) as process:
        started(process)
        said = Typed(f"127.0.0.1:{place.ports}", capsys)("list --timeout 5", code=1)
    assert "No Authorizer is configured" in said
