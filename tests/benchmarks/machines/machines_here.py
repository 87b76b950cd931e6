"""Whether this machine can simulate several."""

import pytest

from benchmarks.machines.network import why_not

NOT_GIVEN = ("need root", "not found")
"""Reasons that a user can remove; any other would be a defect of ours."""


def skip_without_machines() -> None:
    why = why_not()
    if any(one in why for one in NOT_GIVEN):
        pytest.skip(f"no machines here: {why}")
    assert not why
