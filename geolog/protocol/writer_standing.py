"""The seam between a named writer's session and the owner of a partition: its values.

A session fences each partition before it appends there: older sessions of the writer can then
append nothing more. It belongs to one life of its stream and to one home epoch. The owner
answers with the writer's standing, which is all that the session needs to know of the
partition's state.
"""

import attrs

from geolog.protocol.batch_seqs import BatchSeqs
from geolog.protocol.generations import Generation

NO_NONCE = 0
"""Nonce of an epoch that no fence began: a log of earlier versions has such epochs."""

NONCE_MAX = (1 << 128) - 1

EPOCH_MAX = (1 << 32) - 1
"""Highest epoch of a writer's session."""


@attrs.frozen
class WriterFence:
    """The beginning of a session: its epoch, and a nonce that no other session draws."""

    epoch: int
    nonce: int


def is_possible_fence(fence: WriterFence) -> bool:
    """Whether a session can begin with this fence."""
    return 0 < fence.epoch <= EPOCH_MAX and NO_NONCE < fence.nonce <= NONCE_MAX


@attrs.frozen(kw_only=True)
class WriterStanding:
    """What one partition has of a named writer, as its owner answers."""

    home_epoch: int
    """The one in which sessions of writers begin; see `SessionHome`."""
    epoch: int
    """Highest epoch of its sessions, counting a fence that is not acknowledged yet."""
    seq_highest: int
    """Highest seq in the log; -1 for none."""
    generations: tuple[Generation, ...]
    remembered: tuple[BatchSeqs, ...]
    """Seqs of the batches that the log remembers, in append order."""
    gone: tuple[BatchSeqs, ...] = ()
    """Seqs answered in an earlier home that are not in the log of this one."""
