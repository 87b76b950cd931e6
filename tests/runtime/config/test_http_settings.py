"""Half of a configuration of HTTP does not start, and says what is missing."""

from pathlib import Path

import pytest

from runtime.config.config import Config, ConfigError, load

TLS = ("tls.certificate=/etc/bus/node.crt", "tls.key=/etc/bus/node.key")
USERS = ("http.authentication=users", "http.administrators=User:admin")
ACL = ("security.authorizer=acl", "security.super_users=User:admin")
ELSEWHERE = "listen.http=0.0.0.0:8092"


def loaded(tmp_path: Path, *sets: str) -> Config:
    base = ("node.id=1", "node.cluster_id=c", f"node.data_dir={tmp_path}", "peers.1=127.0.0.1:7092")
    return load(None, {}, (*base, *sets))


@pytest.mark.parametrize(
    "sets",
    [
        USERS,
        ("http.authentication=users", *ACL),
        (ELSEWHERE, *USERS, *TLS, "http.tls=true"),
        (ELSEWHERE, *USERS, "security.insecure_listeners=true"),
        ("http.tls=true", *TLS),
        (*USERS, "http.open_metrics=true", "http.readers=User:ann;User:bob"),
    ],
)
def test_what_is_whole_starts(tmp_path: Path, sets: tuple[str, ...]) -> None:
    config = loaded(tmp_path, *sets)
    assert load(_written(tmp_path, config), {}) == config


def _written(tmp_path: Path, config: Config) -> Path:
    path = tmp_path / "again.toml"
    path.write_text(config.describe())
    return path


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ((ELSEWHERE,), "everyone who reaches this address could move masters"),
        ((ELSEWHERE, "security.insecure_listeners=true"), 'set http.authentication = "users"'),
        ((ELSEWHERE, "http.tls=true", *TLS), 'set http.authentication = "users"'),
        ((ELSEWHERE, *USERS), "passwords would cross the network in the clear"),
        ((*USERS, "http.tls=true"), "http.tls = true: it needs tls.certificate"),
        (("http.tls=true", TLS[0]), "http.tls = true: it needs tls.key"),
        (("http.authentication=users",), "nobody could administer"),
        (("http.authentication=users", "http.readers=User:ann"), "nobody could administer"),
        (("http.authentication=basic",), 'expected "none" or "users"'),
        ((*USERS, *ACL), "by rules on the resource Cluster"),
        (("http.administrators=User:admin",), "nobody is asked for a name"),
        (("http.open_metrics=true",), "nobody is asked for a name"),
        ((*USERS, "http.readers=ann"), "'ann' is not a user: expected 'User:' and a name"),
        ((*USERS, "http.readers=User:*"), "'User:*' is not a user"),
        ((*USERS, "http.session_s=5"), "http.session_s = 5: expected 60"),
    ],
)
def test_what_is_half_is_refused_in_words(
    tmp_path: Path, sets: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, *sets)
    assert message in str(refused.value)
