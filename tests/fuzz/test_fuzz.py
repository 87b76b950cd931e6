"""The short run: every target with some thousand inputs, and every former finding once more.

`make fuzz MINUTES=10` runs longer; docs/fuzzing.md explains how.
"""

import hashlib
import itertools
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import ClassVar

import pytest

from tests.cluster.scenery import FULL
from tests.fuzz import corpus, engine
from tests.fuzz.__main__ import main, shrunk
from tests.fuzz.engine import Campaign, Finding, Target, execute
from tests.fuzz.kafka import lay_out_request, lay_out_response, random_message, versions_of
from tests.fuzz.log_targets import SCENES, Log, scene
from tests.fuzz.mutate import Sample, uvarint
from tests.fuzz.peer_targets import PaxosFrames
from tests.fuzz.targets import all_targets, target_named
from tests.fuzz.wire_targets import Requests
from tests.wire.messages_of import body, name_of
from wire.apis import APIS, Api, ApiKey, RequestHeader, encode_request, encode_response
from wire.codec import primitives

TARGETS = all_targets()
SLOW = ("broker", "http-admin", "http-login", "config-environment", "write-ahead-log")
SHORT_RUN = 1_000 if FULL else 400
"""Mutants of each target; slow ones get a quarter."""


def name_of_target(target: Target) -> str:
    return target.name


# -- the run itself -------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS, ids=name_of_target)
def test_short_run(target: Target) -> None:
    """Only declared errors, within 50 ms and 64 MiB; a failure prints its input and its seed."""
    campaign = Campaign(target, 1, corpus.kept(target.name))
    campaign.begin()
    campaign.run(SHORT_RUN // 4 if target.name in SLOW else SHORT_RUN)
    assert campaign.seen, "a target says what happened"


@pytest.mark.parametrize("target", TARGETS, ids=name_of_target)
def test_former_bugs(target: Target) -> None:
    """Inputs that were findings once; their memory is measured too."""
    for data in corpus.read(corpus.CORPUS / target.name / corpus.BUGS):
        execute(target, data, weigh=True)


def test_the_corpus_belongs_to_targets_and_is_small() -> None:
    files = sorted(corpus.CORPUS.glob("*/*"))
    assert {path.parent.name for path in files} <= {target.name for target in TARGETS}
    assert {path.name for path in files} <= {corpus.BUGS, corpus.FOUND}
    assert sum(path.stat().st_size for path in files) < 1_000_000


def test_names_are_unique() -> None:
    assert len({target.name for target in TARGETS}) == len(TARGETS)
    with pytest.raises(ValueError, match="there are request-Produce"):
        target_named("nothing")


# -- the second encoder ---------------------------------------------------------------------------


@pytest.mark.parametrize("api", APIS.values(), ids=name_of)
def test_two_encoders_agree(api: Api) -> None:
    """It was written independently from the declarations: the same bytes for every message and
    version."""
    dice = Random(api.name)
    for version in versions_of(api):
        for _ in range(5):
            message = random_message(api.request, version, dice)
            laid_out = lay_out_request(api, version, message, "me")
            assert laid_out.data == body(encode_request(message, version, 7, "me"))
            response = random_message(api.response, version, dice)
            header = RequestHeader(api.key, version, 7, None, 0)
            laid_out = lay_out_response(api, version, response)
            assert laid_out.data == body(encode_response(header, response))


def test_marks_lie_where_they_say() -> None:
    """A length read at its mark is the length of the text after it."""
    dice = Random(3)
    api = APIS[ApiKey.LEAVE_GROUP]
    for version, kind in ((3, "len2"), (5, "varint")):
        message = random_message(api.request, version, dice)
        data, marks = lay_out_request(api, version, message, "me")
        pairs = [(one, two) for one, two in itertools.pairwise(marks) if two.kind == "text"]
        assert len(pairs) > 1
        for length, text in pairs[1:]:
            encoded = data[length.at : length.at + length.size]
            expected = uvarint(text.size + 1) if kind == "varint" else text.size.to_bytes(2, "big")
            assert (length.kind, encoded) == (kind, expected)


# -- does the fuzzer find planted bugs? -----------------------------------------------------------


def test_a_seed_replays_bit_for_bit() -> None:
    """Two processes with different hash seeds find the same inputs."""
    program = (
        "from tests.fuzz.engine import Campaign\n"
        "from tests.fuzz.targets import target_named\n"
        "for name in ('peer-link', 'write-ahead-log'):\n"
        "    campaign = Campaign(target_named(name), 5)\n"
        "    campaign.begin()\n"
        "    campaign.run(150)\n"
        "    print(sorted((key, data.hex()) for key, data in campaign.found.items()))\n"
    )
    digests = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=Path(__file__).parent.parent.parent,
            capture_output=True,
            check=True,
        )
        assert len(done.stdout) > 1_000
        digests.add(hashlib.sha256(done.stdout).hexdigest())
    assert len(digests) == 1


def finding_of(target: Target, executions: int) -> Finding:
    """The result of a campaign over this target."""
    with pytest.raises(Finding) as caught:
        _campaign(target, executions)
    return caught.value


def _campaign(target: Target, executions: int) -> None:
    campaign = Campaign(target, 1)
    campaign.begin()
    campaign.run(executions)


def test_a_decoder_that_does_not_skip_unknown_tags_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """kio's bug (exam, section 6): KeyError for a tagged field it does not know."""
    plain = primitives.read_tags

    def strict(view: memoryview, pos: int, count: int, message: object, known: dict) -> int:  # type: ignore[type-arg]
        if count and message is None:
            raise KeyError(count)
        return plain(view, pos, count, message, known)

    monkeypatch.setattr("wire.apis.read_tags", strict)
    finding = finding_of(Requests(APIS[ApiKey.HEARTBEAT]), 3_000)
    assert isinstance(finding.__cause__, KeyError)


def test_a_length_that_is_believed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry of a peer's message without the check of its size: another value is read."""
    monkeypatch.setattr("paxos.codec._nothing_left", lambda _body, _at: None)
    finding = finding_of(PaxosFrames(), 20_000)
    assert "read in two ways" in str(finding)


def test_a_recovery_that_forgives_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the chain of checksums, a segment restored from an old copy is accepted."""
    monkeypatch.setattr("storage.log.recovery.walk", _walk_without_checks)
    finding = finding_of(Log(), 5_000)
    assert isinstance(finding.__cause__, Exception)


def _walk_without_checks(file, header, cursor):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """storage.log.recovery.walk that checks only magic and sizes."""
    from storage.format import RECORD, RECORD_HEADER_BYTES, RECORD_MAGIC

    data = file.pread(header.size, 0)
    while cursor.offset + RECORD_HEADER_BYTES <= len(data):
        fields = RECORD.unpack_from(data, cursor.offset)
        end = cursor.offset + RECORD_HEADER_BYTES + fields[5]
        if fields[2] != RECORD_MAGIC or end > len(data):
            break
        cursor.offset, cursor.chain = end, fields[0]
        yield fields


class _Slow(Target):
    """Hangs, eats memory, takes too long, or fails, depending on its bytes."""

    name: ClassVar = "slow"
    cpu_ms_max: ClassVar = 4

    def samples(self, dice: Random) -> Iterable[Sample]:
        return [Sample(b"x")]

    def run(self, data: bytes) -> Iterable[str]:
        if data[:1] == b"h":
            while True:
                pass
        if data[:1] == b"m":
            return (str(len(bytes(70 << 20))),)
        if data[:1] == b"t":
            return (str(sum(range(1_000_000))),)
        if b"!" in data:
            raise KeyError(data)
        return ("fine",)


@pytest.mark.parametrize(
    ("data", "what"),
    [(b"hang", "processor time"), (b"memory", "MiB of memory"), (b"time", "ms of processor time")],
)
def test_limits_are_held(data: bytes, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "HANG_CPU_S", 0.3)
    with pytest.raises(Finding, match=what) as caught:
        execute(_Slow(), data, weigh=True)
    assert caught.value.data == data
    assert data.hex() in str(caught.value)


def test_findings_are_made_smaller() -> None:
    with pytest.raises(Finding) as caught:
        execute(_Slow(), b"long" + bytes(1_000) + b"!" + bytes(1_000))
    assert shrunk(_Slow(), caught.value).data == b"!"


def test_the_command_replays_and_reports(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tests.fuzz.__main__.OUT", tmp_path)
    assert main(["--target", "identity", "--replay", "00"]) == 0
    assert "DirectoryRefused" in capsys.readouterr().out
    assert main(["--target", "framing", "--executions", "100", "--seed", "9"]) == 0
    assert "0 findings" in capsys.readouterr().out
    assert (tmp_path / "report.json").exists()
    monkeypatch.setattr("storage.identity.INCARNATION_MAX", 1 << 80)
    bad = corpus.read(corpus.CORPUS / "identity" / corpus.BUGS)[0]
    assert main(["--target", "identity", "--replay", bad.hex()]) == 1
    assert main(["--target", "identity", "--executions", "100"]) == 1
    told = capsys.readouterr().out
    assert "again: python -m tests.fuzz --target identity --replay @" in told
    assert list(tmp_path.glob("identity-*.hex"))


def test_scenes_are_what_they_claim() -> None:
    """Undamaged, each directory restarts to everything that was written."""
    for number in range(len(SCENES)):
        assert set(Log().run(bytes([number]))) == {"damaged whole"}
        assert len(scene(*SCENES[number]).images) > 12
