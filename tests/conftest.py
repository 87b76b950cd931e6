"""What all tests share: examples are never timed (a busy machine is no bug of ours).

And nodes keep what Python has compiled, wherever these tests run: they are started 150 times. They
keep records for ever unless a test says otherwise: those of many stories are from another year.
"""

import os

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["EVENKEEL_BROKER__RETENTION_MS"] = "-1"
