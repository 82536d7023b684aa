"""Finding the end of a partition: always by asking, never by assuming.

`EndSearch` decides; this shell asks metadata and nodes, and recovers the ledger when told to.
The caller bounds the wait, and a read fails rather than end short.

Rules: PROTOCOL R6.
"""

import random
from typing import assert_never

import trio

from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.ledger.ledger_metadata import LedgerMetadata, NoSuchLedgerError
from geolog.ledger.reading.ledger_reader import LedgerReader
from geolog.ledger.recovery.ledger_recovery import RecoveryConfig, recover_ledger
from geolog.ledger.replicas.replicas import Replicas
from geolog.metadata.seam import Freshness
from geolog.protocol.ids import LedgerId
from geolog.protocol.owner_absence import OwnerAbsences
from geolog.protocol.read_end import (
    Act,
    AskHighest,
    ConfirmLedger,
    EndFound,
    EndSearch,
    Fail,
    ListLast,
    LookAtLedger,
    LookForOwner,
    PartitionEnd,
    PauseBefore,
    ProbeTail,
    ReadBeginning,
    ReadLast,
    ReadLedger,
    Recover,
    ReportContradiction,
    Step,
)
from geolog.protocol.recovery_patience import RecoveryPatience
from geolog.protocol.stream_state import PartitionName


class TailFinder:
    """Finds the ends of partitions."""

    def __init__(
        self,
        *,
        partitions: PartitionMetadata,
        ledgers: LedgerMetadata,
        reader: LedgerReader,
        replicas: Replicas,
        rng: random.Random,
        recovery: RecoveryConfig,
    ) -> None:
        self._partitions = partitions
        self._ledgers = ledgers
        self._reader = reader
        self._replicas = replicas
        self._rng = rng
        self._recovery = recovery
        self._absences: OwnerAbsences[PartitionName] = OwnerAbsences()
        self._recoveries = RecoveryPatience()
        self._contradictions: dict[PartitionName, str] = {}  # While the end is looked for.

    async def end_of(
        self, name: PartitionName, *, may_be_emptied: bool = False, may_recover: bool = True
    ) -> PartitionEnd:
        """The end of the partition at some moment after this call; the caller bounds the wait.

        may_be_emptied: whether the list may lose all its rows. may_recover: whether a ledger
        that nobody moves on is recovered, which fences its writer; else it ends at least where
        it is answered with. NoSuchStreamError.
        """
        self._contradictions.pop(name, None)
        search = EndSearch(
            name,
            absences=self._absences,
            recoveries=self._recoveries,
            may_be_emptied=may_be_emptied,
            may_recover=may_recover,
        )
        step = search.begin()
        while True:
            match step:
                case EndFound(end):
                    self._contradictions.pop(name, None)
                    return end
                case Fail(error):
                    raise error
                case _:
                    step = await self._next_step(name, search, step)

    def why_not_found(self, name: PartitionName) -> str:
        """The reason why the end was not found in time, for error messages."""
        return self._contradictions.get(
            name, "too few replicas answer, or the last ledger is being recovered"
        )

    async def _next_step(self, name: PartitionName, search: EndSearch, act: Act) -> Step:
        try:
            return await self._perform(name, search, act)
        except NoSuchLedgerError as error:
            return search.on_no_ledger(error)

    async def _perform(self, name: PartitionName, search: EndSearch, act: Act) -> Step:
        match act:
            case ListLast():
                listed = await self._partitions.segments.last(name)
                return search.on_last_segment(None if listed is None else listed.record)
            case AskHighest():
                owners = self._partitions.owners
                return search.on_highest(await owners.segment_highest_certain(name))
            case ReadBeginning():
                trim = await self._partitions.trims.read_latest(name)
                return search.on_beginning(trim.first_sequence)
            case ReadLedger(ledger):
                return search.on_ledger((await self._ledgers.read(ledger)).record)
            case ProbeTail(record, above):
                view = await self._reader.probe_tail(record, above)
                return search.on_view(view, now_s=trio.current_time())
            case LookAtLedger(ledger):
                read = await self._ledgers.read(ledger, freshness=_freshness_of(act))
                return search.on_look(read.record, now_s=trio.current_time())
            case LookForOwner():
                return await self._look_for_owner(name, search, act)
            case ConfirmLedger(ledger):
                return search.on_confirmed(await self._ledgers.record_certain(ledger))
            case Recover(ledger):
                await self._recover(ledger)
                return search.on_recovered(ledger)
            case ReadLast(record, entry):
                header = (await self._reader.read_one(record, entry)).decoded.header
                return search.on_last_entry(
                    entry,
                    next_sequence=header.next_sequence,
                    append_time_us=header.append_time_us,
                )
            case PauseBefore(pause_s, then):
                await trio.sleep(pause_s)
                return then
            case ReportContradiction(why, then):
                self._contradictions[name] = why
                return then
            case _:
                assert_never(act)

    async def _look_for_owner(
        self, name: PartitionName, search: EndSearch, act: LookForOwner
    ) -> Step:
        look = await self._partitions.owners.look_for_owner(name, freshness=_freshness_of(act))
        return search.on_owner(
            look,
            is_certain=act.is_certain,
            now_s=trio.current_time(),
            session_timeout_s=self._partitions.session.timeout_s,
        )

    async def _recover(self, ledger: LedgerId) -> None:
        await recover_ledger(
            ledger,
            ledgers=self._ledgers,
            replicas=self._replicas,
            rng=self._rng,
            config=self._recovery,
        )


def _freshness_of(look: LookAtLedger | LookForOwner) -> Freshness:
    return Freshness.CERTAIN if look.is_certain else Freshness.LATEST
