"""Planted bugs: who may use the HTTP port.

Each has the test that has to notice it, and the edit; `tests/test_planted_bugs.py` plants them.
"""

from typing import Final

from runtime.http import access, roles
from runtime.http.access import UserAccess
from runtime.http.attempts import Attempts
from runtime.http.permissions import ByRules
from runtime.http.sessions import Sessions
from simulator.mutants.planting import Where

HERE: Final = "tests/runtime/http/test_access.py::"

HTTP: Final[dict[str, tuple[str, Where]]] = {
    "28: a route that nobody thought of needs no more than a login": (
        f"{HERE}test_a_route_that_nobody_knows_needs_a_login_to_be_told_so",
        (roles.needed, "Role.ADMINISTER", "Role.KNOWN"),
    ),
    "28: a page needs no text of its session": (
        f"{HERE}test_a_session_changes_something_only_with_its_own_text",
        (UserAccess._session, "if not hmac.compare_digest(", "if False and not ("),
    ),
    "28: a session outlives its password": (
        f"{HERE}test_who_has_another_password_is_out_at_once",
        (Sessions.is_alive, "self._holds(session.proof)", "True"),
    ),
    "28: this machine's token works from anywhere": (
        f"{HERE}test_the_token_of_this_machine_works_here_only",
        (UserAccess._of_header, "session.kind is Kind.LOCAL and not asking.here", "False"),
    ),
    "28: an address may guess for ever": (
        f"{HERE}test_an_address_that_guesses_has_to_wait_and_no_other",
        (Attempts.begin, "self._keep(key, left - 1, boot_ns)", "pass"),
    ),
    "28: a rule for more overrules a denial": (
        f"{HERE}test_a_denial_to_look_is_one_whatever_else_is_allowed",
        (ByRules.decide, "if decision.allowed or decision.rule is not None:",
         "if decision.allowed:"),
    ),
    "28: a browser's Basic is taken": (
        f"{HERE}test_a_browser_is_sent_to_the_login_page_and_asked_nothing_by_itself",
        (access._is_browser, "return any(", "return False and any("),
    ),
}  # fmt: skip
