"""Changes as server-sent events: applied to the last state, each gives the next one."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from runtime.console.changes import HEARTBEAT, RETRY, applied, difference, event

VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5))
KEYS = st.sampled_from(["a", "b", "__proto__", ""])
SECTIONS = st.dictionaries(
    st.sampled_from(["groups", "leases", "nodes"]),
    st.one_of(VALUES, st.lists(VALUES, max_size=3), st.dictionaries(KEYS, VALUES, max_size=4)),
)


@given(SECTIONS, SECTIONS)
def test_a_change_applied_to_the_one_before_is_the_one_after(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    told = json.loads(json.dumps(difference(before, after)))
    assert applied(before, told) == {**before, **after}, "what was not looked at stays"


def test_only_what_is_different_is_told() -> None:
    before = {"groups": {"1": [1], "2": [2]}, "leases": [3, 3], "paused": False}
    after = {"groups": {"1": [1], "3": [3]}, "leases": [3, 2], "paused": False}
    assert difference(before, after) == {
        "groups": {"+": {"3": [3]}, "-": ["2"]},
        "leases": {"=": [3, 2]},
    }
    assert difference(before, before) == {}
    assert difference({}, {"none": None}) == {"none": {"=": None}}


@given(st.text())
def test_no_text_ends_an_event(text: str) -> None:
    """Names come from users; a line end in one of them must not begin another event."""
    data = event("change", {"name": text})
    assert data.startswith(b"event: change\ndata: ")
    assert data.endswith(b"\n\n")
    lines = data[:-2].decode().split("\n")
    assert len(lines) == 2
    assert "\r" not in lines[1]
    assert json.loads(lines[1].removeprefix("data: ")) == {"name": text}


def test_the_pieces_that_say_nothing() -> None:
    """A comment begins with a colon; both end with an empty line."""
    assert HEARTBEAT.startswith(b":")
    assert RETRY.startswith(b"retry: ")
    assert all(one.endswith(b"\n\n") for one in (HEARTBEAT, RETRY))
