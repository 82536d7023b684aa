"""All ledgers that a node knows, rebuilt from its journal, and which ones damage puts in doubt.

Theory of operation. Replay goes through the files in order. A table adds what its file knew of
all ledgers, and replaces nothing; a record adds itself. When bytes that once were proven cannot
be read, the file may have held a record of any ledger, with two exceptions: ledgers whose first
record is certainly in a later file, and ledgers that did not exist when the damage was found
(ids of `doubt_below` and higher). All others are in doubt: a missing entry of theirs is
UNKNOWN, not ABSENT, and they take no adds of a writer, because the lost record may have been a
fence. Each table lists the damaged files. So a table written after the damage, which lacks what
was lost, does not pass for the whole truth. Settled damage was made good and puts nothing in
doubt. That applies to its extent only: if the same file is damaged further, or goes, the new
damage counts.

Of deleted ledgers only the ids remain: what older files say of them is not replayed. Ledgers
that were let go remain, with epoch and fence; a restart finds their entries in old files again,
until they are let go again.

Rules: PROTOCOL J8, J12, N9 and N12.
"""

from collections.abc import Iterator
from typing import assert_never

from geolog.protocol.ids import InstanceId, LedgerId
from geolog.protocol.replica import LedgerReplica
from geolog.wire.limits import INT64_MAX
from regions.storage.protocol.damage import Damage, DamageSet
from regions.storage.protocol.intervals import IntervalSet
from regions.storage.protocol.records import (
    FLAG_FIRST,
    FLAG_LET_GO,
    FLAG_RECOVERY,
    JournalRecord,
    RecordKind,
)
from regions.storage.protocol.tables import FoundTable, LedgerRow


class Ledgers:
    """The node's ledgers. Invariant: the replica of a ledger in doubt says so."""

    def __init__(self, instance: InstanceId) -> None:
        self._instance = instance
        self._replicas: dict[LedgerId, LedgerReplica] = {}
        self._first_file_ids: dict[LedgerId, int] = {}
        self._damaged = DamageSet()
        self._damaged_through = 0
        self.settled = DamageSet()
        """Settled damage, which puts nothing in doubt."""
        self.deleted = IntervalSet()
        """Ids of deleted ledgers."""
        self._doubt_below = LedgerId(INT64_MAX)

    def __len__(self) -> int:
        return len(self._replicas)

    def __iter__(self) -> Iterator[LedgerReplica]:
        return iter(self._replicas.values())

    @property
    def knows_any(self) -> bool:
        """Whether any ledger was ever held here, as far as the journal still tells."""
        return bool(self._replicas) or self.deleted.intervals_count > 0

    @property
    def is_any_in_doubt(self) -> bool:
        """Whether some file lost records to damage."""
        return self._damaged_through > 0

    @property
    def damaged_through(self) -> int:
        """The newest file whose damage puts ledgers in doubt; 0 if there is none."""
        return self._damaged_through

    @property
    def damaged(self) -> DamageSet:
        """Unsettled damage, which puts ledgers in doubt."""
        return self._damaged.without(self.settled)

    @property
    def doubt_below(self) -> LedgerId:
        """Ledgers with this id or a higher one are not in doubt."""
        return self._doubt_below if self.is_any_in_doubt else LedgerId(0)

    def bound_doubt(self, below: LedgerId) -> None:
        """Exempt ledgers with ids >= `below`: they were created after the damage."""
        self._doubt_below = below
        self._renew_doubt()

    def replica_of(self, ledger: LedgerId) -> LedgerReplica:
        """The ledger's replica; for an unknown ledger a new replica, not kept until `keep`."""
        replica = self._replicas.get(ledger)
        if replica is not None:
            return replica
        return LedgerReplica(
            ledger,
            self._instance,
            is_in_doubt=self._is_in_doubt(ledger),
            is_deleted=ledger in self.deleted,
        )

    def keep(self, replica: LedgerReplica, *, first_file_id: int) -> None:
        """Keep a newly known ledger; its first record is certainly in that file, unless 0."""
        kept = self._replicas.setdefault(replica.ledger, replica)
        assert kept is replica, f"ledger {replica.ledger} has two replicas"
        if first_file_id:
            self._first_file_ids.setdefault(replica.ledger, first_file_id)
        replica.is_in_doubt = self._is_in_doubt(replica.ledger)

    def delete(self, ledger: LedgerId) -> None:
        """Delete the ledger for ever."""
        replica = self._replicas.pop(ledger, None)
        if replica is not None:
            replica.is_deleted = True  # For those that still refer to it.
        self._first_file_ids.pop(ledger, None)
        self.deleted.add(ledger)

    def settle(self, damage: Damage) -> None:
        """Note that everything this damage took was made good."""
        self.settled.add(damage)
        self._renew_doubt()

    def on_record(self, file_id: int, record: JournalRecord) -> None:
        """Replay one record of the file."""
        match record.kind:
            case RecordKind.OPEN | RecordKind.FENCE | RecordKind.ENTRY:
                if record.ledger not in self.deleted:
                    self._restore(file_id, record)
            case RecordKind.DELETE:
                self.delete(record.ledger)
            case RecordKind.SETTLE:
                self.settle(record.damage)
            case RecordKind.MARK | RecordKind.TABLE | RecordKind.RETIRE:
                pass
            case _:
                assert_never(record.kind)

    def _restore(self, file_id: int, record: JournalRecord) -> None:
        replica = self.replica_of(record.ledger)
        match record.kind:
            case RecordKind.OPEN:
                replica.restore_open(record.epoch)
            case RecordKind.FENCE:
                if record.flags & FLAG_LET_GO:
                    replica.restore_let_go(record.epoch)
                else:
                    replica.restore_fence(record.epoch)
            case _:
                is_recovery = bool(record.flags & FLAG_RECOVERY)
                replica.restore_entry(
                    record.entry, record.epoch, record.lac, is_recovery=is_recovery
                )
        self.keep(replica, first_file_id=file_id if record.flags & FLAG_FIRST else 0)

    def on_table(self, table: FoundTable) -> None:
        """Replay what a file's table says of all ledgers known when it was written."""
        for first, last in table.deleted:
            self.deleted.add(first, last)
        for deleted in [ledger for ledger in self._replicas if ledger in table.deleted]:
            self.delete(deleted)
        self.settled.update(table.settled)
        self._damaged.update(table.damaged)
        self._renew_doubt()
        for row in table.ledgers():
            if row.ledger in self.deleted:
                continue
            replica = self.replica_of(row.ledger)
            replica.restore_open(row.epoch_highest)
            replica.restore_entry(
                row.entry_highest, row.epoch_highest, row.lac, is_recovery=False
            )
            replica.is_fenced |= row.is_fenced
            replica.is_let_go |= row.is_let_go
            self.keep(replica, first_file_id=row.first_file_id)

    def on_damage(self, damage: Damage) -> None:
        """Note that these files, or proven bytes of them, cannot be read."""
        self._damaged.add(damage)
        self._renew_doubt()

    def rows(self) -> Iterator[LedgerRow]:
        """Rows for a table: all ledgers known now, ordered by id.

        A ledger deleted during the iteration is left out.
        """
        for ledger in sorted(self._replicas):
            replica = self._replicas.get(ledger)
            if replica is None:
                continue
            yield LedgerRow(
                ledger,
                replica.epoch_highest,
                replica.lac,
                replica.entry_highest,
                self._first_file_ids.get(ledger, 0),
                replica.is_fenced,
                replica.is_let_go,
            )

    def _is_in_doubt(self, ledger: LedgerId) -> bool:
        if not self.is_any_in_doubt or ledger >= self._doubt_below:
            return False
        return self._first_file_ids.get(ledger, 0) <= self._damaged_through

    def _renew_doubt(self) -> None:
        self._damaged_through = self.damaged.through
        for replica in self._replicas.values():
            replica.is_in_doubt = self._is_in_doubt(replica.ledger)
