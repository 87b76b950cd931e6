"""Expectations of public test suites: what they allow, and what they refuse to be."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.suites import aiokafka, expected, librdkafka
from tests.suites.__main__ import SUITES
from tests.suites.expected import Outcome

KNOWN = """
version = "1"
[[exception]]
tests = "Txn.*"
verdict = "fail"
reason = "There are no transactions."
[[exception]]
tests = "Slow"
verdict = "fail"
sometimes = true
reason = "It waits less than an election takes."
"""


def outcomes(**verdicts: str) -> dict[str, Outcome]:
    return {name: Outcome(verdict, 1.0) for name, verdict in verdicts.items()}  # type: ignore[arg-type]


def test_all_are_to_pass_but_the_exceptions() -> None:
    expectations = expected.parse(KNOWN)
    assert not expectations.differences(outcomes(TxnA="fail", Slow="fail", Plain="pass"))
    assert not expectations.differences(outcomes(Slow="pass"))
    assert expectations.differences(outcomes(Plain="fail")) == ["Plain: fail, expected pass"]


def test_an_exception_that_passes_is_a_difference() -> None:
    """Else the list of exceptions would only ever grow."""
    told = expected.parse(KNOWN).differences(outcomes(TxnA="pass", MyTxn="fail", Slow="skip"))
    assert told == [
        "TxnA: pass, expected fail",
        "MyTxn: fail, expected pass",
        "Slow: skip, expected fail or pass",
    ]


@pytest.mark.parametrize(
    ("line", "replacement"),
    [
        ('reason = "There are no transactions."', ""),
        ('reason = "There are no transactions."', 'reason = "flaky"'),
        ('verdict = "fail"', 'verdict = "pass"'),
        ("sometimes = true", "often = true"),
    ],
)
def test_an_exception_without_a_reason_is_refused(line: str, replacement: str) -> None:
    with pytest.raises(ValueError, match=r"reason|verdict|unknown"):
        expected.parse(KNOWN.replace(line, replacement))


@pytest.mark.parametrize("name", SUITES)
def test_what_is_expected_can_be_read(name: str) -> None:
    assert expected.read(name).version


def test_librdkafkas_tests_are_those_that_need_a_broker() -> None:
    source = """
    static _TEST_DECL(0000_unittests);
    struct test tests[] = {
        _TEST(0000_unittests, TEST_F_LOCAL, _THRES(.ucpu = 100.0)),
        _TEST(0001_multiobj, 0),
        _TEST(0044_partition_cnt,
              0,
              TEST_BRKVER(1, 0, 0, 0)),
        _TEST(0066_plugins,
              TEST_F_LOCAL | TEST_F_KNOWN_ISSUE_WIN32),
        _TEST(0047_partial_buf_tmout, TEST_F_KNOWN_ISSUE),
        _TEST(0055_producer_latency, TEST_F_KNOWN_ISSUE_WIN32),
    """
    found = librdkafka.tests_of(source)
    assert found == ["0001_multiobj", "0044_partition_cnt", "0055_producer_latency"]


def test_a_process_that_dies_has_failed(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert librdkafka.verdict_of(report, "0001_multiobj") == "fail"
    report.write_text('{"tests": {"0001_multiobj": {"state": "PASSED"}}}')
    assert librdkafka.verdict_of(report, "0001_multiobj") == "pass"


CONFTEST = """
import docker as libdocker
import pytest

def pytest_addoption(parser):
    parser.addoption("--docker-image")
    parser.addoption("--no-pull", action="store_true")

@pytest.fixture(scope="session")
def docker(request):
    return libdocker.from_env()

@pytest.fixture(scope="session")
def kafka_server(request, docker):
    raise AssertionError("a container was asked for")

@pytest.fixture(scope="class")
def acl_manager(kafka_server):
    raise AssertionError("a container was asked for")

@pytest.fixture(autouse=True)
def clean_acl(acl_manager):
    yield
    acl_manager.cleanup()

@pytest.fixture(scope="class")
def setup_test_class(request, kafka_server, acl_manager):
    request.cls.hosts = [f"{kafka_server[0]}:{kafka_server[1]}"]
    request.cls.acl_manager = acl_manager
"""
TESTS = """
import pytest

@pytest.mark.usefixtures("setup_test_class")
class TestIt:
    def test_hosts(self):
        assert self.hosts == ["127.0.0.1:9092"]
    def test_acls(self):
        self.acl_manager.add_acl("x")
    def test_wrong(self):
        assert not self.hosts

def test_plain():
    pass
"""


def test_aiokafkas_tests_get_our_nodes_for_a_container(tmp_path: Path) -> None:
    """An imitation of its conftest: the real one is in no package."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").touch()
    (tmp_path / "tests" / "conftest.py").write_text(CONFTEST)
    (tmp_path / "tests" / "test_it.py").write_text(TESTS)
    told = aiokafka.Aiokafka().run(tmp_path, "127.0.0.1:9092,127.0.0.1:9093", "tests/test_it.py")
    assert {name: one.verdict for name, one in told.items()} == {
        "tests/test_it.py::TestIt::test_hosts": "pass",
        "tests/test_it.py::TestIt::test_acls": "skip",
        "tests/test_it.py::TestIt::test_wrong": "fail",
        "tests/test_it.py::test_plain": "pass",
    }


def test_a_folder_without_checkouts_is_told_in_words(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.suites", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^(\S+): skipped", done.stdout, re.MULTILINE) == list(SUITES)
