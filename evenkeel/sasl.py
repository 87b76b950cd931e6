"""Who we are, for brokers that ask (SASL)."""

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import attrs
import trio

from evenkeel.errors import ConfigurationError
from wire.client_settings import Mechanism

TokenSource: TypeAlias = Callable[[], str] | Callable[[], Awaitable[str]]


def _mechanism(value: Mechanism | str) -> Mechanism:
    try:
        return Mechanism(value)
    except ValueError:
        known = ", ".join(one.value for one in Mechanism)
        raise ConfigurationError(
            f"mechanism {value!r} is not supported", advice=f"known are {known}"
        ) from None


def _check_text(username: str, password: str) -> None:
    """A password of the environment may have bytes that are no UTF-8, which Python keeps."""
    try:
        username.encode()
        password.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # which has the password
        raise ConfigurationError("a username or password with half of a character") from None


@attrs.frozen(kw_only=True)
class Sasl:
    """A name and a password, or (OAUTHBEARER) a token.

    `token` may be a function: it is called for every authentication, also when a session is
    renewed. An async one runs among the client's tasks, any other one in a thread, so it may wait.
    """

    mechanism: Mechanism = attrs.field(converter=_mechanism)
    username: str = ""
    password: str = attrs.field(default="", repr=False)
    token: str | TokenSource | None = attrs.field(default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        if not self.mechanism.has_password:
            if not self.token or self.username or self.password:
                raise ConfigurationError("OAUTHBEARER needs a token, and nothing else")
        elif not self.username or not self.password:
            raise ConfigurationError(f"{self.mechanism.value} needs a username and a password")
        elif self.token is not None:
            raise ConfigurationError(f"{self.mechanism.value} has no use for a token")
        elif "\0" in self.username + self.password:
            raise ConfigurationError("a username or password with a zero byte")
        else:
            _check_text(self.username, self.password)

    async def current_token(self) -> str:
        """ "" with a mechanism that has none; whatever the function raises."""
        token = self.token
        if token is None or isinstance(token, str):
            return token or ""
        if inspect.iscoroutinefunction(token):
            found = await token()
        else:
            found = await trio.to_thread.run_sync(token, abandon_on_cancel=True)
            if inspect.isawaitable(found):  # an async callable object
                found = await found
        if not isinstance(found, str):
            raise TypeError("a token is text")
        return found.strip()
