"""Checks of a sealed batch that came from another process.

What readers could not use is never journaled. The owner trusts the writers of its own process,
which keep these rules by construction.
"""

from itertools import pairwise

from geolog.wire.batch import Batch, open_batch
from geolog.wire.batch_terms import BatchTerms
from geolog.wire.limits import RECORD_BYTES_MAX
from topology.errors import (
    ConflictError,
    DamagedBytesError,
    GeologError,
    InvalidArgumentError,
    TooLargeError,
)


def fault_of_batch(sealed: bytes | memoryview, terms: BatchTerms) -> GeologError | None:
    """Why the batch must be refused, or None."""
    try:
        batch = open_batch(sealed)
        if batch.header.raw_bytes > RECORD_BYTES_MAX:
            _check_record_lengths(batch)
        _check_transactions(batch, terms)
    except DamagedBytesError as error:
        return InvalidArgumentError(f"the batch is sealed wrongly: {error}")
    except (ConflictError, InvalidArgumentError, TooLargeError) as error:
        return error
    return None


def _check_record_lengths(batch: Batch) -> None:
    for row in range(len(batch)):
        length_bytes = len(batch.value(row)) + len(batch.key(row) or b"")
        if batch.header_column is not None:
            length_bytes += sum(
                len(name.encode()) + len(value) for name, value in batch.headers(row).items()
            )
        if length_bytes > RECORD_BYTES_MAX:
            raise TooLargeError(
                f"record {row} of the batch has {length_bytes} bytes, over the limit of"
                f" {RECORD_BYTES_MAX}"
            )


def _check_transactions(batch: Batch, terms: BatchTerms) -> None:
    """Check that the ids do not go back, and are those that the owner compares with its own."""
    ids: list[int] = []
    if batch.transaction_id_column is not None:
        rows = map(batch.transaction_id, range(len(batch)))
        ids = [one for one in rows if one is not None]
    for before, after in pairwise(ids):
        if after < before:
            raise ConflictError(f"transaction id {after} is too low: it follows {before}")
    first, last = (ids[0], ids[-1]) if ids else (None, None)
    if (first, last) != (terms.transaction_first, terms.transaction_last):
        raise InvalidArgumentError(
            f"the batch has transaction ids {first} to {last}; its terms tell"
            f" {terms.transaction_first} to {terms.transaction_last}"
        )
