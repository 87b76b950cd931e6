"""SASL mechanisms and the listeners they are offered on: nothing half-finished starts."""

from collections.abc import Iterator, Sequence
from typing import Final

from broker.security.exchanges import EXTERNAL, OAUTHBEARER, PLAIN
from runtime.config.listeners import ListenerSettings
from runtime.config.oauth import OauthSection
from runtime.config.security import SecuritySection

_NEEDS: Final = {
    PLAIN: 'sends passwords: use protocol = "sasl_ssl", or set security.plain_without_tls = true',
    OAUTHBEARER: 'sends tokens: use protocol = "sasl_ssl", or set oauth.without_tls = true',
    EXTERNAL: 'needs protocol = "sasl_ssl" and client_certificates = "required" or "optional"',
}


def mechanism_problems(
    listeners: Sequence[ListenerSettings], security: SecuritySection, oauth: OauthSection
) -> Iterator[str]:
    """What contradicts itself, a sentence each."""
    mechanisms = security.sasl_mechanisms
    if OAUTHBEARER in mechanisms:
        yield from oauth.missing()
    elif oauth.is_set:
        yield (
            "security.sasl_mechanisms has no OAUTHBEARER, so nobody could use [oauth]; add it, or "
            "leave [oauth] out"
        )
    with_sasl = [one for one in listeners if one.security.sasl]
    for one in with_sasl:
        needs = f'[[listeners]] {one.name}: protocol = "{one.protocol}" needs'
        if not mechanisms:
            yield f'{needs} security.sasl_mechanisms, such as ["SCRAM-SHA-512"]'
        elif not any(_is_usable(each, one, security, oauth) for each in mechanisms):
            why = "; ".join(f"{each} {_NEEDS[each]}" for each in mechanisms)
            yield f"{needs} a mechanism that can be used there, such as SCRAM-SHA-512: {why}"
    for each in mechanisms:
        anywhere = any(_is_usable(each, one, security, oauth) for one in with_sasl)
        if each in (OAUTHBEARER, EXTERNAL) and not anywhere:
            yield f"security.sasl_mechanisms: no listener can offer {each}, which {_NEEDS[each]}"


def _is_usable(
    mechanism: str, one: ListenerSettings, security: SecuritySection, oauth: OauthSection
) -> bool:
    tls = one.security.tls
    if mechanism == PLAIN:
        return tls or security.plain_without_tls
    if mechanism == OAUTHBEARER:
        return tls or oauth.without_tls
    if mechanism == EXTERNAL:
        return tls and one.client_certificates != "none"
    return True
