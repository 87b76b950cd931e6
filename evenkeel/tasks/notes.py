"""What members of a task group write into its ledger: notes, one record each, as JSON.

A note says what its author wants or has seen. Its position in the ledger decides its effect, the
same for all readers (`evenkeel.tasks.ledger`): some notes are void when they arrive.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import attrs

MEMBERS_MAX: Final = 64
TASKS_MAX: Final = 1_000
NAME_BYTES_MAX: Final = 100
"""Of a task, and of a member's id."""
METADATA_BYTES_MAX: Final = 512
CHECKPOINT_BYTES_MAX: Final = 256
NOTICE_BYTES_MAX: Final = 64 * 1024
"""With these a snapshot fits into one record of the default size: tests/evenkeel/tasks."""

T = TypeVar("T")


class NoteError(ValueError):
    """These bytes are not a note, or it exceeds a limit."""


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or len(value) > TASKS_MAX:
        raise NoteError("not a list of names")
    return tuple(_name(one) for one in value)


def _name(value: object) -> str:
    """Printable and without quotes, so that a name in JSON is no longer than its bytes."""
    if not isinstance(value, str) or not 0 < len(value.encode()) <= NAME_BYTES_MAX:
        raise NoteError(f"not a name of 1 to {NAME_BYTES_MAX} bytes: {value!r:.200}")
    if not value.isprintable() or '"' in value or "\\" in value:
        raise NoteError(f"a name must be printable, without quotes: {value!r:.200}")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise NoteError(f"not a number: {value!r:.200}")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise NoteError(f"neither true nor false: {value!r:.200}")
    return value


def _text(bytes_max: int) -> Callable[[object], str]:
    def check(value: object) -> str:
        if not isinstance(value, str) or len(value.encode()) > bytes_max:
            raise NoteError(f"not a text of at most {bytes_max} bytes")
        return value

    return check


def _bytes(bytes_max: int) -> Callable[[object], bytes]:
    def check(value: object) -> bytes:
        data = b64decode(value, validate=True) if isinstance(value, str) else value
        if not isinstance(data, bytes) or len(data) > bytes_max:
            raise NoteError(f"not bytes, or more than {bytes_max}")
        return data

    return check


def checked_metadata(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise NoteError("metadata must be a mapping")
    try:
        text = json.dumps(dict(value))
    except (TypeError, ValueError) as error:
        raise NoteError("metadata must be a mapping that can be written as JSON") from error
    if len(text) > METADATA_BYTES_MAX:
        raise NoteError(f"metadata has more than {METADATA_BYTES_MAX} bytes")
    found: Mapping[str, Any] = json.loads(text)
    return found


def _field(check: Callable[[object], T]) -> T:
    found: T = attrs.field(converter=check)
    return found


@attrs.frozen(kw_only=True)
class Note:
    """`by` is the id of the member that wrote it."""

    by: str = _field(_name)


@attrs.frozen(kw_only=True)
class Join(Note):
    """I join the group, with a lease of `lease_ms` from now on."""

    lease_ms: int = _field(_number)
    metadata: Mapping[str, Any] = _field(checked_metadata)


@attrs.frozen(kw_only=True)
class Renew(Note):
    """I renew my lease. `beat` counts the renewals, for the author."""

    beat: int = _field(_number)


@attrs.frozen(kw_only=True)
class Evict(Note):
    """By the leader: this member does not stop what that plan takes away from it, so its lease can
    no longer be renewed."""

    member: str = _field(_name)
    version: int = _field(_number)


@attrs.frozen(kw_only=True)
class Expire(Note):
    """This member's lease has expired: a whole lease has passed since I read its renewal at
    `alive`."""

    member: str = _field(_name)
    alive: int = _field(_number)


@attrs.frozen(kw_only=True)
class Leave(Note):
    """I run nothing any more and leave the group."""


@attrs.frozen(kw_only=True)
class Submit(Note):
    """Add these tasks. Any client may write this. A known task stays as it is."""

    tasks: tuple[str, ...] = _field(_names)


@attrs.frozen(kw_only=True)
class Withdraw(Note):
    """Remove these tasks. Any client may write this."""

    tasks: tuple[str, ...] = _field(_names)


@attrs.frozen(kw_only=True)
class View(Note):
    """The group coordinator's generation, its members, and their leader.

    The offset of a view that counts is the *term* of its leader.
    """

    generation: int = _field(_number)
    leader: str = _field(_name)
    members: tuple[str, ...] = _field(_names)


@attrs.frozen(kw_only=True)
class Plan(Note):
    """By the leader: which member runs which tasks, in the form of the group's sharding."""

    version: int = _field(_number)
    term: int = _field(_number)
    stop_all: bool = _field(_flag)
    shares: str = _field(_text(512 * 1024))


@attrs.frozen(kw_only=True)
class Stopped(Note):
    """I have stopped what this plan takes away from me."""

    version: int = _field(_number)


@attrs.frozen(kw_only=True)
class Running(Note):
    """I run everything that this plan gives me."""

    version: int = _field(_number)


@attrs.frozen(kw_only=True)
class Release(Note):
    """I have stopped these tasks; their next owners may take them. This releases only locks with
    tokens up to `up_to`: a late note must not release a task that was acquired again since."""

    tasks: tuple[str, ...] = _field(_names)
    up_to: int = _field(_number)


@attrs.frozen(kw_only=True)
class Acquire(Note):
    """I take these tasks under this plan. The offset of this note is their fencing token."""

    version: int = _field(_number)
    tasks: tuple[str, ...] = _field(_names)


@attrs.frozen(kw_only=True)
class Finish(Note):
    """This task, which I hold with that token, is done for good."""

    task: str = _field(_name)
    token: int = _field(_number)


@attrs.frozen(kw_only=True)
class Checkpoint(Note):
    """How far I have come with this task, which I hold with that token."""

    task: str = _field(_name)
    token: int = _field(_number)
    value: bytes = _field(_bytes(CHECKPOINT_BYTES_MAX))


@attrs.frozen(kw_only=True)
class Notify(Note):
    """A message to all members; the ledger keeps nothing of it."""

    payload: bytes = _field(_bytes(NOTICE_BYTES_MAX))


@attrs.frozen(kw_only=True)
class Snapshot(Note):
    """The state after all notes before `as_of`, which may then be deleted."""

    as_of: int = _field(_number)
    state: Mapping[str, Any] = attrs.field(eq=False)


KINDS: Final[Mapping[str, type[Note]]] = {
    **{"alive": Renew, "gone": Expire},
    **{
        kind.__name__.lower(): kind
        for kind in (
            *(Join, Evict, Leave, Submit, Withdraw, View, Plan, Stopped, Running),
            *(Release, Acquire, Finish, Checkpoint, Notify, Snapshot),
        )
    },
}
"""By the name of the note in the ledger."""
NAMES: Final[Mapping[type[Note], str]] = {kind: name for name, kind in KINDS.items()}


def encode(note: Note) -> bytes:
    """The note as one line of JSON."""
    fields = attrs.asdict(note, recurse=False)
    for name, value in fields.items():
        if isinstance(value, bytes):
            fields[name] = b64encode(value).decode()
    found = {"note": NAMES[type(note)], **fields}
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()


def decode(data: bytes) -> Note:
    """The note in these bytes.

    Raises:
        NoteError: if they are not a note of a known kind.
    """
    try:
        found = json.loads(data)
        kind = KINDS[found.pop("note")]
        return kind(**found)
    except NoteError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise NoteError(f"not a note: {data!r:.200}") from error
