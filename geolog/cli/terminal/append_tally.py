"""Tally of an append: the answers so far, and how to report them."""

from collections.abc import Iterator

import attrs

from geolog.cli.exits import exit_of
from geolog.cli.terminal.output import Plain
from geolog.client.writing.pipeline import AnsweredRun
from geolog.client.writing.writer_pending import Receipt
from geolog.protocol.append_failure import in_other_words
from geolog.settings.quantities import counted
from topology.errors import GeologError


@attrs.define
class AppendTally:
    """Counts of an append so far, with the first and the last answer."""

    appended: int = 0
    duplicates: int = 0
    """Records that were already in the stream and were not appended again."""
    bytes: int = 0
    first: dict[str, Plain] | None = None
    last: dict[str, Plain] | None = None

    @property
    def answered_count(self) -> int:
        """Number of records answered, appended or not."""
        return self.appended + self.duplicates

    def add(self, answers: AnsweredRun) -> None:
        """Count the next run of answers."""
        is_duplicate = answers.is_duplicate
        first, last = answers.receipt(0), answers.receipt(len(answers) - 1)
        self.first = self.first or answer_document(first, is_duplicate=is_duplicate)
        self.last = answer_document(last, is_duplicate=is_duplicate)
        if is_duplicate:
            self.duplicates += len(answers)
        else:
            self.appended += len(answers)
        self.bytes += answers.size_bytes

    def summary(self, took_s: float) -> str:
        """Format the summary line for people."""
        has_place = self.last is not None and self.last["dlsn"] is not None
        last = f", the last at {self.last['dlsn']}" if self.last and has_place else ""
        skipped = f", {self.duplicates:,} already there" if self.duplicates else ""
        return f"{counted(self.appended, 'record')} appended in {took_s:.2f} s{last}{skipped}"

    def reached(self) -> str:
        """Say how many records are safe, for a run that ended early."""
        has_place = self.last is not None and self.last["sequence"] is not None
        up_to = f", up to sequence {self.last['sequence']}" if self.last and has_place else ""
        were = "was" if self.appended == 1 else "were"
        return f"{counted(self.appended, 'record')} {were} acknowledged{up_to}"


def answer_document(receipt: Receipt | None, *, is_duplicate: bool) -> dict[str, Plain]:
    """Build the answer to one record, as `append -o jsonl` prints it."""
    if receipt is None:
        return {
            "partition": None,
            "dlsn": None,
            "sequence": None,
            "duplicate": is_duplicate,
        }
    document: dict[str, Plain] = {
        "partition": receipt.partition,
        "dlsn": str(receipt.dlsn),
        "sequence": receipt.sequence,
        "duplicate": receipt.duplicate,
    }
    return document | {"provisional": True} if receipt.provisional else document


def with_tally(errors: BaseExceptionGroup[GeologError], tally: AppendTally) -> GeologError:
    """Return the most important error, with the number of records that are safe."""
    error = min(_leaves(errors), key=exit_of)
    return in_other_words(error, f"{error} ({tally.reached()})")


def _leaves(errors: BaseExceptionGroup[GeologError]) -> Iterator[GeologError]:
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
