"""The version of this software, which clients and nodes tell each other.

It is here because the client library, the Spark data source and the node all tell it, and share
nothing above this package. `pyproject.toml` reads it too.
"""

from typing import Final

VERSION: Final = "0.2.0"
