"""What makes a local cluster secure is made once, for its owner only, and kept."""

import stat
from pathlib import Path

import pytest
from cryptography import x509

from broker.security.users import parse_users
from cluster import spec
from cluster.security import clients
from cluster.security.clients import ClientSettings
from cluster.security.directory import ADMINISTRATOR
from cluster.spec import SpecError
from runtime.config.config import Config
from wire.scram import ScramMechanism, credential_of, salted_password


def made(tmp_path: Path, **options: bool) -> tuple[spec.ClusterSpec, dict[int, Config]]:
    planned, _ = spec.plan(tmp_path / "data", node_count=2, fixed_ports=False, **options)
    return planned, spec.save(planned, (), {})


def contents(folder: Path) -> dict[str, str]:
    return {one.name: one.read_text() for one in folder.iterdir() if one.is_file()}


def test_every_node_has_tls_passwords_and_rules(tmp_path: Path) -> None:
    planned, configs = made(tmp_path, secure=True)
    for node in planned.nodes:
        config = configs[node.id]
        (listener,) = config.for_clients
        assert listener.security.tls
        assert listener.security.sasl
        assert listener.bind == node.kafka
        assert config.security.authorizer == "acl"
        assert config.security.super_user_names == {f"User:{ADMINISTRATOR}"}
        assert config.tls.certificate is not None
        certificate = x509.load_pem_x509_certificate(config.tls.certificate.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == [
            "localhost",
            f"node-{node.id}.{planned.cluster_id}.evenkeel",
        ]
        addresses = map(str, names.get_values_for_type(x509.IPAddress))
        assert list(addresses) == ["127.0.0.1", "::1"]


def test_a_secure_cluster_stays_so_and_keeps_its_secrets(tmp_path: Path) -> None:
    first, _ = made(tmp_path, secure=True)
    before = contents(first.security.path)
    again, configs = made(tmp_path)
    assert again.secure
    assert contents(first.security.path) == before
    assert configs[1].for_clients[0].security.sasl


def test_one_that_was_not_becomes_secure(tmp_path: Path) -> None:
    plain, configs = made(tmp_path)
    assert not plain.security.path.exists()
    assert not configs[1].for_clients[0].security.tls
    secured, configs = made(tmp_path, secure=True)
    assert secured.cluster_id == plain.cluster_id
    assert configs[1].for_clients[0].security.sasl


def test_a_node_more_gets_a_certificate(tmp_path: Path) -> None:
    planned, _ = made(tmp_path, secure=True)
    before = contents(planned.security.path)
    spec.save(spec.grown(planned), (), {})
    after = contents(planned.security.path)
    assert after.keys() - before.keys() == {"node-3.crt", "node-3.key"}
    assert {name: after[name] for name in before} == before


def test_modes(tmp_path: Path) -> None:
    planned, _ = made(tmp_path, secure=True)
    folder = planned.security.path
    for path in [folder, *folder.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o644 if path.suffix == ".crt" else 0o700 if path.is_dir() else 0o600), path


def test_users_have_keys_of_the_password_and_not_the_password(tmp_path: Path) -> None:
    planned, _ = made(tmp_path, secure=True)
    text, password = planned.security.users.read_text(), planned.security.known_password()
    assert len(password) >= 32
    assert password not in text
    mechanism = ScramMechanism.SHA_512
    kept = parse_users(text)[ADMINISTRATOR][mechanism]
    salted = salted_password(mechanism, password, kept.salt, kept.iterations)
    assert credential_of(mechanism, salted, kept.salt, kept.iterations) == kept


def test_without_its_password_no_settings_are_left_behind(tmp_path: Path) -> None:
    """Whoever has changed it keeps it elsewhere: old files would only mislead."""
    planned, _ = made(tmp_path, secure=True)
    planned.security.password.unlink()
    made(tmp_path)
    assert list(planned.security.clients.iterdir()) == []
    assert not planned.security.password.exists(), "no second administrator"


@pytest.mark.parametrize("missing", ["ca.key", "node-1.crt"])
def test_what_is_damaged_is_said_in_words(tmp_path: Path, missing: str) -> None:
    planned, _ = made(tmp_path, secure=True)
    (planned.security.path / missing).unlink()
    (planned.security.path / "node-2.crt").unlink()
    with pytest.raises(SpecError, match=r"cannot be secured: .*(ca\.key|node-1\.key)"):
        made(tmp_path)


def test_a_password_of_ones_own_is_written_as_each_format_wants_it() -> None:
    password = 'a "b" \\ ü'
    made = ClientSettings(bootstrap="h:1", authority=Path("/ca"), password=password)
    assert password not in repr(made)
    files = made.files
    assert f"sasl.password={password}\n" in files[clients.PROPERTIES]
    java = r'password="a \\"b\\" \\\\ \u00fc";'
    assert java in files[clients.JAVA]
    assert '"a \\"b\\" \\\\ \\u00fc"' in files[clients.KAFKAJS]
    assert clients.NOT_SHOWN in made.shown(password=False)
    assert password not in made.shown(password=False)
