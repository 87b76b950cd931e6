"""Tests of the command line use three real nodes, as those of the library do."""

from tests.evenkeel.conftest import cluster as cluster  # a fixture
from tests.evenkeel.conftest import topic as topic  # a fixture
