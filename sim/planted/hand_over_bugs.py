"""Defects of hand-overs, and of refusals that owners' changes must outlive."""

from typing import cast

import attrs

from geolog.ledger.ledger_metadata import LedgerMetadata, VersionedLedger
from geolog.ledger.reading.ledger_reader import LedgerReadConfig, LedgerReader
from geolog.partition import hand_over
from geolog.partition.batch_admission import BatchAdmission
from geolog.partition.partition_writer import PartitionWriter
from geolog.partition.shown_owners import _OFFER_MARK
from geolog.partition.state_recovery import recovered_state
from geolog.partition.takeover import Takeover, _Run
from geolog.protocol.ids import EntryId, LedgerId
from geolog.protocol.ledger_state import LedgerState
from geolog.protocol.partition_state import PartitionState
from geolog.protocol.partition_takeover import (
    CloseLedger,
    CompleteSegment,
    Effect,
    EndingStep,
)
from geolog.protocol.stream_state import PartitionName
from geolog.wire.entry import WriterStamp
from sim.planted.planted_bug import PlantedBug
from sim.world.draws.hand_over_draws import with_hand_overs

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001

_end = Takeover._end
_leave = PartitionWriter.leave


async def give_while_appends_go_on(run: hand_over._Run, name: PartitionName) -> None:
    """Take the owner record as it is; the writer goes on."""
    run.ended[name] = run.writers[name]._segments.owner


async def end_without_a_fence(takeover: Takeover, run: _Run, step: EndingStep) -> list[Effect]:
    """Believe that the giver has closed its ledger, and take what readers would see."""
    if not isinstance(step, CloseLedger) or _OFFER_MARK not in run.claimed.record.claim_id:
        return await _end(takeover, run, step)
    core = run.core
    record = (await takeover.ledgers.read(step.ledger)).record
    if record.state is LedgerState.CLOSED:
        return await _end(takeover, run, step)
    reader = LedgerReader(
        takeover.replicas,
        rng=takeover.rng,
        config=LedgerReadConfig(),
        record_now=takeover.ledgers.record_certain,
    )
    lac = await reader.lac_anywhere(record)
    if lac is None:
        return await _end(takeover, run, step)
    assert core._last is not None
    core._closed_at = lac
    state = await recovered_state(
        run.name,
        last=core._last,
        segments=takeover.partitions.segments,
        ledgers=cast("LedgerMetadata", _ClosedInWords(takeover.ledgers, step.ledger, lac)),
        reader=reader,
        progress=takeover.progress,
    )
    effects = core.on_state(state, now_us=takeover.now_us())
    return [one for one in effects if not isinstance(one, CompleteSegment)]


@attrs.frozen
class _ClosedInWords:
    """Ledgers as they are, but one is said to be CLOSED at this entry."""

    ledgers: LedgerMetadata
    ledger: LedgerId
    lac: EntryId

    async def read(self, ledger: LedgerId) -> VersionedLedger:
        """The ledger's record."""
        found = await self.ledgers.read(ledger)
        if ledger != self.ledger:
            return found
        said = attrs.evolve(found.record, state=LedgerState.CLOSED, last_entry=self.lac)
        return attrs.evolve(found, record=said)


async def leave_meanwhile(writer: PartitionWriter) -> None:
    """Leave as soon as the block ends."""
    writer.on_handed_over()
    await _leave(writer)


def check_no_seq_before(
    _admission: BatchAdmission,
    _stamp: WriterStamp,
    _seq_before: int | None,
    _sent: PartitionState,
) -> None:
    """Take the batch, whatever came before it."""


HAND_OVER_BUGS: dict[str, PlantedBug] = {
    "two-owners": PlantedBug(
        87,
        "an owner gives its partition away and goes on, and its successor closes nothing",
        [
            (hand_over._Run, "_end", give_while_appends_go_on),
            (Takeover, "_end", end_without_a_fence),
        ],
        made_for=with_hand_overs,
    ),
    "refusals-let-others-pass": PlantedBug(
        88,
        "a batch behind a refused one is taken",
        [(BatchAdmission, "_check_seq_before", check_no_seq_before)],
        made_for=with_hand_overs,
    ),
    "leaves-before-the-give": PlantedBug(
        89,
        "an owner leaves while its partition is given away",
        [(PartitionWriter, "leave", leave_meanwhile)],
        made_for=with_hand_overs,
    ),
}
"""These bugs, by name."""
