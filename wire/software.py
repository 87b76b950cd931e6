"""The version of this software, which clients and nodes tell each other, and the cluster versions
that it can read (docs/upgrades.md).

It is here because the client library, the Spark data source and the node all tell it, and share
nothing above this package. `pyproject.toml` reads it too.
"""

from typing import Final

VERSION: Final = "0.2.0"
CLUSTER_VERSION_BASE: Final = 1
"""Of clusters that have named none: what older nodes write and read."""
CLUSTER_VERSION_OLDEST: Final = 1
"""The oldest that this program can take part in."""
CLUSTER_VERSION_NEWEST: Final = 3
"""The newest that it can read and write."""
