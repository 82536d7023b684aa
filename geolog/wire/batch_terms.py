"""Conditions on a batch, which travel with it from its writer to the partition's owner."""

import attrs

from geolog.wire.entry import WriterStamp


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


NO_TERMS = BatchTerms()
