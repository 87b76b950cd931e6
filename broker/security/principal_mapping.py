"""From a certificate's name to a principal: Kafka's `ssl.principal.mapping.rules` (KIP-371).

Rules are tried in order; the first whose pattern matches the whole distinguished name decides:
`RULE:pattern/replacement/` with `$1` for what a group matched, and `L` or `U` behind it for lower
or upper case. `DEFAULT` takes the name as it is. A name that no rule matches proves nobody.
"""

import re
from collections.abc import Sequence
from typing import Final

import attrs
import re2

from broker.security.principal import Principal

RULES_MAX: Final = 32
NAME_CHARS_MAX: Final = 1_024
"""A longer distinguished name matches no rule: what it costs must not be a client's choice."""
_RULE: Final = re.compile(
    r"RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)"
)
_GROUP: Final = re.compile(r"\$(\d)")
DEFAULT_RULE: Final = "DEFAULT"

_SHORT: Final = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""RFC 2253, section 2.3: what Java's X500Principal.getName writes, and so Kafka."""
_SPECIAL: Final = frozenset(',+"\\<>;')


@attrs.frozen
class _Rule:
    pattern: "re2._Regexp | None"
    """None: DEFAULT."""
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        found = self.pattern.fullmatch(name)
        if found is None:
            return None
        text = _GROUP.sub(lambda group: found.group(int(group[1])) or "", self.replacement)
        return {"L": text.lower(), "U": text.upper()}.get(self.case, text)


class PrincipalMapping:
    def __init__(self, rules: Sequence[str] = (DEFAULT_RULE,)) -> None:
        """
        Raises:
            ValueError: a rule cannot be read; says which, and why.
        """
        if len(rules) > RULES_MAX:
            raise ValueError(f"{len(rules)} rules, at most {RULES_MAX}")
        self._rules = [_read(rule) for rule in rules or (DEFAULT_RULE,)]

    def principal(self, distinguished_name: str) -> Principal | None:
        """Whom a certificate of this name proves; None if no rule matches."""
        if not distinguished_name or len(distinguished_name) > NAME_CHARS_MAX:
            return None
        for rule in self._rules:
            name = rule.apply(distinguished_name)
            if name is not None:
                return Principal("User", name) if name else None
        return None


def _read(text: str) -> _Rule:
    if text.strip() == DEFAULT_RULE:
        return _Rule(None)
    parts = _RULE.fullmatch(text.strip())
    if parts is None:
        raise ValueError(
            f"{text!r} is no rule: write DEFAULT, or RULE:pattern/replacement/ (L or U behind it)"
        )
    options = re2.Options()
    options.log_errors = False
    try:
        pattern = re2.compile(parts["pattern"].replace("\\/", "/"), options)
    except re2.error as error:
        raise ValueError(f"{text!r}: the pattern cannot be read: {error}") from None
    groups = [int(one) for one in _GROUP.findall(parts["replacement"])]
    if any(one > pattern.groups for one in groups):
        raise ValueError(f"{text!r}: there is no group ${max(groups)} in the pattern")
    return _Rule(pattern, parts["replacement"].replace("\\/", "/"), parts["case"])


def distinguished_name(subject: Sequence[Sequence[tuple[str, str]]]) -> str:
    """A certificate's subject, as ssl.getpeercert has it, in RFC 2253's notation: the last part
    first, as Kafka has it (`CN=alice,OU=bus,O=Example`)."""
    return ",".join(
        "+".join(f"{_SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in parts)
        for parts in reversed(subject)
    )


def _escaped(value: str) -> str:
    text = "".join(f"\\{one}" if one in _SPECIAL else one for one in value)
    if text[:1] in (" ", "#"):
        text = "\\" + text
    if text.endswith(" ") and len(text) > 1:
        text = text[:-1] + "\\ "
    return text
