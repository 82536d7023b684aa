"""Records the promises of one storage node and checks that it keeps them after a cut.

A promise is an answer about durable state: a synced add, an opened or fenced ledger, an entry
returned to a recovery read. The content of an entry derives from its number, so the data of a
node can be checked without storing a copy of it.
"""

import hashlib
from collections.abc import Set

import attrs

from geolog.protocol.ids import LedgerId
from geolog.protocol.messages import Answer, ProbeAnswer, ReadAnswer

_LARGE_BYTES = 200_000
_LARGE_LEDGERS_EVERY = 6
"""Some ledgers have large entries, which fill journal files so that new ones begin."""


def body_of(ledger: LedgerId, entry: int) -> bytes:
    """The content of an entry: from a few bytes to many sectors."""
    digest = hashlib.sha256(b"%d/%d" % (ledger, entry)).digest()
    size = digest[0] * 10 + 20
    if ledger % _LARGE_LEDGERS_EVERY == 0 and digest[1] < 128:
        size = _LARGE_BYTES
    return (digest * (size // len(digest) + 1))[:size]


def next_large_ledger(ledger: int) -> LedgerId:
    """The next ledger that has large entries."""
    return LedgerId((ledger // _LARGE_LEDGERS_EVERY + 1) * _LARGE_LEDGERS_EVERY)


@attrs.define
class LedgerPromises:
    """The node's promises about one ledger."""

    ledger: LedgerId
    epoch: int = 0
    is_fenced: bool = False
    lac: int = -1
    entries: set[int] = attrs.field(factory=set)
    sent: set[int] = attrs.field(factory=set)
    """Entries that were ever sent; all others must be absent."""

    def on_epoch(self, epoch: int, *, is_fenced: bool) -> None:
        """Note the answer to an open or a fence."""
        self.epoch = max(self.epoch, epoch)
        self.is_fenced |= is_fenced

    def on_synced(self, entry: int, epoch: int, lac: int, *, is_recovery: bool) -> None:
        """Note an add that was answered as synced."""
        self.entries.add(entry)
        self.on_epoch(epoch, is_fenced=is_recovery)
        if not is_recovery:
            self.lac = max(self.lac, lac)

    def on_recovery_read(
        self, answer: ReadAnswer, epoch: int, in_flight: set[int], owed: Set[int]
    ) -> list[str]:
        """Note the answer to a recovery read, whose entries must stay; return its problems.

        Entries whose add is in flight are exempt: HAVE does not say that they are on disk.
        `owed`: the entries promised when the read was sent; the node looked for them before it
        took any later add, whichever answer arrives first.
        """
        self.on_epoch(epoch, is_fenced=True)
        problems = self.read_problems(answer, owed)
        for entry, each in enumerate(answer.entries, start=answer.first):
            if each.answer is Answer.HAVE and entry not in in_flight:
                self.entries.add(entry)
        return problems

    def read_problems(self, answer: ReadAnswer, owed: Set[int]) -> list[str]:
        """Differences between entries read and those owed or sent."""
        problems = []
        for entry, each in enumerate(answer.entries, start=answer.first):
            problems += self._answer_problems(entry, each.answer, owed)
            if each.answer is Answer.HAVE and each.body != body_of(self.ledger, entry):
                problems.append(f"entry {entry} of ledger {self.ledger} has different bytes")
        return problems

    def probe_problems(self, answer: ProbeAnswer) -> list[str]:
        """Differences between the ledger's state and the promises."""
        problems = []
        if answer.epoch_highest < self.epoch:
            problems.append(f"epoch {self.epoch} fell to {answer.epoch_highest}")
        if self.is_fenced and not answer.is_fenced:
            problems.append("the fence is gone")
        if answer.lac < self.lac:
            problems.append(f"the LAC {self.lac} fell to {answer.lac}")
        problems = [f"{each} at ledger {self.ledger}" for each in problems]
        for entry, each in enumerate(answer.answers):
            problems += self._answer_problems(entry, each, self.entries)
        return problems

    def _answer_problems(self, entry: int, answer: Answer, owed: Set[int]) -> list[str]:
        where = f"entry {entry} of ledger {self.ledger}"
        if entry in owed and answer is not Answer.HAVE:
            return [f"{where} was acknowledged but is {answer.name}"]
        if answer not in (Answer.HAVE, Answer.ABSENT):
            return [f"{where} is {answer.name}, although nothing was damaged"]
        if answer is Answer.HAVE and entry not in self.sent:
            return [f"{where} was never sent"]
        return []


@attrs.define
class NodePromises:
    """The node's promises about all ledgers, and those it broke."""

    ledgers: dict[LedgerId, LedgerPromises] = attrs.field(factory=dict)
    problems: list[str] = attrs.field(factory=list)

    def of(self, ledger: LedgerId) -> LedgerPromises:
        """The promises about one ledger; empty at first."""
        return self.ledgers.setdefault(ledger, LedgerPromises(ledger))

    @property
    def entries_count(self) -> int:
        """Number of entries promised."""
        return sum(len(each.entries) for each in self.ledgers.values())

    @property
    def fences_count(self) -> int:
        """Number of fences promised."""
        return sum(each.is_fenced for each in self.ledgers.values())
