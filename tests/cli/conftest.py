"""The command line is tried with three real nodes, as the library is."""

from tests.evenkeel.conftest import cluster as cluster  # a fixture
from tests.evenkeel.conftest import topic as topic  # a fixture
