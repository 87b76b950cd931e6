"""The section `[oauth]`: whose access tokens are believed (SASL OAUTHBEARER), and for whom.

Names in brackets are Kafka's: sasl.oauthbearer.jwks.endpoint.url, .expected.issuer, ...
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Final

import attrs

from broker.security.token_keys import ALGORITHMS
from runtime.config.fields import (
    bool_field,
    int_field,
    parse_optional_path,
    parse_text,
    refuse,
    show,
)
from runtime.oauth.fetching import url_problem

DAY_S: Final = 86_400
SKEW_S_MAX: Final = 300


def parse_names(raw: object) -> tuple[str, ...]:
    """Read names from a TOML array or from text with commas, as in Kafka."""
    if isinstance(raw, str):
        raw = [one.strip() for one in raw.split(",") if one.strip()]
    if isinstance(raw, list) and all(isinstance(one, str) and one for one in raw):
        return tuple(raw)
    raise ValueError('expected names: ["one", "another"]')


def _text_field(default: str, doc: str) -> str:
    field: str = attrs.field(
        default=default,
        validator=attrs.validators.instance_of(str),
        metadata={"doc": doc, "parse": parse_text},
    )
    return field


def _names_field(default: tuple[str, ...], doc: str) -> tuple[str, ...]:
    field: tuple[str, ...] = attrs.field(
        default=default, converter=tuple, metadata={"doc": doc, "parse": parse_names}
    )
    return field


def _path_field(doc: str) -> Path | None:
    field: Path | None = attrs.field(
        default=None,
        validator=attrs.validators.optional(attrs.validators.instance_of(Path)),
        metadata={"doc": doc, "parse": parse_optional_path},
    )
    return field


@attrs.frozen(kw_only=True)
class OauthSection:
    SECTION: ClassVar = "oauth"
    jwks_file: Path | None = _path_field("JSON Web Key Set: the keys that tokens are signed with")  # noqa: RUF009 (frozen)
    jwks_url: str = _text_field("", "where those keys are fetched from, instead of a file")
    jwks_authorities: Path | None = _path_field(  # noqa: RUF009 (frozen)
        "PEM file: the authorities of jwks_url's certificate; default: the system's"
    )
    jwks_refresh_s: int = int_field(3_600, 10, DAY_S, "how often jwks_url is fetched again")
    issuer: str = _text_field("", "`iss` of a token must be this")
    audience: tuple[str, ...] = _names_field((), "`aud` of a token must be, or have, one of these")
    principal_claim: str = _text_field("sub", "the claim that names the user")
    scope: tuple[str, ...] = _names_field((), "a token must have all of these scopes")
    scope_claim: str = _text_field("scope", "the claim with the scopes, text or an array")
    algorithms: tuple[str, ...] = _names_field(
        ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"),
        "how tokens may be signed; with a public key, always",
    )
    clock_skew_s: int = int_field(
        30, 0, SKEW_S_MAX, "by how much the clock of the issuer may differ"
    )
    without_tls: bool = bool_field(
        False, "allow tokens, which whoever sees them can use, without TLS"
    )

    def __attrs_post_init__(self) -> None:
        for one in self.algorithms:
            if one not in ALGORITHMS:
                why = f"{one}: tokens are signed with a public key: {', '.join(ALGORITHMS)}"
                refuse(self, "algorithms", list(self.algorithms), why)
        if not self.algorithms:
            refuse(self, "algorithms", [], "no token could be signed")
        if self.jwks_url and url_problem(self.jwks_url):
            refuse(self, "jwks_url", self.jwks_url, url_problem(self.jwks_url))
        if self.jwks_url and self.jwks_file is not None:
            refuse(self, "jwks_url", self.jwks_url, "there is jwks_file as well; set one of both")
        if self.jwks_authorities is not None and not self.jwks_url.startswith("https:"):
            path = str(self.jwks_authorities)
            refuse(self, "jwks_authorities", path, "they are for a jwks_url that is https")
        for key in ("principal_claim", "scope_claim"):
            if not getattr(self, key):
                refuse(self, key, "", "name a claim, such as the default")

    @property
    def is_set(self) -> bool:
        return self != OauthSection()

    def missing(self) -> Iterator[str]:
        """What tokens cannot be judged without: a sentence each."""
        wanted: tuple[tuple[str, Any, str], ...] = (
            ("jwks_file", self.jwks_file or self.jwks_url, "or oauth.jwks_url: no key, no trust"),
            ("issuer", self.issuer, "who makes the tokens"),
            ("audience", self.audience, "else tokens that others were given for would do"),
        )
        for key, value, why in wanted:
            if not value:
                default = show(list(value)) if isinstance(value, tuple) else show(value or "")
                yield f"oauth.{key} = {default}: OAUTHBEARER in sasl_mechanisms needs it ({why})"
