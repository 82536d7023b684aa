"""Defects of tails: of the nodes that are followed, and of the readers that follow."""

import attrs

from geolog.client.reading.walk import Chunk, PartitionWalk
from geolog.protocol.ids import EntryId, SegmentEntry
from geolog.protocol.ledger_state import LedgerRecord
from geolog.protocol.messages import Follow
from geolog.protocol.replica import Effect, LedgerReplica
from geolog.protocol.stream_state import SegmentRecord
from sim.planted.planted_bug import PlantedBug

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001

_on_follow = LedgerReplica._on_follow
_follow = PartitionWalk._follow


def follow_beyond_lac(replica: LedgerReplica, follow: Follow) -> list[Effect]:
    """Give a follower every entry that the node has, acknowledged or not."""
    beyond = attrs.evolve(replica, lac=max(replica.lac, replica.entry_highest))
    return _on_follow(beyond, follow)


async def go_on_at_the_tail(
    walk: PartitionWalk, segment: SegmentRecord, ledger: LedgerRecord, first: EntryId
) -> Chunk | None:
    """Skip what came while the reader was busy, and check nothing (as in bug 42)."""
    tail = walk._tail
    if tail is not None and first <= tail.lac and not walk._hear_of_ledger():
        walk._entry = SegmentEntry(walk._entry + tail.lac + 1 - first)
        walk._sequence = None
        return None
    return await _follow(walk, segment, ledger, first)


TAIL_BUGS: dict[str, PlantedBug] = {
    "follow-beyond-lac": PlantedBug(
        98,
        "a node gives its followers entries that are not acknowledged",
        [(LedgerReplica, "_on_follow", follow_beyond_lac)],
    ),
    "busy-reader-skips": PlantedBug(
        99,
        "a reader that was busy goes on at the tail, past what it missed",
        [(PartitionWalk, "_follow", go_on_at_the_tail)],
    ),
}
"""These bugs, by name."""
