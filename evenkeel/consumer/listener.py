"""What an application is told while it consumes, and what becomes of errors it makes then."""

from collections.abc import Awaitable, Callable, Collection

from evenkeel.errors import ListenerError
from wire.cluster_view import TopicPartition

ProgressCallback = Callable[[Collection[TopicPartition]], Awaitable[None]]


class RebalanceListener:
    """Told when a group gives or takes partitions. Override what you need.

    These run in the consumer's own task between two heartbeats: be done within a session. In
    `revoked` the partitions are still ours and may be committed; after `lost` they are not. What
    one raises ends the consumer: whoever reads gets it, as the cause of a ListenerError.
    """

    async def assigned(self, places: Collection[TopicPartition]) -> None:
        """These are ours from now on; nothing is read of them before this returns, so seek here."""

    async def revoked(self, places: Collection[TopicPartition]) -> None:
        """These go to others, or we close: nothing of them is handed out any more."""

    async def lost(self, places: Collection[TopicPartition]) -> None:
        """These may be somebody else's already: we were silent for too long."""


async def notify(callback: ProgressCallback, places: Collection[TopicPartition]) -> None:
    """Tell the application.

    Raises:
        ListenerError: if it raises anything: a consumer that went on would go on without what its
            listener has not done.
    """
    try:
        await callback(sorted(places))
    except Exception as error:  # the application's own, whatever it is
        name = getattr(callback, "__qualname__", repr(callback))
        raise ListenerError(f"{name} failed", why=repr(error)) from error
