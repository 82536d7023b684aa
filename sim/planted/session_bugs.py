"""Defects of sessions of named writers: each replaces a good method."""

from geolog.partition import batch_admission
from geolog.partition.batch_admission import BatchAdmission
from geolog.partition.partition_writer import PartitionWriter
from geolog.protocol.partition_state import PartitionState
from geolog.protocol.writer_opening import OpeningEffect, ReadPartitionCount, WriterOpening
from geolog.protocol.writer_standing import WriterFence, WriterStanding
from geolog.wire.entry import WriterStamp
from sim.planted.planted_bug import PlantedBug
from sim.world.draws.session_draws import with_twins

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001

_on_fence_answered = WriterOpening._on_fence_answered

_Effects = list[OpeningEffect[WriterStanding]]


def take_every_session(
    _admission: BatchAdmission, _stamp: WriterStamp, _sent: PartitionState
) -> None:
    """Take batches of any session."""


async def fence_in_memory(owner: PartitionWriter, writer_id: bytes, fence: WriterFence) -> None:
    """Remember the fence, but write no entry."""
    owner._admission.admit_fence(writer_id, fence, owner._sent_state)


def may_fence_at_equal_epoch(
    known_epoch: int, _known_nonce: int, epoch: int, _nonce: int
) -> bool:
    """Take an equal epoch, whichever session has it."""
    return epoch >= known_epoch


def open_without_another_count(opening: WriterOpening[WriterStanding]) -> _Effects:
    """Open as soon as all partitions that were known before are fenced."""
    effects = _on_fence_answered(opening)
    return [opening._opened()] if effects == [ReadPartitionCount()] else effects


SESSION_BUGS: dict[str, PlantedBug] = {
    "epoch-ignored": PlantedBug(
        21,
        "the epoch of a named writer is ignored",
        [(BatchAdmission, "_check_session", take_every_session)],
        made_for=with_twins,
    ),
    "session-fence-in-memory": PlantedBug(
        69,
        "the fence of a named writer's session is kept in its owner's memory only",
        [(PartitionWriter, "_fence", fence_in_memory)],
        made_for=with_twins,
    ),
    "equal-epochs-pass": PlantedBug(
        73,
        "a fence with the epoch of another session passes",
        [(batch_admission, "may_fence", may_fence_at_equal_epoch)],
        made_for=with_twins,
    ),
    "count-before-last-fence": PlantedBug(
        81,
        "a session opens with the number of partitions that it read before its last fence",
        [(WriterOpening, "_on_fence_answered", open_without_another_count)],
        made_for=with_twins,
    ),
}
"""These bugs, by name."""
