"""Keeps the ensemble of an open ledger able to acknowledge: the shell around ensemble changes.

`geolog.protocol.ensemble_policy` decides what to replace, the add window what counts meanwhile,
and `geolog.protocol.ledger_change` what a conflict means. The order is: choose nodes, make the
ledger known to them, hold the slots, compare-and-set, and only then send. If metadata answers
late or never, the change stays under way. Entries that the common members cannot acknowledge
then wait, and the next call of `keep` continues the change.

Rules: PROTOCOL W5 to W7.
"""

import logging

import trio

from geolog.ledger.ledger_metadata import LedgerMetadata, NoSuchLedgerError, VersionedLedger
from geolog.ledger.nodes.connection import NodeConnection
from geolog.ledger.writing.ledger_placement import adherence_as_recorded
from geolog.ledger.writing.ledger_writer import LedgerWriter
from geolog.ledger.writing.replacement_finder import ReplacementFinder, ReplacementFound
from geolog.metadata.seam import BadVersionError, NoNodeError
from geolog.protocol.ensemble_policy import EnsemblePolicy, Replace
from geolog.protocol.ids import EntryId, InstanceId
from geolog.protocol.ledger_change import Judgement, LedgerChange
from geolog.protocol.ledger_state import Fragment, LedgerRecord
from topology.errors import (
    FencedError,
    GeologError,
    NotEnoughNodesError,
    OutcomeUnknownError,
)
from topology.ring.window_rule import Adherence

_log = logging.getLogger(__name__)

CHANGE_DISTANCE_S = 30.0
"""Minimum time between two changes of a ledger's ensemble that no entry waits for."""


FRAGMENTS_MAX = 100
"""Fragments of one ledger; its record must stay small. Beyond that a new ledger is needed."""


class EnsembleKeeper:
    """Changes the ensemble of one OPEN ledger; used by one task.

    Invariants: `ledger` is the record last known to be stored; while `_change` is set, its
    outcome is unknown and the slots that it gives away are held at the writer.
    """

    def __init__(
        self,
        ledger: VersionedLedger,
        writer: LedgerWriter,
        *,
        ledgers: LedgerMetadata,
        finder: ReplacementFinder,
        add_timeout_s: float,
        member_away_s: float,
        patience_s: float,
    ) -> None:
        self.ledger = ledger
        self.changes_count = 0
        self._finder = finder
        self.adherence = self._adherence(ledger.record)
        """Adherence of the current ensemble, including its lost members."""
        self.is_undecided = False
        """Whether a better last change may exist: the search for one hit its bound."""
        self._writer = writer
        self._ledgers = ledgers
        self._add_timeout_s = add_timeout_s
        self._patience_s = patience_s
        self._policy = EnsemblePolicy(
            member_away_s=member_away_s, change_distance_s=CHANGE_DISTANCE_S
        )
        self._change: LedgerChange | None = None
        self._known_over: dict[InstanceId, NodeConnection] = {}
        self._is_in_doubt = False

    @property
    def is_urgent(self) -> bool:
        """Whether entries in flight cannot be acknowledged, or have waited too long."""
        writer = self._writer
        return writer.is_stuck() or writer.is_late(self._add_timeout_s)

    @property
    def is_due(self) -> bool:
        """Whether `keep` has something to do."""
        return self._change is not None or self._due() is not None

    async def keep(self) -> bool:
        """Replace members if a change is due. Returns whether the ensemble changed.

        NotEnoughNodesError if no node can take their slots; FencedError if the ledger was taken
        over. After any other retriable error the change may still be under way.
        """
        if self._change is None:
            replace = self._due()
            if replace is None:
                return False
            found = await self._found(replace)
            if self._writer.is_over or not self._is_still(replace):
                return False
            self._begin(found)
            self.is_undecided = found.is_undecided
        await self._store()
        await self._writer.wait_members(patience_s=self._patience_s)
        return True

    def closing(self, last_entry: EntryId) -> LedgerChange:
        """The change that closes the ledger, whatever the outcome of a change under way."""
        record = self.ledger.record
        lasts: tuple[Fragment, ...] = (record.fragments[-1],)
        if self._change is not None:
            lasts += self._change.fragments
        return LedgerChange(
            state=record.state, epoch=record.epoch, lasts=lasts, last_entry=last_entry
        )

    def _due(self) -> Replace | None:
        view = self._writer.view(self._add_timeout_s)
        return self._policy.due(view, now_s=trio.current_time())

    def _is_still(self, replace: Replace) -> bool:
        """Whether these slots still need to be replaced: members may have come back."""
        view = self._writer.view(self._add_timeout_s)
        wanted = self._policy.wanted(view, now_s=trio.current_time())
        return wanted is not None and set(replace.slots) <= set(wanted.slots)

    async def _found(self, replace: Replace) -> ReplacementFound:
        record = self.ledger.record
        try:
            if len(record.fragments) >= FRAGMENTS_MAX:
                raise NotEnoughNodesError(
                    f"ledger {record.ledger} has {len(record.fragments)} fragments, the"
                    " maximum: its members can no longer be replaced"
                )
            found = await self._finder.find(record, replace.slots)
            if not self._writer.is_over:
                self._writer.check_helps(self._fragment_with(found))
        except GeologError as error:
            if self._policy.on_failed(now_s=trio.current_time()) and error.retriable:
                _log.warning(
                    "ledger %s: continues with fewer copies, without %s (%s)",
                    self.ledger.record.ledger,
                    self._writer.describe_away() or "members that are late",
                    error,
                )
            raise
        return found

    def _fragment_with(self, found: ReplacementFound) -> Fragment:
        first = EntryId(self._writer.lac + 1)
        return found.fragment_of(self.ledger.record, first=first)

    def _begin(self, found: ReplacementFound) -> None:
        record = self.ledger.record
        self._change = LedgerChange(
            state=record.state,
            epoch=record.epoch,
            lasts=(record.fragments[-1],),
            fragments=(self._fragment_with(found),),
        )
        self._known_over = found.connections
        self._is_in_doubt = False
        self._writer.hold(found.members)

    async def _store(self) -> None:
        """Store the change under way, and switch to the new members."""
        change = self._change
        assert change is not None
        is_stored = False
        while not is_stored:
            try:
                self.ledger = await self._ledgers.replace(
                    self.ledger, change.over(self.ledger.record)
                )
                is_stored = True
            except (BadVersionError, NoNodeError):
                is_stored = await self._is_found_stored(change)
            except OutcomeUnknownError:
                self._is_in_doubt = True
                raise
            except GeologError:
                if not self._is_in_doubt:  # Never sent, so surely not stored.
                    self._change = None
                    self._writer.unhold()
                raise
        self._finish()

    async def _is_found_stored(self, change: LedgerChange) -> bool:
        """Read the ledger again after a conflict; False to try again on top of the record."""
        try:
            found = await self._ledgers.read_latest(self.ledger.record.ledger)
        except NoSuchLedgerError as error:
            raise FencedError(str(error)) from error
        match change.judge(found.record):
            case Judgement.TAKEN:
                raise FencedError(
                    f"ledger {found.record.ledger} is {found.record.state.value} at epoch"
                    f" {found.record.epoch}: it was taken over"
                )
            case judgement:
                self.ledger = found
                return judgement is Judgement.STORED

    def _finish(self) -> None:
        record = self.ledger.record
        replaced = self._writer.instances()
        self._change = None
        self.changes_count += 1
        self.adherence = self._adherence(record)
        self._policy.on_changed(now_s=trio.current_time())
        if self._writer.is_over:
            return  # Fenced or stopped while metadata's answer was under way.
        self._writer.change(record, self._known_over)
        self._finder.avoid(sorted(replaced - self._writer.instances()))
        _log.info("ledger %s: %s", record.ledger, record.fragments[-1])

    def _adherence(self, record: LedgerRecord) -> Adherence:
        return adherence_as_recorded(record, record.fragments[-1], self._finder.own_policies)
