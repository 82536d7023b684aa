"""Where new mirrors begin, and whether a mirror has the start of a read.

A mirror can begin with any segment of its home: a snapshot of its writers opens each. So a
position is rounded down to the beginning of its segment.

Rules: PROTOCOL H7, H10 and H13.
"""

from collections.abc import Sequence

from geolog.client.reading.bounds import (
    EARLIEST,
    AtDlsn,
    AtSequence,
    AtTransaction,
    Bound,
    Latest,
    bound_text,
)
from geolog.client.reading.scan import PartitionScan
from geolog.protocol.ids import DLSN, FIRST_SEQUENCE
from geolog.protocol.ids import Sequence as LogSequence
from topology.errors import InvalidArgumentError

_FIRST_DLSN = DLSN(1, 0, 0)


def check_begin_of_new(relay_from: Bound, relay_to: Sequence[str]) -> None:
    """InvalidArgumentError unless mirrors of a new stream, which is empty, can begin there."""
    if relay_from == EARLIEST:
        return
    if not relay_to:
        raise _no_target(relay_from)
    is_later = (
        (isinstance(relay_from, AtSequence) and relay_from.sequence > 0)
        or (isinstance(relay_from, AtDlsn) and relay_from.dlsn != _FIRST_DLSN)
        or isinstance(relay_from, AtTransaction)
    )
    if is_later:
        raise InvalidArgumentError(
            f"mirrors of a new stream begin with its first record, not at"
            f" {bound_text(relay_from)}: it has none yet. Add the target later, with"
            f" `geolog stream update --relay-to … --relay-from {bound_text(relay_from)}`"
        )


def check_begin_of_more(relay_from: Bound, relay_to: Sequence[str] | None) -> None:
    """InvalidArgumentError if a beginning is given, and no target that could begin there."""
    if relay_from != EARLIEST and not relay_to:
        raise _no_target(relay_from)


def _no_target(relay_from: Bound) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"mirrors cannot begin at {bound_text(relay_from)}: no target is given. Name the"
        " regions to relay to, or leave the beginning out"
    )


async def segment_begin(home: PartitionScan, sequence: int) -> LogSequence:
    """The first sequence of the segment with this one, or of the one before if it has none."""
    await home.refresh()
    has = await home.last_segment(lambda one: one.first_sequence <= sequence)
    return FIRST_SEQUENCE if has is None else has.first_sequence


async def has_start(mirror: PartitionScan, home: PartitionScan, start: Bound) -> bool:
    """Whether a read of a mirror from there gives what one of its home would.

    A mirror may begin later than its home, if it was told to.
    """
    first = await mirror.trim()
    if first <= await home.trim():
        return True
    match start:
        case Latest():
            return True
        case AtSequence(sequence):
            return sequence >= first
        case AtDlsn(dlsn):
            await mirror.refresh()
            number = await mirror.next_segment(1)
            row = None if number is None else await mirror.segment(number)
            return row is not None and dlsn.segment >= row.segment
        case _:
            return False
