"""The section [security]: nothing half finished starts."""

from pathlib import Path

import pytest

from runtime.config.config import ConfigError, load
from tests.runtime.config.test_config import GOOD


def read(tmp_path: Path, section: str, *sets: str) -> frozenset[str]:
    path = tmp_path / "node.toml"
    path.write_text(f"{GOOD}\n[security]\n{section}\n")
    config = load(path, {}, sets)
    path.write_text(config.describe())
    assert load(path, {}) == config, "it reads back what it describes"
    return config.security.super_user_names


def test_by_default_there_is_no_authorizer(tmp_path: Path) -> None:
    assert read(tmp_path, "") == frozenset()


def test_super_users_are_a_list_or_text(tmp_path: Path) -> None:
    both = frozenset({"User:admin", "User:CN=a,O=b"})
    as_list = 'authorizer = "acl"\nsuper_users = ["User:admin", "User:CN=a,O=b"]'
    assert read(tmp_path, as_list) == both
    sets = ("security.authorizer=acl", "security.super_users=User:admin; User:CN=a,O=b")
    assert read(tmp_path, "", *sets) == both


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ('authorizer = "ACL"', 'expected "none" or "acl"'),
        ('authorizer = "acl"', "nobody could ever add a rule"),
        ('super_users = ["User:a"]', "everybody may do everything"),
        ('authorizer = "acl"\nsuper_users = ["a"]', "is not a principal"),
        ('authorizer = "acl"\nsuper_users = ["Group:a"]', "is not a principal"),
        ('authorizer = "acl"\nsuper_users = ["User:*"]', "everybody would be one"),
        ('authorizer = "acl"\nsuper_users = 7', "expected principals"),
        ('authorizer = "acl"\nsuper_users = ["User:a;User:b"]', "expected principals"),
        ('audit_log = "/var/log/audit"', "nothing is decided without rules"),
        ("audit_grants = true", "nothing is decided without rules"),
        (
            'authorizer = "acl"\nsuper_users = ["User:a"]\naudit_log = "audit.log"',
            "expected an absolute path",
        ),
    ],
)
def test_what_is_half_finished_is_refused_in_words(tmp_path: Path, section: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, section)
    assert said in str(refused.value)
