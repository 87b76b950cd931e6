"""Callbacks of the application while it consumes, and the handling of their errors."""

from collections.abc import Awaitable, Callable, Collection

from evenkeel.errors import ListenerError
from wire.cluster_view import TopicPartition

ProgressCallback = Callable[[Collection[TopicPartition]], Awaitable[None]]


class RebalanceListener:
    """Called when the consumer group assigns or revokes partitions. Override what you need.

    The methods run in the consumer's own task between two heartbeats: finish within a session. In
    `revoked` the partitions are still ours and may be committed; after `lost` they are not. An
    exception ends the consumer: the reading task gets it as the cause of a ListenerError.
    """

    async def assigned(self, places: Collection[TopicPartition]) -> None:
        """These are ours from now on. Nothing is fetched of them before this returns: seek here."""

    async def revoked(self, places: Collection[TopicPartition]) -> None:
        """Others get these, or the consumer closes: no more of their records are handed out."""

    async def lost(self, places: Collection[TopicPartition]) -> None:
        """Others may own these already: we were silent for too long."""


async def notify(callback: ProgressCallback, places: Collection[TopicPartition]) -> None:
    """Call the application.

    Raises:
        ListenerError: if it raises anything: the consumer must not continue without what its
            listener has failed to do.
    """
    try:
        await callback(sorted(places))
    except Exception as error:  # any exception of the application
        name = getattr(callback, "__qualname__", repr(callback))
        raise ListenerError(f"{name} failed", why=repr(error)) from error
