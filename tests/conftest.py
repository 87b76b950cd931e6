"""What all tests share: examples are never timed (a busy machine is no bug of ours)."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
