"""What each HTTP request needs: a table of all routes, and nothing is open by being forgotten.

A role includes those before it. Without an authorizer the settings `http.readers`,
`http.operators` and `http.administrators` give them; with one, rules on the resource Cluster do:

    READ        Describe        status, metrics, the console's picture
    OPERATE     ClusterAction   move masters, drain nodes, pause and steer the balancer
    ADMINISTER  Alter           add and remove nodes, replicas, the cluster's version

Alter is also what changes rules by Kafka's protocol: an operator cannot make himself more.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from wire.acls import Operation


class Role(IntEnum):
    NOBODY = 0
    """No login is needed."""
    KNOWN = 1
    """Any user that has logged in: about itself."""
    READ = 2
    OPERATE = 3
    ADMINISTER = 4


OPERATIONS: Final[Mapping[Role, Operation]] = {
    Role.READ: Operation.DESCRIBE,
    Role.OPERATE: Operation.CLUSTER_ACTION,
    Role.ADMINISTER: Operation.ALTER,
}
"""On the resource Cluster."""
LOGIN_PAGE: Final = "/console/login.html"
METRICS: Final = ("GET", "/metrics")
PROBES: Final = (("GET", "/livez"), ("GET", "/readyz"))
"""Open, for supervisors; why a node is not ready is told only to those who may read."""

ROLES: Final[Mapping[tuple[str, str], Role]] = {
    **dict.fromkeys(PROBES, Role.NOBODY),
    # The page to log in, and what it consists of; its files are public in the repository.
    ("GET", LOGIN_PAGE): Role.NOBODY,
    ("GET", "/console/login.js"): Role.NOBODY,
    ("GET", "/console/session.js"): Role.NOBODY,
    ("GET", "/console/dom.js"): Role.NOBODY,
    ("GET", "/console/console.css"): Role.NOBODY,
    ("GET", "/console/icon.svg"): Role.NOBODY,
    ("POST", "/login"): Role.NOBODY,
    ("POST", "/token"): Role.NOBODY,
    ("POST", "/logout"): Role.KNOWN,
    ("GET", "/session"): Role.KNOWN,
    METRICS: Role.READ,
    ("GET", "/status"): Role.READ,
    ("GET", "/nodes"): Role.READ,
    ("GET", "/balancer"): Role.READ,
    ("GET", "/problem"): Role.READ,
    ("GET", "/usage"): Role.READ,
    ("GET", "/cluster/version"): Role.READ,
    ("GET", "/"): Role.READ,
    ("GET", "/console"): Role.READ,
    ("GET", "/console/"): Role.READ,
    ("GET", "/console/actions.js"): Role.READ,
    ("GET", "/console/balancer.js"): Role.READ,
    ("GET", "/console/live.js"): Role.READ,
    ("GET", "/console/main.js"): Role.READ,
    ("GET", "/console/map.js"): Role.READ,
    ("GET", "/console/nodes.js"): Role.READ,
    ("GET", "/console/tables.js"): Role.READ,
    ("GET", "/console/words.js"): Role.READ,
    ("GET", "/console/events"): Role.READ,
    ("GET", "/console/topic"): Role.READ,
    ("GET", "/console/consumers"): Role.READ,
    ("POST", "/admin/placement"): Role.OPERATE,
    ("POST", "/admin/plan"): Role.OPERATE,
    ("POST", "/admin/balancer"): Role.OPERATE,
    ("POST", "/admin/move"): Role.OPERATE,
    ("POST", "/admin/drain"): Role.OPERATE,
    ("POST", "/admin/cancel"): Role.OPERATE,
    ("POST", "/admin/policy"): Role.OPERATE,
    ("POST", "/admin/weights"): Role.OPERATE,
    ("POST", "/admin/node"): Role.ADMINISTER,
    ("POST", "/admin/replicas"): Role.ADMINISTER,
    ("POST", "/admin/cluster-version"): Role.ADMINISTER,
}


def needed(method: str, path: str) -> Role:
    """What a request needs; one that is not in the table needs the most."""
    return ROLES.get((method, path), Role.ADMINISTER)
