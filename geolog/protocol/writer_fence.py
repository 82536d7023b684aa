"""Decides whether a session of a named writer may fence a partition.

Theory of operation. A session has an epoch and a nonce. A partition takes a fence with a higher
epoch than the one it has. It takes an equal epoch only with an equal nonce: this is the same
session again, because the answer was lost when the owner changed, or because the stream has
more partitions now. If two sessions choose the same epoch, the one that comes first to a
partition keeps the other from ever having them all.

A repeated fence is written to the log again, like the first. An owner that lost its partition
without knowing cannot have anything acknowledged. If it answered a repeat from memory, it could
confirm a session that its successor has already deposed.

Rules: PROTOCOL S21.
"""

from geolog.protocol.writer_standing import NO_NONCE


def may_fence(known_epoch: int, known_nonce: int, epoch: int, nonce: int) -> bool:
    """Whether a partition that knows one session of a writer takes a fence of another."""
    if epoch != known_epoch:
        return epoch > known_epoch
    return nonce == known_nonce != NO_NONCE
