"""Compares the records read with the records written: every byte, in order, each once."""

import hashlib
from collections.abc import Sequence

from geolog.client.reading.record import RecordBatch

PROBLEMS_MAX = 5
"""Further problems are only counted."""


class Comparison:
    """Takes records as they are read and counts the correct ones.

    The record of sequence n must be `expected[n]`. Equality decides. The hash covers each
    record with its length; it is printed so that people can compare two runs.
    """

    def __init__(self, expected: Sequence[bytes]) -> None:
        self._expected = expected
        self._hash = hashlib.sha256()
        self._problems: list[str] = []
        self._problems_count = 0
        self.read_count = 0
        self._is_equal = bytearray(len(expected))
        self.read_bytes = 0

    def __repr__(self) -> str:
        return f"<Comparison read={self.read_count} equal={self.equal_count}>"

    @property
    def equal_count(self) -> int:
        """Records read back equal, at their places."""
        return self._is_equal.count(1)

    def missing_count(self, first: int, end: int) -> int:
        """Records from `first` to before `end` that were not read back equal."""
        return self._is_equal.count(0, first, end)

    @property
    def problems(self) -> tuple[str, ...]:
        """The first few deviations, and the number of the others."""
        more = self._problems_count - len(self._problems)
        return (*self._problems, *([f"and {more:,} more"] if more else []))

    @property
    def digest(self) -> str:
        """The hash of all records read so far."""
        return self._hash.hexdigest()

    def add(self, batch: RecordBatch) -> None:
        """Compare the next batch."""
        first = batch.first_sequence + batch.first_row
        for offset, value in enumerate(batch.values()):
            self._add(first + offset, value)

    def _add(self, found: int, value: bytes) -> None:
        sequence = self.read_count
        self.read_count += 1
        self.read_bytes += len(value)
        self._hash.update(len(value).to_bytes(4, "big"))
        self._hash.update(value)
        if found != sequence:
            self.problem(f"read sequence {found}, expected {sequence}")
        elif sequence >= len(self._expected):
            self.problem(f"read sequence {sequence}, which nobody wrote")
        elif self._expected[sequence] != value:
            self.problem(f"read sequence {sequence} with different bytes")
        else:
            self._is_equal[sequence] = 1

    def problem(self, text: str) -> None:
        """Note a deviation."""
        self._problems_count += 1
        if len(self._problems) < PROBLEMS_MAX:
            self._problems.append(text)
