"""How far an append is: what was answered, and how a person or a program is told."""

from collections.abc import Iterator

import attrs

from geolog.cli.exits import exit_of
from geolog.cli.settings.quantities import counted
from geolog.cli.terminal.output import Plain
from geolog.client.writing.pipeline import AnsweredRun
from geolog.client.writing.writer_pending import Receipt
from topology.errors import GeologError


@attrs.define
class AppendTally:
    """What has been appended so far."""

    appended: int = 0
    duplicates: int = 0
    """Records that were in the stream before, and were not appended again."""
    bytes: int = 0
    first: dict[str, Plain] | None = None
    last: dict[str, Plain] | None = None

    @property
    def answered_count(self) -> int:
        """Records that were answered, appended or not."""
        return self.appended + self.duplicates

    def add(self, answers: AnsweredRun) -> None:
        """These were answered next."""
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
        """The one line at the end, for people."""
        has_place = self.last is not None and self.last["dlsn"] is not None
        last = f", the last at {self.last['dlsn']}" if self.last and has_place else ""
        before = "was" if self.duplicates == 1 else "were"
        skipped = f", {self.duplicates:,} {before} there before" if self.duplicates else ""
        return f"{counted(self.appended, 'record')} appended in {took_s:.2f} s{last}{skipped}"

    def reached(self) -> str:
        """What is safe, where a run ended early."""
        has_place = self.last is not None and self.last["sequence"] is not None
        up_to = f", up to sequence {self.last['sequence']}" if self.last and has_place else ""
        were = "was" if self.appended == 1 else "were"
        return f"{counted(self.appended, 'record')} {were} acknowledged{up_to}"


def answer_document(receipt: Receipt | None, *, is_duplicate: bool) -> dict[str, Plain]:
    """The answer to one record, as `append -o jsonl` prints it."""
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
    """The first error, with what was acknowledged before it: that much is safe."""
    error = min(_leaves(errors), key=exit_of)
    return type(error)(f"{error} ({tally.reached()})")


def _leaves(errors: BaseExceptionGroup[GeologError]) -> Iterator[GeologError]:
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
