"""The exception that a world raises when something is wrong."""


class Violation(AssertionError):
    """A world broke a promise of the protocol."""
