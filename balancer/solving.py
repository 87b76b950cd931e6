"""Planning asks questions, and somebody answers them: at once, or in another thread.

With hundreds of groups an answer takes tens of milliseconds. So a decision is a generator: it
yields problems, is sent plans, and returns a command. Whoever drives it may come back later, as
long as the situation it decides about is the same; if it is not, the decision is dropped.
"""

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeAlias, TypeVar

from balancer.planner.planner import Plan, solve
from balancer.planner.problem import Problem
from balancer.replicas import ReplicaPlan, ReplicaProblem, plan_replicas

Question: TypeAlias = Problem | ReplicaProblem
Answer: TypeAlias = Plan | ReplicaPlan
Solver: TypeAlias = Callable[[Question], Answer | None]
"""None: the answer is not there yet; ask again with the same object."""
C = TypeVar("C")
Decision: TypeAlias = Generator[Question, Any, C]


def at_once(question: Question) -> Answer:
    return solve(question) if isinstance(question, Problem) else plan_replicas(question)


class Thinking(Generic[C]):
    """A decision under way."""

    def __init__(self, decision: Decision[C]) -> None:
        self._decision = decision
        self._question: Question | None = None
        self.decided = False

    def go_on(self, solver: Solver) -> C | None:
        """As far as there are answers; the command, if it has `decided` on one."""
        answer: Answer | None = None
        while True:
            if self._question is not None:
                answer = solver(self._question)
                if answer is None:
                    return None
            try:
                self._question = self._decision.send(answer)
            except StopIteration as end:
                self.decided = True
                command: C = end.value
                return command
