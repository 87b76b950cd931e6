"""What a world raises where something is wrong."""


class Violation(AssertionError):
    """A world broke a promise of the protocol."""
