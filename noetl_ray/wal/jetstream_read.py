"""Reading what a stream holds now, to an end that is fixed before the delivery starts.

Waiting for more than there is would scan to the end of the stream and stall writers (P9). Knows
nothing of records: whoever asks gets messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl_ray.wal.jetstream_consumer import OrderedConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from noetl_ray.wal.connection import Connection
    from noetl_ray.wal.jetstream_api import Message, StreamApi

READ_BATCH = 512
READ_IDLE_S = 1.0


async def read_messages(
    connection: Connection,
    api: StreamApi,
    subject_filter: str,
    from_position: int = 1,
    *,
    only_last: bool = False,
) -> AsyncGenerator[Message, None]:
    """All messages that match now, in order, then end.

    Args:
        connection: The connection of the stream.
        api: The stream.
        subject_filter: Which messages.
        from_position: The first position that counts.
        only_last: Deliver the last message of each subject only. A delivery that had to be made
            anew may bring others too, never fewer.
    """
    end = await _end_of(api, subject_filter)
    from_position = max(1, from_position)
    if end < from_position:
        return
    consumer = await OrderedConsumer.open(
        connection, api, [subject_filter], from_position, only_last=only_last
    )
    try:
        while True:
            batch = await consumer.next_batch(READ_BATCH, READ_IDLE_S)
            for message in batch:
                if message.position > end:
                    return
                from_position = message.position + 1
                yield message
            if not batch:
                # The message we wait for may have been purged meanwhile.
                end = min(end, await _end_of(api, subject_filter))
            if from_position > end:
                return
    finally:
        await consumer.close()


async def last_of_each(
    connection: Connection, api: StreamApi, subject_filter: str
) -> list[Message]:
    """The last message of each subject that matches, in order of position."""
    found: dict[str, Message] = {}
    async for message in read_messages(connection, api, subject_filter, only_last=True):
        found[message.subject] = message
    return sorted(found.values(), key=lambda message: message.position)


async def _end_of(api: StreamApi, subject_filter: str) -> int:
    message = await api.last(subject_filter)
    return 0 if message is None else message.position
