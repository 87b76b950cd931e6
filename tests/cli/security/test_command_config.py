"""Every command that speaks Kafka can log in, and none takes a password on the command line."""

import argparse
import io
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from cli.clusters import logins, passwords
from cli.clusters.contexts import ContextError
from cli.clusters.kafka_commands import ClientError
from cli.main import _parser, run
from cli.security import quota
from evenkeel import properties

OF_KAFKA = {"--bootstrap", "--bootstrap-servers"}
OF_OTHER_CLIENTS = {"spark"}
"""It hands its words on: the jobs' own parsers have --command-config (pipeline/bus.py)."""


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    subs = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    if not subs:
        yield parser
    for sub in subs:
        for one in sub.choices.values():
            yield from leaves(one)


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    return {option for action in parser._actions for option in action.option_strings}


COMMANDS: Mapping[str, set[str]] = {one.prog: options_of(one) for one in leaves(_parser())}


def test_whoever_takes_the_address_of_a_broker_takes_a_way_to_log_in() -> None:
    speaking = {name for name, options in COMMANDS.items() if options & OF_KAFKA}
    assert {"evenkeel topic list", "evenkeel doctor", "evenkeel bench"} <= speaking
    assert {"evenkeel user passwd", "evenkeel quota set", "evenkeel profile add"} <= speaking
    assert [name for name in sorted(speaking) if "--command-config" not in COMMANDS[name]] == []


def test_no_option_is_a_password() -> None:
    named = {option for options in COMMANDS.values() for option in options if "passw" in option}
    assert named == {"--password-file"}, "a file's name: others see the command line"


def test_a_job_on_spark_takes_the_file_too() -> None:
    from pipeline.bus import add_bus_options

    parser = argparse.ArgumentParser()
    add_bus_options(parser)
    assert "--command-config" in options_of(parser)


# -- passwords -------------------------------------------------------------------------------------


def asked(file: str | None, env: Mapping[str, str] | None = None) -> str:
    return passwords.of(argparse.Namespace(password_file=file), env or {})


def test_a_password_comes_from_a_file_the_input_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "password"
    path.write_text("first line \nsecond\n")
    assert asked(str(path)) == "first line "
    monkeypatch.setattr(sys, "stdin", io.StringIO("typed\r\n"))
    assert asked("-") == "typed"
    assert asked(None, {passwords.VARIABLE: "kept"}) == "kept"
    with pytest.raises(ClientError, match="no terminal to ask"):
        asked(None)
    with pytest.raises(ClientError, match="No such file"):
        asked(str(tmp_path / "none"))
    path.write_text("x" * 2_000)
    with pytest.raises(ClientError, match="up to 1024 bytes"):
        asked(str(path))


def test_typing_errors_do_not_go_unnoticed(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["one", "other"])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", lambda _prompt: next(answers))
    with pytest.raises(ClientError, match="two different passwords"):
        asked(None)


# -- what a profile keeps --------------------------------------------------------------------------


def test_a_file_of_kafkas_tools_is_kept_without_what_is_not_security(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "client.properties"
    settings = {
        "bootstrap.servers": "elsewhere:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "ann",
        "sasl.password": "hush, hush",
    }
    file.write_text(properties.written(settings))
    add = ["profile", "add", "p", "--bootstrap", "127.0.0.1:1", "--command-config", str(file)]
    assert run(add) == 0
    kept = logins.kept(logins.path_of("p"))
    assert kept == {name: text for name, text in settings.items() if name != "bootstrap.servers"}
    assert run(["profile", "show", "p"]) == 0
    assert "hush" not in capsys.readouterr().out
    assert run([*add, "--replace", "--user", "bob"]) == 1
    assert run(["profile", "add", "p", "--bootstrap", "127.0.0.1:1", "--replace"]) == 0
    with pytest.raises(ContextError, match="add the context again"):
        logins.kept(logins.path_of("p"))
    file.write_text("security.protocol=SASL_SSL\n")
    assert run([*add, "--replace"]) == 1, "nobody could log in with it"


# -- rates -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "name", "value", "said"),
    [
        ("produce=10MB/s", "producer_byte_rate", 10e6, "10 MB/s"),
        ("producer_byte_rate=1048576", "producer_byte_rate", 2.0**20, "1 MiB/s"),
        ("consume=1.5 GB/s", "consumer_byte_rate", 1.5e9, "1.5 GB/s"),
        ("consume=1023", "consumer_byte_rate", 1023, "1023 B/s"),
        ("request=50%", "request_percentage", 50, "50 %"),
        ("partitions=0.5/s", "controller_mutation_rate", 0.5, "0.5/s"),
        ("connections=20", "connection_creation_rate", 20, "20/s"),
    ],
)
def test_rates_are_read_and_said(typed: str, name: str, value: float, said: str) -> None:
    assert quota._limit(typed) == (name, value)
    assert quota.said(name, value) == said
    word = quota.NAMES[name]
    assert quota._limit(f"{word}={said}") == (name, value), "it can be typed again"


@pytest.mark.parametrize(
    "typed",
    [
        "produce",
        "fly=1",
        "produce=fast",
        "produce=-1",
        "produce=0",
        "produce=10%",
        "request=5MB",
        "partitions=1MB/s",
        "produce=0.1",
        "produce=1e99",
        "produce=9999999GB",
        "produce=nan",
    ],
)
def test_what_is_no_rate_is_refused(typed: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        quota._limit(typed)
