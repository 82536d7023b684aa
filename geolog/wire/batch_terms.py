"""Conditions on a batch, which travel with it from its writer to the partition's owner."""

import attrs

from geolog.wire.entry import WriterStamp
from topology.errors import InvalidArgumentError


@attrs.frozen(kw_only=True)
class BatchTerms:
    """Conditions on a batch; the owner refuses the whole batch if it cannot meet them."""

    writer: WriterStamp | None = None
    """The named writer and its seqs, for exactly-once appends."""
    seq_before: int | None = None
    """The seq that must be accepted before it: the last that its session sent earlier and does
    not know to be refused, or a refused one that the application chose and must send again."""
    expect_sequence: int | None = None
    """The sequence that its first record must get."""
    transaction_first: int | None = None
    """The first transaction id in it, if any record has one."""
    transaction_last: int | None = None
    """The last transaction id, which is also the highest: they never decrease."""
    is_local_only: bool = False
    """Whether its records must not leave the region."""


NO_TERMS = BatchTerms()


def local_only_with_transaction(transaction_id: int) -> InvalidArgumentError:
    """The error for a local-only record with a transaction id.

    Mirrors would not know the id, so a later home could accept a lower one behind it.
    """
    return InvalidArgumentError(
        f"a local-only record cannot have a transaction id, {transaction_id}: other regions"
        " would not know it. Drop one of the two"
    )
