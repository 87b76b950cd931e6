"""Users over HTTP: who gets in, what each role may, and what ends a login."""

import base64
import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio
from trio.testing import memory_stream_pair

from balancer.registry.registry import Registry
from balancer.registry.rules import Rule
from balancer.registry.security import Security
from broker.security.audit import AuditLog
from broker.security.authorizer import Authorizer
from broker.security.decisions import Decision
from broker.security.principal import Principal
from broker.security.users import Users
from paxos.ids import Now
from runtime.http import access as http_access
from runtime.http import attempts, sessions
from runtime.http.access import LOGIN_BYTES_MAX, UserAccess
from runtime.http.guard import Guard
from runtime.http.permissions import LOCAL, ByNames, ByRules, Permissions
from runtime.http.roles import OPERATIONS, ROLES, Role
from runtime.http.server import LOOK_EVERY_S, Answer, HttpServer, Send, Stream, json_answer
from runtime.http.sessions import Kind, Sessions
from tests.runtime.http.test_http import Bugs, Reply, exchange, read_all
from wire.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from wire.scram import ScramMechanism, credential_of, salted_password

READER, OPERATOR, CHIEF = "ann", "bob", "chief"
PASSWORD = "a password of {}"
NAMES = {
    Role.READ: frozenset({f"User:{READER}"}),
    Role.OPERATE: frozenset({f"User:{OPERATOR}"}),
    Role.ADMINISTER: frozenset({f"User:{CHIEF}"}),
}
_S = 1_000_000_000


def credentials(password: str) -> dict[int, Any]:
    kind, salt = ScramMechanism.SHA_256, b"salt" * 4
    return {kind: credential_of(kind, salted_password(kind, password, salt, 4096), salt, 4096)}


USERS = {user: credentials(PASSWORD.format(user)) for user in (READER, OPERATOR, CHIEF)}


@attrs.define(eq=False)
class Port:
    """An HTTP port with users, and what is behind it."""

    security: Security = attrs.Factory(lambda: Security(credentials=USERS))
    at_s: float = 1.0
    notes: list[tuple[str, Role, str, str]] = attrs.Factory(list)
    secrets: int = 0
    bugs: Bugs = attrs.Factory(list)
    permissions: Permissions = attrs.Factory(lambda: ByNames(NAMES))
    server: HttpServer = attrs.field(init=False)
    access: UserAccess = attrs.field(init=False)
    asked: list[str] = attrs.Factory(list)

    def __attrs_post_init__(self) -> None:
        self.open()

    def open(self, *, open_metrics: bool = False, origin: str = "") -> None:
        users = Users(lambda: self.security, {})
        kept = Sessions(users.holds, self.now, self.secret, session_s=3600)
        self.access = UserAccess(
            users,
            kept,
            self.permissions,
            self.note,
            self.now,
            cookie="evenkeel-1",
            open_metrics=open_metrics,
        )
        paths = [key for key in ROLES if key not in http_access.OWN_ROUTES]
        routes = {key: self.route(*key) for key in [*paths, ("POST", "/admin/new")]}
        routes["GET", "/readyz"] = self.not_ready
        routes["GET", "/console/events"] = self.events
        guard = Guard(origin, any_name=True)
        self.server = HttpServer(
            routes, lambda what, error: self.bugs.append((what, error)), guard, access=self.access
        )

    def now(self) -> int:
        return int(self.at_s * _S)

    def secret(self) -> str:
        self.secrets += 1
        return f"secret-{self.secrets}"

    def note(self, who: Principal, host: str, role: Role, api: str, decision: Decision) -> None:
        assert role in OPERATIONS, "the audit log has no name for it"
        if not decision.allowed:
            self.notes.append((str(who), role, api, decision.why))

    def route(self, method: str, path: str) -> Callable[[Any], Any]:
        async def answer(_body: Any) -> Answer:
            self.asked.append(f"{method} {path}")
            return json_answer({"done": True})

        return answer

    async def not_ready(self, _body: Any) -> Answer:
        return Answer(503, b"group 3 has no master yet\n")

    async def events(self, _body: Any) -> Stream:
        async def run(send: Send) -> None:
            await send(b"begun")
            await trio.sleep_forever()

        return Stream("text/event-stream", run)

    async def ask(
        self, method: str, path: str, body: object = None, host: str = "127.0.0.1", **headers: str
    ) -> Reply:
        return await exchange_from(self.server, host, message(method, path, body, headers))

    async def log_in(self, user: str, **headers: str) -> tuple[str, dict[str, Any]]:
        """As the page does: the cookie, and what is told of the session."""
        body = {"user": user, "password": PASSWORD.format(user)}
        reply = await self.ask("POST", "/login", body, **BROWSER, **headers)
        assert reply.status == 200, reply.body
        return reply.headers["set-cookie"].partition(";")[0], reply.json()


def message(method: str, path: str, body: object, headers: dict[str, str]) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1"]
    given = {"Host": "bus.lan:8092", **{k.replace("_", "-"): v for k, v in headers.items()}}
    if body is not None:
        given |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
    lines += [f"{name}: {value}" for name, value in given.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


async def exchange_from(server: HttpServer, host: str, data: bytes) -> Reply:
    client, node = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.handle, node, None, host, host == "127.0.0.1")
        with trio.fail_after(60):
            await client.send_all(data)
            return Reply(await read_all(client.receive_stream))


def basic(user: str, password: str | None = None) -> str:
    text = f"{user}:{PASSWORD.format(user) if password is None else password}"
    return "Basic " + base64.b64encode(text.encode()).decode()


BROWSER = {
    "Origin": "http://bus.lan:8092",
    "Sec_Fetch_Site": "same-origin",
    "X_Evenkeel_Console": "1",
}


# -- every route has a role -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "role"),
    [(None, Role.NOBODY), (READER, Role.READ), (OPERATOR, Role.OPERATE), (CHIEF, Role.ADMINISTER)],
)
async def test_each_user_may_what_its_role_says_and_nothing_more(
    user: str | None, role: Role
) -> None:
    """All routes of the table, and one that is not in it, which needs the most."""
    port = Port()
    extra = {} if user is None else {"Authorization": basic(user)}
    for (method, path), needs in [*ROLES.items(), (("POST", "/admin/new"), Role.ADMINISTER)]:
        if (method, path) in http_access.OWN_ROUTES or path == "/console/events":
            continue
        reply = await port.ask(method, path, {} if method == "POST" else None, **extra)
        if needs <= role:
            assert reply.status == (503 if path == "/readyz" else 200), path
        else:
            assert reply.status == (401 if user is None else 403), path
            assert f"{method} {path}" not in port.asked
            assert port.notes[-1][1:3] == (needs, f"HTTP {method} {path}")
    assert not port.bugs


async def test_a_route_that_nobody_knows_needs_a_login_to_be_told_so() -> None:
    port = Port()
    assert (await port.ask("GET", "/secret")).status == 401
    assert (await port.ask("GET", "/secret", Authorization=basic(READER))).status == 403
    assert (await port.ask("GET", "/secret", Authorization=basic(CHIEF))).status == 404


@pytest.mark.parametrize(("method", "path"), [("GET", "/session"), ("POST", "/logout")])
async def test_who_asks_about_itself_without_a_login_is_told_so(method: str, path: str) -> None:
    """As every page to log in does: that is no attempt, and no bug of ours."""
    port = Port()
    body = None if method == "GET" else {}
    assert (await port.ask(method, path, body)).status == 401
    assert port.notes == []
    assert port.bugs == []


async def test_a_probe_says_no_more_than_yes_or_no_to_somebody_unknown() -> None:
    port = Port()
    assert (await port.ask("GET", "/readyz")).body == b"not ready\n"
    reply = await port.ask("GET", "/readyz", Authorization=basic(READER, "an old password"))
    assert (reply.status, reply.body) == (503, b"not ready\n")
    reply = await port.ask("GET", "/readyz", Authorization=basic(READER))
    assert reply.body == b"group 3 has no master yet\n"


async def test_metrics_are_open_only_by_their_setting() -> None:
    port = Port()
    assert (await port.ask("GET", "/metrics")).status == 401
    port.open(open_metrics=True)
    assert (await port.ask("GET", "/metrics")).status == 200
    assert (await port.ask("GET", "/status")).status == 401


# -- passwords ------------------------------------------------------------------------------------


async def test_wrong_passwords_and_unknown_users_look_the_same() -> None:
    port = Port()
    begun = trio.current_time()
    wrong = await port.ask("GET", "/status", Authorization=basic(READER, "no"))
    unknown = await port.ask("GET", "/status", Authorization=basic("hunter2", "no"))
    assert wrong.status == unknown.status == 401
    assert (wrong.body, wrong.headers) == (unknown.body, unknown.headers)
    assert port.notes == [
        (f"User:{READER}", Role.READ, "HTTP GET /status", "wrong password"),
        ("User:ANONYMOUS", Role.READ, "HTTP GET /status", "unknown user"),
    ]
    assert trio.current_time() - begun >= 2 * http_access.FAILED_S


@pytest.mark.parametrize(
    "value", ["Basic", "Basic !", "Basic 4oKsOg", "Basic AAAA", "Digest x", ""]
)
async def test_credentials_that_are_none_are_refused(value: str) -> None:
    port = Port()
    assert (await port.ask("GET", "/status", Authorization=value)).status in (400, 401)
    assert not port.bugs


async def test_an_address_that_guesses_has_to_wait_and_no_other() -> None:
    port = Port()
    for _ in range(attempts.FAILURES_MAX):
        reply = await port.ask("GET", "/status", host="192.0.2.1", Authorization=basic("x", "y"))
        assert reply.status == 401
    right = {"Authorization": basic(READER)}
    late = await port.ask("GET", "/status", host="192.0.2.1", **right)
    assert late.status == 429
    assert 1 <= int(late.headers["retry-after"]) <= attempts.REFILL_S
    assert (await port.ask("GET", "/status", host="192.0.2.2", **right)).status == 200
    port.at_s += attempts.REFILL_S
    assert (await port.ask("GET", "/status", host="192.0.2.1", **right)).status == 200


async def test_right_passwords_are_computed_once_and_cost_no_attempts() -> None:
    port = Port()
    for _ in range(3 * attempts.FAILURES_MAX):
        assert (await port.ask("GET", "/status", Authorization=basic(READER))).status == 200
    assert port.access.succeeded == 1
    port.at_s += sessions.BASIC_S
    assert (await port.ask("GET", "/status", Authorization=basic(READER))).status == 200
    assert port.access.succeeded == 2


async def test_no_body_is_read_of_somebody_unknown() -> None:
    """And what is read of a login is little."""
    port = Port()
    head = b"POST /admin/move HTTP/1.1\r\nHost: bus.lan\r\nContent-Type: application/json\r\n"
    reply = await exchange(port.server, head + b"Content-Length: 200000\r\n\r\n", hang_up=False)
    assert reply.status == 401
    body = {"user": READER, "password": "x" * LOGIN_BYTES_MAX}
    assert (await port.ask("POST", "/login", body)).status == 400


@pytest.mark.parametrize("body", [{}, {"user": 1, "password": "x"}, {"user": "ann"}])
async def test_a_login_needs_a_name_and_a_password(body: dict[str, Any]) -> None:
    assert (await Port().ask("POST", "/login", body)).status == 400


async def test_what_is_no_json_is_not_told_back() -> None:
    """It may be a password."""
    port = Port()
    data = b'{"user": "ann", "password": hunter2}'
    head = message("POST", "/login", None, {"Content-Type": "application/json"})[:-2]
    length = f"Content-Length: {len(data)}\r\n\r\n".encode()
    reply = await exchange(port.server, head + length + data)
    assert reply.status == 400
    assert b"hunter2" not in reply.body


# -- tokens ---------------------------------------------------------------------------------------


async def test_a_token_is_its_user_until_it_ends() -> None:
    port = Port()
    made = (await port.ask("POST", "/token", {}, Authorization=basic(OPERATOR))).json()
    assert made["role"] == "operate"
    bearer = {"Authorization": f"Bearer {made['token']}"}
    assert (await port.ask("POST", "/admin/drain", {}, **bearer)).status == 200
    assert (await port.ask("POST", "/admin/node", {}, **bearer)).status == 403
    assert (await port.ask("POST", "/token", {}, **bearer)).status == 400  # makes no other
    port.at_s += made["expires_in_s"]
    assert (await port.ask("GET", "/status", **bearer)).status == 401


async def test_a_token_can_be_ended() -> None:
    port = Port()
    body = {"user": READER, "password": PASSWORD.format(READER)}
    token = (await port.ask("POST", "/token", body)).json()["token"]
    assert (await port.ask("POST", "/logout", {}, Authorization=f"Bearer {token}")).status == 200
    assert (await port.ask("GET", "/status", Authorization=f"Bearer {token}")).status == 401


@pytest.mark.parametrize("change", ["password", "deleted"])
async def test_who_has_another_password_is_out_at_once(change: str) -> None:
    """With what was seen of the password, a token, and a session."""
    port = Port()
    cookie, _ = await port.log_in(READER)
    token = (await port.ask("POST", "/token", {}, Authorization=basic(READER))).json()["token"]
    ways = ({"Authorization": basic(READER)}, {"Authorization": f"Bearer {token}"})
    for way in (*ways, {"Cookie": cookie}):
        assert (await port.ask("GET", "/status", **way)).status == 200
    others = {user: kept for user, kept in USERS.items() if user != READER}
    if change == "password":
        others[READER] = credentials("another one")
    port.security = Security(credentials=others)
    for way in (*ways, {"Cookie": cookie}):
        assert (await port.ask("GET", "/status", **way)).status == 401


async def test_who_is_out_before_its_request_is_whole_changes_nothing() -> None:
    """The head is let in, and the body may take seconds."""
    port = Port()
    token = (await port.ask("POST", "/token", {}, Authorization=basic(CHIEF))).json()["token"]
    for way in ({"Authorization": f"Bearer {token}"}, {"Authorization": basic(CHIEF)}):
        port.security = Security(credentials=USERS)
        whole = message("POST", "/admin/node", {}, way)
        client, node = memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(port.server.handle, node)
            await client.send_all(whole[:-1])
            await trio.testing.wait_all_tasks_blocked()
            port.security = Security()
            await client.send_all(whole[-1:])
            assert Reply(await read_all(client.receive_stream)).status == 401
    assert port.asked == []


async def test_a_password_that_is_changed_while_it_is_computed_lets_nobody_in() -> None:
    port = Port()
    users = port.access._users

    class Slow:
        """Users of whom one is changed between the look at the credential and the answer."""

        find, holds = users.find, users.holds

        def find_or_stand_in(self, user: str, mechanism: ScramMechanism) -> Any:
            found = users.find_or_stand_in(user, mechanism)
            if mechanism is list(ScramMechanism)[-1]:
                port.security = Security()
            return found

    port.access._users = Slow()  # type: ignore[assignment]
    assert (await port.ask("GET", "/status", Authorization=basic(READER))).status == 401
    assert port.asked == []
    assert len(port.access.sessions) == 0


@pytest.mark.parametrize("change", ["deleted", "logged out", "expired"])
async def test_the_picture_ends_with_its_session(change: str) -> None:
    port = Port()
    cookie, told = await port.log_in(READER)
    client, node = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(port.server.handle, node)
        await client.send_all(message("GET", "/console/events", None, {"Cookie": cookie}))
        assert b"200" in await client.receive_some()
        begun = trio.current_time()
        if change == "deleted":
            port.security = Security()
        elif change == "expired":
            port.at_s += 3600
        else:
            headers = {**BROWSER, "X_Evenkeel_CSRF": told["csrf"], "Cookie": cookie}
            assert (await port.ask("POST", "/logout", {}, **headers)).status == 200
        await read_all(client.receive_stream)
        assert trio.current_time() - begun <= 2 * LOOK_EVERY_S
    assert not port.bugs


async def test_sessions_have_a_limit_and_the_oldest_of_a_user_ends() -> None:
    port = Port()
    kept = port.access.sessions
    first, _ = kept.begin(Kind.TOKEN, Principal("User", READER), None)
    for _ in range(sessions.OF_USER_MAX):
        last, _ = kept.begin(Kind.TOKEN, Principal("User", READER), None)
    assert len(kept) == sessions.OF_USER_MAX
    assert kept.of_token(first) is None
    assert kept.of_token(last) is not None
    local, _ = kept.begin(Kind.LOCAL, LOCAL, None)
    for number in range(sessions.SESSIONS_MAX):
        kept.begin(Kind.TOKEN, Principal("User", f"u{number}"), None)
    assert len(kept) == sessions.SESSIONS_MAX
    assert kept.of_token(local) is not None


async def test_the_token_of_this_machine_works_here_only() -> None:
    port = Port()
    token, _ = port.access.sessions.begin(Kind.LOCAL, LOCAL, None)
    bearer = {"Authorization": f"Bearer {token}"}
    assert (await port.ask("POST", "/admin/node", {}, **bearer)).status == 200
    assert (await port.ask("POST", "/admin/node", {}, host="192.0.2.1", **bearer)).status == 401


# -- browsers -------------------------------------------------------------------------------------


async def test_a_browser_is_sent_to_the_login_page_and_asked_nothing_by_itself() -> None:
    """A browser that asks for a password by itself sends it along for whatever page asks."""
    port = Port()
    page = {"Sec_Fetch_Site": "none", "Sec_Fetch_Mode": "navigate", "Accept": "text/html"}
    for path in ("/", "/console/"):
        reply = await port.ask("GET", path, **page)
        assert (reply.status, reply.headers["location"]) == (303, "/console/login.html")
    reply = await port.ask("GET", "/console/events", Sec_Fetch_Site="same-origin")
    assert (reply.status, reply.headers["www-authenticate"]) == (401, "bearer")
    reply = await port.ask("GET", "/status")
    assert reply.headers["www-authenticate"].startswith("basic realm=")
    reply = await port.ask("GET", "/status", Authorization=basic(READER), **BROWSER)
    assert reply.status == 401


async def test_a_session_changes_something_only_with_its_own_text() -> None:
    port = Port()
    cookie, told = await port.log_in(OPERATOR)
    assert (told["user"], told["role"]) == (f"User:{OPERATOR}", "operate")
    headers = {**BROWSER, "Cookie": cookie}
    assert (await port.ask("GET", "/session", **headers)).json() == told
    assert (await port.ask("GET", "/status", **headers)).status == 200
    for wrong in ("", "secret-1", "x" * 1000):
        reply = await port.ask("POST", "/admin/drain", {}, **headers, X_Evenkeel_CSRF=wrong)
        assert reply.status == 403
    assert port.asked == ["GET /status"]
    right = {**headers, "X_Evenkeel_CSRF": told["csrf"]}
    assert (await port.ask("POST", "/admin/drain", {}, **right)).status == 200
    foreign = {**right, "Origin": "http://evil.example", "Sec_Fetch_Site": "cross-site"}
    assert (await port.ask("POST", "/admin/drain", {}, **foreign)).status == 403


async def test_the_secret_of_a_session_is_no_token_and_the_other_way_round() -> None:
    port = Port()
    cookie, told = await port.log_in(READER)
    secret = cookie.partition("=")[2]
    assert (await port.ask("GET", "/status", Authorization=f"Bearer {secret}")).status == 401
    token = (await port.ask("POST", "/token", {}, Authorization=basic(READER))).json()["token"]
    assert (await port.ask("GET", "/status", Cookie=f"evenkeel-1={token}")).status == 401
    assert told["csrf"] not in cookie


async def test_the_cookie_is_kept_from_scripts_and_from_other_sites() -> None:
    port = Port()
    body = {"user": READER, "password": PASSWORD.format(READER)}
    reply = await port.ask("POST", "/login", body, **BROWSER)
    cookie = reply.headers["set-cookie"]
    assert cookie.startswith("evenkeel-1=")
    assert {"httponly", "samesite=strict", "path=/"} <= set(cookie.split("; "))
    port.open(origin="https://bus.example.com")
    there = {**BROWSER, "Origin": "https://bus.example.com", "Host": "bus.example.com"}
    reply = await port.ask("POST", "/login", body, **there)
    cookie = reply.headers["set-cookie"]
    assert cookie.startswith("__host-evenkeel-1=")
    assert "secure" in cookie.split("; ")


async def test_somebody_who_logs_in_again_need_not_have_logged_out() -> None:
    port = Port()
    cookie, _ = await port.log_in(READER)
    _, told = await port.log_in(OPERATOR, Cookie=cookie)
    assert told["user"] == f"User:{OPERATOR}"


# -- rules ----------------------------------------------------------------------------------------


def rule(user: str, operation: Operation, permission: Permission = Permission.ALLOW) -> Rule:
    return Rule(
        resource_type=ResourceType.CLUSTER,
        pattern_type=PatternType.LITERAL,
        name=CLUSTER_NAME,
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission=permission,
    )


def rules_port(*rules: Rule) -> tuple[Port, list[Any]]:
    registry, entries = Registry(), list[Any]()
    registry.security = Security(credentials=USERS, rules=tuple(sorted(rules)))
    audit = AuditLog(entries.append, lambda: Now(_S, _S))
    authorizer = Authorizer(registry, frozenset({f"User:{CHIEF}"}), audit)
    return Port(permissions=ByRules(authorizer)), entries


async def test_rules_on_the_cluster_are_roles() -> None:
    """A rule for more is one for less, too; a denial is not overruled by one for more."""
    port, _ = rules_port(
        rule(READER, Operation.DESCRIBE),
        rule(OPERATOR, Operation.CLUSTER_ACTION),
        rule(OPERATOR, Operation.ALTER, Permission.DENY),
    )
    wanted = {
        READER: (200, 403, 403),
        OPERATOR: (200, 200, 403),
        CHIEF: (200, 200, 200),
    }
    for user, expected in wanted.items():
        way = {"Authorization": basic(user)}
        got = (
            (await port.ask("GET", "/status", **way)).status,
            (await port.ask("POST", "/admin/drain", {}, **way)).status,
            (await port.ask("POST", "/admin/node", {}, **way)).status,
        )
        assert got == expected, user


async def test_a_denial_to_look_is_one_whatever_else_is_allowed() -> None:
    port, _ = rules_port(
        rule(READER, Operation.ALTER), rule(READER, Operation.DESCRIBE, Permission.DENY)
    )
    way = {"Authorization": basic(READER)}
    assert (await port.ask("GET", "/status", **way)).status == 403
