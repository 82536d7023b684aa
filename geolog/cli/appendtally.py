"""How far an append is: what was answered, and how a person or a program is told."""

from collections.abc import Iterator, Sequence

import attrs

from geolog.cli.exits import exit_of
from geolog.cli.output import Plain
from geolog.cli.quantities import counted
from geolog.client.writing.pipeline import Answered
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

    def add(self, answers: Sequence[Answered]) -> None:
        """These were answered next."""
        self.first = self.first or answer_document(answers[0])
        self.last = answer_document(answers[-1])
        duplicates = sum(answered.is_duplicate for answered in answers)
        self.duplicates += duplicates
        self.appended += len(answers) - duplicates
        self.bytes += sum(answered.size_bytes for answered in answers)

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


def answer_document(answered: Answered) -> dict[str, Plain]:
    """The answer to one record, as `append -o jsonl` prints it."""
    receipt = answered.receipt
    if receipt is None:
        return {
            "partition": None,
            "dlsn": None,
            "sequence": None,
            "duplicate": answered.is_duplicate,
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
