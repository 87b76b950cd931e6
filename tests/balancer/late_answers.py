"""A solver that answers as another thread does: later."""

import pytest

from balancer.solving import Answer, Question, at_once


class LateAnswers:
    """Each question has to be put twice."""

    def __init__(self) -> None:
        self._question: Question | None = None
        self._asked = 0

    def __call__(self, question: Question) -> Answer | None:
        if question is not self._question:
            self._question, self._asked = question, 0
        self._asked += 1
        return at_once(question) if self._asked > 1 else None


@pytest.fixture(autouse=True, params=["at once", "later"])
def answers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """All planning of a test is answered at once, or later."""
    if request.param == "later":
        monkeypatch.setattr("balancer.planning.at_once", LateAnswers())
    return str(request.param)
