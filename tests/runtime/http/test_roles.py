"""Every route of a node has its row in the table of roles."""

from pathlib import Path

from runtime.http.access import OWN_ROUTES
from runtime.http.roles import ROLES, Role, needed
from tests.runtime.one_node import one_node


def test_every_route_has_a_row_and_every_row_a_route(tmp_path: Path) -> None:
    """A route without one needs the most: it is in nobody's way, and should be decided about."""
    with one_node(tmp_path) as node:
        routes = set(node.http.routes) | set(OWN_ROUTES)
    assert routes == set(ROLES)


def test_nothing_that_changes_something_is_open() -> None:
    for (method, path), role in ROLES.items():
        if method == "POST" and path not in ("/login", "/token", "/logout"):
            assert role >= Role.OPERATE, path
    assert needed("POST", "/admin/anything") is Role.ADMINISTER
    assert needed("DELETE", "/status") is Role.ADMINISTER
