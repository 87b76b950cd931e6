"""HTTP before anybody has logged in."""

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from random import Random
from typing import Any, ClassVar, Final, cast

import trio
from trio.testing import MockClock

from balancer.registry.security import Security
from broker.security.decisions import Decision
from broker.security.principal import Principal
from broker.security.users import Users
from runtime.http.access import LOGIN_BYTES_MAX, OWN_ROUTES, UserAccess
from runtime.http.guard import Guard
from runtime.http.permissions import ByNames
from runtime.http.roles import ROLES, Role
from runtime.http.server import HEAD_BYTES_MAX, PIECE_BYTES, Answer, HttpServer, json_answer
from runtime.http.sessions import Sessions
from tests.fuzz.engine import Target
from tests.fuzz.mutate import INPUT_BYTES_MAX, Sample, havoc
from wire.scram import ScramMechanism, credential_of, salted_password

USER: Final = "ann"
PASSWORD: Final = "right"
SPED_UP: Final = 200
"""How much faster time goes: a wrong password is answered late, and a thread computes it in real
time."""
TAKEN_MAX: Final = HEAD_BYTES_MAX + LOGIN_BYTES_MAX + 2 * PIECE_BYTES
"""What may be taken of a connection: a head, a body, and what came in the same piece."""
OPEN: Final = frozenset(key for key, role in ROLES.items() if role is Role.NOBODY)


def _users() -> Users:
    kind, salt = ScramMechanism.SHA_256, b"salt" * 4
    made = credential_of(kind, salted_password(kind, PASSWORD, salt, 4096), salt, 4096)
    security = Security(credentials={USER: {kind: made}})
    return Users(lambda: security, {})


class _Connection:
    """Sends everything at once, and then its end."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self.taken = 0
        self.sent = b""

    async def receive_some(self, most: int) -> bytes:
        piece = bytes(self._data[self.taken : self.taken + most])
        self.taken += len(piece)
        return piece

    async def send_all(self, data: bytes) -> None:
        self.sent += data

    async def aclose(self) -> None:
        pass


class HttpLogin(Target):
    """A connection to a port that asks for a name, by somebody who has none: it is answered or
    dropped, nothing but what is open to everybody is reached, and little of it is read."""

    name: ClassVar = "http-login"

    def __init__(self) -> None:
        self._users = _users()
        self._secrets = 0

    def samples(self, dice: Random) -> Iterator[Sample]:
        wrong = base64.b64encode(b"ann:wrong").decode()
        heads = (
            "GET /status",
            "GET /readyz",
            "GET /console/",
            "GET /console/events",
            "GET /session",
            "POST /admin/drain",
        )
        credentials = (
            "",
            f"Authorization: Basic {wrong}\r\n",
            "Authorization: Basic AAAA\r\n",
            "Authorization: Bearer secret-2\r\n",
            "Cookie: evenkeel-1=secret-2; __Host-evenkeel-1=x\r\nX-Evenkeel-CSRF: y\r\n",
            "Origin: http://h\r\nSec-Fetch-Site: same-origin\r\nX-Evenkeel-Console: 1\r\n",
            "Accept: text/html\r\nSec-Fetch-Mode: navigate\r\n",
        )
        for number, head in enumerate(heads):
            for who in (credentials[number % len(credentials)], dice.choice(credentials)):
                yield Sample(f"{head} HTTP/1.1\r\nHost: h\r\n{who}\r\n".encode())
        for path in ("/login", "/token", "/logout"):
            for body in ({"user": USER, "password": "wrong"}, {"user": 1}, {}):
                yield Sample(_post(path, json.dumps(body)))

    def mutate(self, sample: Sample, dice: Random, pool: Sequence[Sample]) -> bytes:
        head, _, body = sample.data.partition(b"\r\n\r\n")
        if not head.startswith(b"POST /") or dice.random() < 0.5:
            return havoc(sample.data, dice, pool)
        texts = ("", "\0", "x" * 5_000, "\\ud800", "ann", "\u00df", "a,b=c", "[" * 3_000)
        user, password = dice.choice(texts), dice.choice(texts)
        text = havoc(body, dice, ()).decode("utf-8", "replace")
        if dice.random() < 0.5:
            text = '{"user": "' + user + '", "password": "' + password + '"}'
        path = head.split(b" ")[1].decode("ascii", "replace")
        return _post(path, text)[:INPUT_BYTES_MAX]

    def run(self, data: bytes) -> Iterable[str]:
        reached: list[tuple[str, str]] = []
        bugs: list[Exception] = []
        stream = _Connection(data)
        server = self._server(reached, bugs)
        access = cast(UserAccess, server.access)
        clock = MockClock(rate=SPED_UP, autojump_threshold=inf)
        trio.run(server.handle, cast(Any, stream), clock=clock)
        if bugs:
            raise bugs[0]
        assert set(reached) <= OPEN, f"{reached} without a login"
        proved = access.succeeded > 0  # havoc may have guessed it
        assert proved or not len(access.sessions), "somebody got a session"
        assert proved or stream.taken <= TAKEN_MAX, f"{stream.taken} bytes were read"
        return (stream.sent.partition(b"\r\n")[0].decode("ascii"), *map(str, reached))

    def _server(self, reached: list[tuple[str, str]], bugs: list[Exception]) -> HttpServer:
        def route(key: tuple[str, str]) -> Any:
            async def answer(_body: Any) -> Answer:
                reached.append(key)
                return json_answer({})

            return answer

        users = self._users
        access = UserAccess(
            users,
            Sessions(users.holds, lambda: 1, self._secret, session_s=60),
            ByNames({Role.ADMINISTER: frozenset({f"User:{USER}"})}),
            _noted,
            lambda: 1,
            cookie="evenkeel-1",
        )
        return HttpServer(
            {key: route(key) for key in ROLES if key not in OWN_ROUTES},
            lambda _what, error: bugs.append(error),
            Guard(any_name=True),
            access=access,
        )

    def _secret(self) -> str:
        self._secrets += 1
        return f"{self._secrets} that nobody guesses"


def _noted(_who: Principal, _host: str, _role: Role, _api: str, _decision: Decision) -> None:
    pass


def _post(path: str, body: str) -> bytes:
    data = body.encode("utf-8", "replace")
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def http_targets() -> list[Target]:
    return [HttpLogin()]
