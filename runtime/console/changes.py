"""Changes between two pictures, and server-sent events for them.

A picture is a dict of sections. A section that is a dict is compared by key; any other is sent
again as a whole. `samples` only grow: only their tail is sent. dashboards/console/live.js applies
changes; `applied` here defines their meaning.
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
    """Changed section -> {"=": value}, or {"+": {key: value}, "-": [keys]}.

    A section that is missing in `after` was not updated: it stays.
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
    """One server-sent event. JSON without line breaks fits into one data line."""
    data = json.dumps(value, separators=(",", ":"))
    return f"event: {name}\ndata: {data}\n\n".encode()
