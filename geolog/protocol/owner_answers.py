"""Answers of a partition's owner to a sealed batch: a closed set of values.

Everything that an owner tells of a batch is one of these, wherever the owner is: in the same
process, behind a proxy, or in a simulated process. A batch gets one last answer. `Received` may
come before it.
"""

from abc import ABC, abstractmethod
from typing import TypeAlias

import attrs

from geolog.protocol.append_failure import told_as_unknown
from geolog.protocol.ids import DLSN, Sequence
from topology.errors import GeologError, OutcomeUnknownError


@attrs.frozen
class Received:
    """The batch is in the memory of an ack set. Its place is provisional."""

    segment: int
    entry: int
    slot: int
    """Slot of its first record in the entry."""
    first_sequence: Sequence


@attrs.frozen
class Placed:
    """The batch is in the log."""

    segment: int
    entry: int
    slot: int
    """Slot of its first record in the entry, which may hold other batches before it."""
    first_sequence: Sequence
    valid_until_s: float | None = attrs.field(default=None, eq=False)
    """When the lease under which this is told ends, by this process's clock; None without."""


@attrs.frozen
class FirstPlace:
    """Where the log has a record that was sent again."""

    dlsn: DLSN
    sequence: Sequence
    valid_until_s: float | None = attrs.field(default=None, eq=False)
    """As of `Placed`."""


class RepeatedRecords(ABC):
    """Records of which the log has seqs already: each has an answer of its own."""

    @abstractmethod
    async def answer(self, row: int) -> FirstPlace:
        """Where the record in this row is, after comparing its bytes.

        ConflictError: other bytes were appended, or the first append is in flight.
        ForgottenSeqError; its outcome is `refused` only if this partition certainly has no
        record of the seq. RepeatUnreadError, DataLostError.
        """


@attrs.frozen
class Repeated:
    """The log had a seq as high as the batch's first. Nothing of the batch was appended."""

    records: RepeatedRecords


@attrs.frozen
class AppendRefused:
    """Nothing of the batch is in the log. The owner goes on."""

    error: GeologError


@attrs.frozen
class Unknown:
    """The batch may be in the log, or is there at an unknown place. The owner goes on."""

    error: GeologError


@attrs.frozen
class OwnerEnded:
    """The owner takes nothing more, and answers every later batch so."""

    failure: GeologError
    """Why it has ended."""
    error: GeologError
    """What that means for this batch: its outcome is `refused` or `unknown`."""


def lease_over(name: object) -> OutcomeUnknownError:
    """The error for an answer that came, or would have been sent, behind the owner's lease."""
    return OutcomeUnknownError(
        f"{name}: the answer came after the home's lease had ended; another region may be the"
        " home by now, so the outcome is unknown (on_isolation=stop)"
    )


OwnerAnswer: TypeAlias = Received | Placed | Repeated | AppendRefused | Unknown | OwnerEnded


def answer_of_error(error: GeologError) -> AppendRefused | Unknown:
    """The answer of an owner that goes on, to a batch that met this error."""
    return AppendRefused(error) if error.outcome == "refused" else Unknown(error)


def place_of_all(rows: tuple[FirstPlace | GeologError, ...]) -> Placed | Unknown:
    """The place of a batch that was sent again, if the log has it whole.

    Batched differently, its records can have sequences in a row, and be in several entries.
    """
    first = rows[0]
    for row, told in enumerate(rows):
        if isinstance(told, GeologError):
            return _unplaced(told)
        assert isinstance(first, FirstPlace)
        due = attrs.evolve(first.dlsn, slot=first.dlsn.slot + row), first.sequence + row
        if (told.dlsn, told.sequence) != due:
            return Unknown(OutcomeUnknownError("its records are in the log at several places"))
    assert isinstance(first, FirstPlace)
    dlsn = first.dlsn
    return Placed(dlsn.segment, dlsn.entry, dlsn.slot, first.sequence, first.valid_until_s)


def _unplaced(error: GeologError) -> Unknown:
    """The answer to a batch of which the log has seqs, but that could not be found there.

    An error that refuses one record says nothing of the others.
    """
    if error.outcome == "refused":
        error = told_as_unknown(error, f"{error}; other records of its batch may be in the log")
    return Unknown(error)
