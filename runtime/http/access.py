"""Who asks over HTTP, and whether that user may.

Programs say who they are with every request: `Authorization: Basic`, or `Bearer` with a token from
POST /token. Browsers log in once (POST /login) and get a cookie that scripts cannot read and that
other sites' pages do not send (HttpOnly, SameSite=Strict); what changes something also needs the
session's CSRF text in a header. A browser's Basic is refused: it would send it along with whatever
any page asks for.

Users and passwords are those of SASL. A password costs thousands of rounds of a hash, so a thread
computes them, one after the other, and few may wait. An unknown user costs the same, and gets the
same words.
"""

import base64
import hmac
from collections.abc import Callable
from typing import Any, Final

import attrs
import trio

from broker.security.decisions import Decision
from broker.security.exchanges import PlainExchange, Proved, Work
from broker.security.principal import ANONYMOUS, Principal
from broker.security.users import MECHANISM_NAMES, Users
from runtime.http.attempts import Attempts
from runtime.http.guard import CSRF_HEADER, Forbidden
from runtime.http.permissions import Permissions, role_of
from runtime.http.roles import LOGIN_PAGE, METRICS, PROBES, Role, needed
from runtime.http.server import (
    REQUEST_BYTES_MAX,
    Answer,
    Asking,
    BadRequest,
    Caller,
    Headers,
    Refused,
    Route,
    Stream,
    json_answer,
)
from runtime.http.sessions import Kind, Session, Sessions

LOGIN_BYTES_MAX: Final = 4 * 1024
"""Of a body before it is known who sends it."""
WAITING_MAX: Final = 16
"""Passwords that wait for the thread; one more is told to come again."""
FAILED_S: Final = 0.1
"""A wrong password is answered later by this, as on Kafka's port."""
WRONG: Final = "wrong user name or password"
NO_STORE: Final[Headers] = (("Cache-Control", "no-store"),)
HOW: Final = (
    "log in: Authorization: Basic, or Bearer with a token of POST /token; browsers at "
    f"{LOGIN_PAGE}; the command line with --command-config (docs/security.md)"
)

Note = Callable[[Principal, str, Role, str, Decision], None]
"""Writes a decision to the audit log: who, from where, for which role, what was asked, and why."""


class UserAccess:
    """A runtime.http.server.Access: those who may are users that have logged in."""

    def __init__(
        self,
        users: Users,
        sessions: Sessions,
        permissions: Permissions,
        note: Note,
        now_boot_ns: Callable[[], int],
        *,
        cookie: str,
        open_metrics: bool = False,
    ) -> None:
        """`cookie` is its name: browsers send one node's cookies to all ports of a machine."""
        self._users, self.sessions, self._permissions = users, sessions, permissions
        self._note, self._now, self._cookie = note, now_boot_ns, cookie
        self._open_metrics = open_metrics
        self._attempts = Attempts()
        self._thread = trio.CapacityLimiter(1)
        self._waiting = 0
        self.succeeded = self.failed = 0
        """Passwords that were right, and that were wrong."""

    # -- may it? ------------------------------------------------------------------------------

    async def admit(self, asking: Asking) -> Caller:
        """
        Raises:
            Refused: it is not known who asks, or that user may not.
            Forbidden: what a page sends lacks the session's CSRF text.
        """
        role = needed(asking.method, asking.path)
        if self._open_metrics and (asking.method, asking.path) == METRICS:
            role = Role.NOBODY
        if role is Role.NOBODY:
            return await self._admit_anybody(asking)
        session = await self._session(asking)
        if session is None:
            raise self._unknown(asking, role)
        decision = self._permissions.decide(session.principal, asking.host, role)
        if role > Role.KNOWN:
            self._note(session.principal, asking.host, role, _api(asking), decision)
        if not decision.allowed:
            why = f"{session.principal} may not: it needs the role {role.name.lower()}"
            raise Refused(json_answer({"error": why}, 403, NO_STORE))
        return self._known(asking, session, role)

    async def _admit_anybody(self, asking: Asking) -> Caller:
        """Who it is matters for what is told, if it is known at all."""
        session = None
        try:
            session = await self._session(asking)
        except Forbidden:
            pass  # a page that logs in anew does not know its old session's text
        except Refused:
            if asking.method != "GET":
                raise
        return self._known(asking, session, Role.NOBODY)

    def _known(self, asking: Asking, session: Session | None, role: Role) -> Caller:
        def may_go_on() -> bool:
            if session is None:
                return role is Role.NOBODY
            decision = self._permissions.decide(session.principal, asking.host, role)
            return decision.allowed and self.sessions.is_open(session)

        proved = session is not None
        most = REQUEST_BYTES_MAX if proved else LOGIN_BYTES_MAX
        return Caller(session, proved, most, may_go_on)

    def _unknown(self, asking: Asking, role: Role) -> Refused:
        if _shows_page(asking):
            return Refused(Answer(303, b"", headers=(("Location", LOGIN_PAGE), *NO_STORE)))
        if role > Role.KNOWN:  # who asks about itself, as the page to log in does, attempts nothing
            decision = Decision(False, None, "no login")
            self._note(ANONYMOUS, asking.host, role, _api(asking), decision)
        return Refused(json_answer({"error": HOW}, 401, _challenge(asking)))

    def told(self, asking: Asking, caller: Caller, answer: Answer | Stream) -> Answer | Stream:
        """What a probe says to somebody unknown is yes or no: why not is for those who may read."""
        if (asking.method, asking.path) not in PROBES or not isinstance(answer, Answer):
            return answer
        who = None if caller.session is None else caller.session.principal
        if who is not None and self._permissions.decide(who, asking.host, Role.READ).allowed:
            return answer
        return attrs.evolve(answer, body=b"ok\n" if answer.status == 200 else b"not ready\n")

    # -- who is it? ---------------------------------------------------------------------------

    async def _session(self, asking: Asking) -> Session | None:
        header = asking.headers.get("authorization")
        if header is not None:
            return await self._of_header(asking, header)
        secret = _cookies(asking.headers.get("cookie", "")).get(self._cookie_name(asking))
        session = None if secret is None else self.sessions.of_cookie(secret)
        if session is not None and asking.method != "GET":
            sent = asking.headers.get(CSRF_HEADER, "")
            if not hmac.compare_digest(sent.encode(), session.csrf.encode()):
                raise Forbidden(f"this page's session needs the header {CSRF_HEADER}: load it anew")
        return session

    async def _of_header(self, asking: Asking, header: str) -> Session:
        scheme, _, value = header.partition(" ")
        if scheme.lower() == "bearer":
            session = self.sessions.of_token(value.strip())
            if session is None or (session.kind is Kind.LOCAL and not asking.here):
                self._fails(asking, "the token is unknown, or has ended")
                why = "the token is unknown, expired or revoked: get a new one of this node"
                raise Refused(json_answer({"error": why}, 401, _challenge(asking)))
            return session
        if scheme.lower() != "basic":
            raise Refused(json_answer({"error": HOW}, 401, _challenge(asking)))
        if _is_browser(asking):
            why = f"a browser logs in at {LOGIN_PAGE}: it would send this along for any page"
            raise Refused(json_answer({"error": why}, 401, _challenge(asking)))
        session = self.sessions.of_header(header)
        if session is None:
            user, password = _basic(value)
            proved = await self._prove(asking, user, password)
            session = self.sessions.remember(header, proved.principal, proved.proof)
        return session

    async def _prove(self, asking: Asking, user: str, password: str) -> Proved:
        """
        Raises:
            Refused: the password is wrong, or too many are tried.
        """
        wait_s = self._attempts.begin(asking.host, self._now())
        if wait_s:
            why = f"too many wrong passwords from this address: wait {wait_s} s"
            raise Refused(_later(429, why, wait_s))
        if self._waiting >= WAITING_MAX:
            self._attempts.give_back(asking.host, self._now())
            raise Refused(_later(503, "too many logins at once: try again", 1))
        message = "\0".join(("", user, password)).encode("utf-8", "surrogatepass")
        step = PlainExchange(self._users).step(message)
        if isinstance(step, Work):
            self._waiting += 1
            try:
                step = await trio.to_thread.run_sync(step.run, limiter=self._thread)
            finally:
                self._waiting -= 1
        # As on Kafka's port: the password may have been changed while it was computed.
        holds = isinstance(step, Proved) and (step.proof is None or self._users.holds(step.proof))
        if isinstance(step, Proved) and holds:
            self._attempts.give_back(asking.host, self._now())
            self.succeeded += 1
            role = max(Role.READ, needed(asking.method, asking.path))
            decision = Decision(True, None, "the password was right")
            self._note(step.principal, asking.host, role, _api(asking), decision)
            return step
        self.failed += 1
        exists = any(self._users.find(user, one) for one in MECHANISM_NAMES.values())
        # An unknown name may be a password in the wrong field: it is written down nowhere.
        who = Principal("User", user) if exists else ANONYMOUS
        self._fails(asking, "wrong password" if exists else "unknown user", who)
        await trio.sleep(FAILED_S)
        raise Refused(json_answer({"error": WRONG}, 401, _challenge(asking)))

    def _fails(self, asking: Asking, why: str, who: Principal = ANONYMOUS) -> None:
        role = max(Role.READ, needed(asking.method, asking.path))
        self._note(who, asking.host, role, _api(asking), Decision(False, None, why))

    # -- logging in and out -------------------------------------------------------------------

    def own_route(self, asking: Asking, caller: Caller) -> Route | None:
        act = _OWN.get((asking.method, asking.path))
        if act is None:
            return None

        async def route(body: Any) -> Answer:  # noqa: ANN401 # JSON
            return await act(self, asking, caller, body or {})

        return route

    async def _log_in(self, asking: Asking, _caller: Caller, body: dict[str, Any]) -> Answer:
        """{"user": name, "password": text}: a cookie for a browser."""
        proved = await self._prove(asking, *_user_and_password(body))
        secret, session = self.sessions.begin(Kind.BROWSER, proved.principal, proved.proof)
        cookie = self._set_cookie(asking, secret, self.sessions.session_s)
        return json_answer(self._about(asking, session), headers=(cookie, *NO_STORE))

    async def _make_token(self, asking: Asking, caller: Caller, body: dict[str, Any]) -> Answer:
        """{"user": name, "password": text}, or nothing with Basic: a token for a program."""
        session = caller.session
        if session is None or session.kind is not Kind.BASIC:
            proved = await self._prove(asking, *_user_and_password(body))
            principal, proof = proved.principal, proved.proof
        else:
            principal, proof = session.principal, session.proof
        secret, session = self.sessions.begin(Kind.TOKEN, principal, proof)
        told = {"token": secret, "expires_in_s": self.sessions.session_s}
        role = role_of(self._permissions, principal, asking.host).name.lower()
        return json_answer({**told, "role": role}, headers=NO_STORE)

    async def _log_out(self, asking: Asking, caller: Caller, _body: dict[str, Any]) -> Answer:
        """End the session, or the token, that asks."""
        assert caller.session is not None
        if caller.session.kind is Kind.LOCAL:
            raise BadRequest("the token of this machine's administrator ends with the node")
        self.sessions.end(caller.session)
        headers = (self._set_cookie(asking, "", 0), *NO_STORE)
        return json_answer({"ended": True}, headers=headers)

    async def _tell_session(self, asking: Asking, caller: Caller, _query: Any) -> Answer:  # noqa: ANN401
        assert caller.session is not None
        return json_answer(self._about(asking, caller.session), headers=NO_STORE)

    def _about(self, asking: Asking, session: Session) -> dict[str, object]:
        role = role_of(self._permissions, session.principal, asking.host)
        who, csrf = str(session.principal), session.csrf
        return {"login": True, "user": who, "role": role.name.lower(), "csrf": csrf}

    def _cookie_name(self, asking: Asking) -> str:
        """With TLS, a name that no other host and no plain page can set (RFC 6265bis, 4.1.3)."""
        return f"__Host-{self._cookie}" if asking.https else self._cookie

    def _set_cookie(self, asking: Asking, secret: str, age_s: int) -> tuple[str, str]:
        rules = f"Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict"
        secure = "; Secure" if asking.https else ""
        return "Set-Cookie", f"{self._cookie_name(asking)}={secret}; {rules}{secure}"


_OWN: Final = {
    ("POST", "/login"): UserAccess._log_in,
    ("POST", "/token"): UserAccess._make_token,
    ("POST", "/logout"): UserAccess._log_out,
    ("GET", "/session"): UserAccess._tell_session,
}
OWN_ROUTES: Final = frozenset(_OWN)


def _api(asking: Asking) -> str:
    return f"HTTP {asking.method} {asking.path}"


def _is_browser(asking: Asking) -> bool:
    return any(name in asking.headers for name in ("origin", "sec-fetch-site", "sec-fetch-mode"))


def _shows_page(asking: Asking) -> bool:
    """Whether somebody looks at a page, and can be sent to another one."""
    page = asking.path == "/" or asking.path.startswith("/console")
    wants = "text/html" in asking.headers.get("accept", "")
    return asking.method == "GET" and page and wants


def _challenge(asking: Asking) -> Headers:
    """Browsers must not ask for a password by themselves, and send it from then on."""
    scheme = "Bearer" if _is_browser(asking) else 'Basic realm="Evenkeel", charset="UTF-8"'
    return (("WWW-Authenticate", scheme), *NO_STORE)


def _later(status: int, why: str, wait_s: int) -> Answer:
    return json_answer({"error": why}, status, (("Retry-After", str(wait_s)), *NO_STORE))


def _cookies(header: str) -> dict[str, str]:
    """The first of each name: RFC 6265 sends the most specific one first."""
    found: dict[str, str] = {}
    for part in header.split(";"):
        name, _, value = part.partition("=")
        found.setdefault(name.strip(), value.strip())
    return found


def _basic(value: str) -> tuple[str, str]:
    """
    Raises:
        BadRequest: it is not as RFC 7617 has it.
    """
    try:
        text = base64.b64decode(value.strip(), validate=True).decode()
    except ValueError:  # not ASCII, no base64, or not UTF-8
        raise BadRequest("Authorization: Basic is not base64 of UTF-8") from None
    user, _, password = text.partition(":")
    return user, password


def _user_and_password(body: dict[str, Any]) -> tuple[str, str]:
    """
    Raises:
        BadRequest: it has not both of them.
    """
    user, password = body.get("user"), body.get("password")
    if not isinstance(user, str) or not isinstance(password, str):
        raise BadRequest('expected {"user": "...", "password": "..."}')
    return user, password
