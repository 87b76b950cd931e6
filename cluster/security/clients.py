"""Settings for clients of a secure cluster, ready to copy: a file for each kind of client.

Each kind has its own names for the same five things: where the nodes are, that there is TLS and
SCRAM, the authority to believe, and who is asking. The files have the password, so they are for
their owner only; as ports may change from one start to the next, they are written anew each time.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from cluster.security.directory import ADMINISTRATOR, MECHANISM, SecurityDirectory, write_anew

PROPERTIES: Final = f"{ADMINISTRATOR}.properties"
JAVA: Final = f"{ADMINISTRATOR}.java.properties"
KAFKAJS: Final = f"{ADMINISTRATOR}.kafkajs.cjs"
SPARK: Final = f"{ADMINISTRATOR}.spark.json"
EVENKEEL_SPARK: Final = f"{ADMINISTRATOR}.spark-evenkeel.json"
FOR_WHOM: Final[Mapping[str, str]] = {
    PROPERTIES: "librdkafka, kcat, evenkeel",
    JAVA: "Java, kafka-*.sh",
    KAFKAJS: "kafkajs",
    SPARK: "Spark: format('kafka')",
    EVENKEEL_SPARK: "Spark: format('evenkeel')",
}
WRITTEN: Final = "Written by evenkeel up at every start. Only you may read it: it has a password."
NOT_SHOWN: Final = "(in the file)"


@attrs.frozen(kw_only=True)
class ClientSettings:
    """What every client has to know."""

    bootstrap: str
    authority: Path
    user: str = ADMINISTRATOR
    password: str = attrs.field(repr=False)

    @property
    def plain(self) -> dict[str, str]:
        """By librdkafka's names, which are ours too."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority),
            "sasl.mechanism": MECHANISM,
            "sasl.username": self.user,
            "sasl.password": self.password,
        }

    @property
    def java(self) -> dict[str, str]:
        """By those of Kafka's own clients, from 2.7 on (KIP-651: PEM files)."""
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        who = f"username={_jaas(self.user)} password={_jaas(self.password)}"
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": f"{module} required {who};",
        }

    @property
    def files(self) -> dict[str, str]:
        """The text of each file, by its name."""
        java = "".join(f"{name}={_java(value)}\n" for name, value in self.java.items())
        return {
            PROPERTIES: f"# {WRITTEN}\n{lines(self.plain)}",
            JAVA: f"# {WRITTEN}\n{java}",
            KAFKAJS: self._kafkajs(),
            SPARK: _spark(self.java),
            EVENKEEL_SPARK: _spark(self.plain),
        }

    def _kafkajs(self) -> str:
        mechanism = MECHANISM.lower()
        return "\n".join(
            [
                f"// {WRITTEN}",
                "// const kafka = new Kafka(require('./this-file.cjs'))",
                "const fs = require('fs')",
                "module.exports = {",
                f"  brokers: {json.dumps(self.bootstrap.split(','))},",
                f"  ssl: {{ ca: [fs.readFileSync({json.dumps(str(self.authority))}, 'utf8')] }},",
                "  sasl: {",
                f"    mechanism: {json.dumps(mechanism)},",
                f"    username: {json.dumps(self.user)},",
                f"    password: {json.dumps(self.password)}",
                "  }",
                "}",
                "",
            ]
        )

    def shown(self, *, password: bool) -> str:
        """Lines to copy from a terminal."""
        hidden = {} if password else {"sasl.password": NOT_SHOWN}
        return lines({**self.plain, **hidden})


def lines(settings: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def write(directory: SecurityDirectory, bootstrap: str) -> ClientSettings | None:
    """Write all files anew; None, and no file, if the password is no longer kept here.

    Raises:
        OSError: one cannot be written.
    """
    password = directory.known_password()
    if not password:
        for name in FOR_WHOM:
            (directory.clients / name).unlink(missing_ok=True)
        return None
    settings = ClientSettings(bootstrap=bootstrap, authority=directory.authority, password=password)
    for name, text in settings.files.items():
        write_anew(directory.clients / name, text)
    return settings


def _jaas(value: str) -> str:
    """A quoted value of a login module (javax.security.auth.login.Configuration)."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _java(value: str) -> str:
    """A value of java.util.Properties, which are Latin-1 and have backslashes for escapes."""
    units = value.encode("utf-16-be")
    chars = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "".join(
        "\\\\" if one == ord("\\") else chr(one) if 32 <= one < 127 else f"\\u{one:04x}"
        for one in chars
    )


def _spark(settings: Mapping[str, str]) -> str:
    """Options of a reader or writer: `.options(**json.load(open(FILE)))`."""
    return json.dumps({f"kafka.{name}": value for name, value in settings.items()}, indent=2) + "\n"
