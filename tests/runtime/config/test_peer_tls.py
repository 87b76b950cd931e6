"""`[peer_tls]`: half of it is refused, and so is a peer port that others reach without it."""

from pathlib import Path

import pytest

from runtime.config.config import Config, load
from runtime.config.peer_tls import insecure
from tests.runtime.config.test_listeners import read, refusal

FILES = '[peer_tls]\ncertificate = "c"\nkey = "k"\nauthorities = "a"\n'
OPEN = '[listen]\npeer = "0.0.0.0:7092"\n'
INSECURE = "[security]\ninsecure_listeners = true\n"
BOTH = "insecure_plain_too = true\n"


def told(config: Config) -> tuple[str, bool]:
    return config.peer_tls.mode, insecure(config.listen, config.peer_tls)


@pytest.mark.parametrize(
    ("parts", "mode", "is_insecure"),
    [
        ((), "plain", False),
        ((FILES,), "tls", False),
        ((OPEN, FILES), "tls", False),
        ((OPEN, INSECURE), "plain", True),
        ((OPEN, FILES + BOTH, INSECURE), "both", True),
        ((FILES + BOTH,), "both", True),  # on loopback it may be, but it is not forgotten
    ],
)
def test_what_starts_and_what_is_said_of_it(
    tmp_path: Path, parts: tuple[str, ...], mode: str, is_insecure: bool
) -> None:
    config = read(tmp_path, *parts)
    assert told(config) == (mode, is_insecure)
    (tmp_path / "described.toml").write_text(config.describe())
    assert load(tmp_path / "described.toml", {}) == config


@pytest.mark.parametrize(
    ("parts", "reasons"),
    [
        (
            ('[peer_tls]\ncertificate = "c"\n',),
            ["peer_tls.key and peer_tls.authorities: missing"],
        ),
        (('[peer_tls]\nkey = "k"\nauthorities = "a"\n',), ["peer_tls.certificate: missing"]),
        ((INSECURE, OPEN, '[peer_tls]\nauthorities = "a"\n'), ["peer_tls.certificate and"]),
        (
            ("[peer_tls]\n" + BOTH, INSECURE),
            ["peer_tls.insecure_plain_too = true: there is nothing but plain text"],
        ),
        (
            (OPEN,),
            [
                'listen.peer = "0.0.0.0:7092": everyone who reaches it may pretend to be a node',
                "set peer_tls.certificate, peer_tls.key and peer_tls.authorities",
                "security.insecure_listeners = true",
            ],
        ),
        ((OPEN, FILES + BOTH), ["take peer_tls.insecure_plain_too out once all links"]),
        (("[peer_tls]\nrequired = true\n",), ["unknown key peer_tls.required"]),
    ],
)
def test_what_is_half_finished_or_open_does_not_start(
    tmp_path: Path, parts: tuple[str, ...], reasons: list[str]
) -> None:
    text = refusal(tmp_path, *parts)
    for reason in reasons:
        assert reason in text
