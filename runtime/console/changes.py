"""What has changed between two pictures, and server-sent events to say so.

A picture is a dict of sections. A section that is a dict is compared by key, any other is told anew
as a whole. `samples` only grow: what is told is their tail. A change is applied by dashboards/
console/live.js, and by `applied` here, which says what it means.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

Sections = Mapping[str, Any]
RETRY: Final = b"retry: 2000\n\n"
"""How long a browser waits before it connects again, in ms."""
HEARTBEAT: Final = b": still here\n\n"
EVENT_STREAM: Final = "text/event-stream"


def difference(before: Sections, after: Sections) -> dict[str, Any]:
    """Section -> {"=": value}, or {"+": {key: value}, "-": [keys]}; without those that are equal.

    A section that is missing in `after` has not been looked at: it stays.
    """
    changes: dict[str, Any] = {}
    for name, value in after.items():
        old = before.get(name)
        if old == value and name in before:
            continue
        if not isinstance(value, dict) or not isinstance(old, dict):
            changes[name] = {"=": value}
            continue
        put = {key: one for key, one in value.items() if key not in old or old[key] != one}
        gone = [key for key in old if key not in value]
        changes[name] = {"+": put, "-": gone} if gone else {"+": put}
    return changes


def applied(before: Sections, changes: Sections) -> dict[str, Any]:
    """The picture after the changes."""
    after = dict(before)
    for name, change in changes.items():
        if "=" in change:
            after[name] = change["="]
            continue
        section = {**after[name], **change["+"]}
        for key in change.get("-", ()):
            del section[key]
        after[name] = section
    return after


def event(name: str, value: object) -> bytes:
    """One server-sent event. JSON has no line ends of its own, so that one line is enough."""
    data = json.dumps(value, separators=(",", ":"))
    return f"event: {name}\ndata: {data}\n\n".encode()
