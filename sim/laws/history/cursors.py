"""Laws about readers of a cursor: what they were given, all together."""

from collections.abc import Iterator

from sim.world.history import Ending, History, words_of


def everything_is_delivered(history: History, ending: Ending) -> Iterator[str]:
    """Law 27: once a cursor was read to the end, every record was delivered."""
    if not history.is_cursor_read:
        return
    for record in ending.found:
        if not history.cursor.is_done(record.partition, record.home_epoch, record.sequence):
            yield f"no reader of the cursor was given {words_of(record.place)}"
