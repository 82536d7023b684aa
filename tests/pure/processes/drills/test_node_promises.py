"""The drills' record of a node's promises accuses no node falsely."""

from geolog.protocol.ids import EntryId, LedgerId
from geolog.protocol.messages import Answer, EntryAnswer, ReadAnswer
from sim.processes.drills.node_promises import LedgerPromises

ABSENT = ReadAnswer(1, EntryId(-1), EntryId(0), (EntryAnswer(Answer.ABSENT),))


def test_a_read_owes_no_entry_that_was_stored_after_it_was_sent() -> None:
    promises = LedgerPromises(LedgerId(7), sent={0})
    owed = frozenset(promises.entries)

    promises.on_synced(0, 2, -1, is_recovery=True)

    assert promises.on_recovery_read(ABSENT, 2, set(), owed) == []


def test_a_read_owes_every_entry_that_was_promised_before_it_was_sent() -> None:
    promises = LedgerPromises(LedgerId(7), sent={0})

    promises.on_synced(0, 2, -1, is_recovery=True)

    found = promises.on_recovery_read(ABSENT, 2, set(), frozenset(promises.entries))
    assert found == ["entry 0 of ledger 7 was acknowledged but is ABSENT"]
