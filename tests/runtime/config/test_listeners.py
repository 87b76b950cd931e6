"""Named listeners: what is open to everybody, or contradicts itself, is refused with the cure."""

from pathlib import Path

import pytest

from broker.security.listeners import DEFAULT, ClientListener, SecurityProtocol
from runtime import settings
from runtime.config.config import Config, ConfigError, load
from runtime.config.fields import Address
from runtime.config.listeners import ALLOWED, as_toml

NODE = """
[node]
id = 1
cluster_id = "test"
data_dir = "d"
[peers]
1 = "127.0.0.1:7092"
"""
TLS = '[tls]\ncertificate = "c"\nkey = "k"\nclient_authorities = "a"\n'


def listener(
    name: str, bind: str, protocol: str, *, certificates: str = "none", advertised: str = ""
) -> str:
    return (
        f'[[listeners]]\nname = "{name}"\nbind = "{bind}"\nprotocol = "{protocol}"\n'
        f'client_certificates = "{certificates}"\nadvertised = "{advertised}"\n'
    )


def read(tmp_path: Path, *parts: str, env: dict[str, str] | None = None) -> Config:
    path = tmp_path / "node.toml"
    path.write_text("\n".join([NODE, *parts]))
    return load(path, env or {})


def refusal(tmp_path: Path, *parts: str, env: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, *parts, env=env)
    return str(caught.value)


PLAIN = listener("PLAINTEXT", "127.0.0.1:9092", "plaintext")
MUTUAL = listener(
    "TLS", "[::]:9093", "ssl", certificates="required", advertised="bus-1.example.com:9093"
)


def test_the_short_form_is_one_plain_listener(tmp_path: Path) -> None:
    config = read(tmp_path)
    (one,) = config.for_clients
    assert one.of_connections == DEFAULT
    assert one.bind == config.listen.kafka
    assert settings.set_listeners(config).listeners == ()


def test_several_listeners_are_registered_with_what_clients_are_told(tmp_path: Path) -> None:
    config = read(tmp_path, MUTUAL, PLAIN, TLS)
    assert [one.name for one in config.for_clients] == ["PLAINTEXT", "TLS"]
    tls = config.for_clients[1]
    assert tls.of_connections == ClientListener("TLS", SecurityProtocol.SSL)
    assert not tls.insecure
    assert settings.set_listeners(config).listeners == (
        ("PLAINTEXT", 0, "127.0.0.1", 9092),
        ("TLS", 1, "bus-1.example.com", 9093),
    )
    assert settings.register_node(config, 1).kafka == ("127.0.0.1", 9092)
    only_tls = read(tmp_path, MUTUAL, TLS)
    assert settings.register_node(only_tls, 1).kafka == ("bus-1.example.com", 9093)


def test_describe_is_the_configuration_itself(tmp_path: Path) -> None:
    config = read(tmp_path, MUTUAL, PLAIN, TLS, 'principal_mapping = ["RULE:^CN=(.*?),.*$/$1/L"]')
    assert load(_written(tmp_path, config.describe()), {}) == config
    assert as_toml(config.listeners)[0] == "[[listeners]]"


def _written(folder: Path, text: str) -> Path:
    path = folder / "described.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        (
            (listener("PLAINTEXT", "10.0.0.1:9092", "plaintext"),),
            "[[listeners]] PLAINTEXT: everyone who reaches 10.0.0.1:9092 may do everything",
        ),
        (
            (listener("TLS", "10.0.0.1:9093", "ssl"), TLS),
            "everyone who reaches 10.0.0.1:9093 may do everything",
        ),
        (
            (listener("TLS", "10.0.0.1:9093", "ssl", certificates="optional"), TLS),
            "set security.insecure_listeners = true",
        ),
        (
            ('[listen]\nkafka = "10.0.0.1:9092"',),
            'listen.kafka = "10.0.0.1:9092": everyone who reaches 10.0.0.1:9092',
        ),
        ((listener("S", "127.0.0.1:9094", "sasl_ssl"), TLS), "needs security.sasl_mechanisms"),
        ((listener("S", "127.0.0.1:9094", "sasl_plaintext"),), "needs security.sasl_mechanisms"),
        ((listener("TLS", "127.0.0.1:9093", "ssl"),), 'protocol = "ssl" needs tls.certificate'),
        (
            (
                listener("TLS", "127.0.0.1:9093", "ssl", certificates="required"),
                '[tls]\ncertificate = "c"\nkey = "k"\n',
            ),
            "needs tls.client_authorities",
        ),
        (
            (listener("P", "127.0.0.1:9093", "plaintext", certificates="required"),),
            'needs protocol = "ssl" or "sasl_ssl"',
        ),
        ((PLAIN, PLAIN), "two have this name"),
        (
            (PLAIN, listener("B", "127.0.0.1:9092", "plaintext")),
            "[[listeners]] PLAINTEXT uses the same address",
        ),
        ((listener("B", "127.0.0.1:8092", "plaintext"),), "listen.http uses the same address"),
        ((listener("B", "0.0.0.0:9092", "plaintext"),), "set advertised to an address"),
        ((listener("B", "127.0.0.1:9092", "ssl3"),), 'expected "plaintext" or "ssl"'),
        ((listener("B B", "127.0.0.1:9092", "ssl"),), "letters, digits"),
        (('[[listeners]]\nname = "B"\n',), "bind is missing: set it (where it listens)"),
        ((PLAIN + 'colour = "red"\n',), "unknown key colour"),
        (('[listeners]\nname = "B"\n',), "listeners are tables in the file"),
        (('[listen]\nkafka = "127.0.0.1:9095"', PLAIN), "it is the short form of one listener"),
        (('[tls]\nprincipal_mapping = ["RULE:(/x/"]',), "tls.principal_mapping"),
    ],
)
def test_what_is_wrong_is_said_with_the_cure(
    tmp_path: Path, parts: tuple[str, ...], complaint: str
) -> None:
    assert complaint in refusal(tmp_path, *parts)


def test_one_setting_allows_what_is_open_and_its_name_says_so(tmp_path: Path) -> None:
    config = read(tmp_path, '[listen]\nkafka = "10.0.0.1:9092"', *ALLOWED)
    (one,) = config.for_clients
    assert one.insecure
    assert one.bind == Address("10.0.0.1", 9092)


def test_listeners_come_from_the_file_only(tmp_path: Path) -> None:
    message = refusal(tmp_path, env={"EVENKEEL_LISTENERS__NAME": "B"})
    assert "listeners are tables in the file" in message
