"""Defects of writers, recovery and readers: each function replaces a good method."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping

import attrs
import trio

from geolog.catalog.partition_owners import VersionedOwner
from geolog.catalog.segment_changes import ClosingSegment
from geolog.catalog.segment_records import SegmentRecords, VersionedSegment
from geolog.ledger.ledger_metadata import LedgerMetadata, VersionedLedger
from geolog.ledger.nodes.cluster_nodes import ClusterSnapshot
from geolog.ledger.nodes.connection import AddSink, NodeConnection
from geolog.ledger.nodes.node_pool import NodeLink
from geolog.ledger.reading.ledger_reader import LedgerReader
from geolog.ledger.recovery.ledger_recovery import _Round
from geolog.ledger.recovery.recovery_progress import RecoveryProgress
from geolog.ledger.writing.ensemble_keeper import EnsembleKeeper
from geolog.ledger.writing.ledger_writer import LedgerWriter
from geolog.ledger.writing.replacement_finder import ReplacementFinder, ReplacementFound
from geolog.metadata.documents import seal_document
from geolog.metadata.seam import Freshness
from geolog.partition.prepared_ledger import PreparedLedger
from geolog.partition.segment_activation import SegmentActivation
from geolog.partition.state_recovery import recovered_state
from geolog.protocol.add_window import AddWindow, AdvanceLac, SendAdd
from geolog.protocol.fencing import FenceRound, FenceTaken
from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.ledger_change import LedgerChange
from geolog.protocol.ledger_state import Fragment, LedgerRecord
from geolog.protocol.messages import Answer, ProbeAnswer
from geolog.protocol.partition_state import PartitionState
from geolog.protocol.recovery import CloseAt, Recovery, RecoveryEffect, Rewrite
from geolog.protocol.stream_state import PartitionName, SegmentRecord
from geolog.wire.entry import EncodedEntry
from sim.fakes.memory_metadata import MemoryMetadata
from topology.errors import GeologError, NotEnoughNodesError
from topology.placement import Adherence
from topology.quorum import AckRule
from topology.replacement import Replacement

_activated = SegmentActivation._activated
_add_nowait = NodeConnection.add_nowait
_recovered_state = recovered_state
_release_acked_prefix = AddWindow._release_acked_prefix

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001


def silence_is_absence(core: Recovery, slot: int) -> list[RecoveryEffect]:
    """Take silence for ABSENT."""
    for answers in core._answers:
        answers.setdefault(slot, Answer.ABSENT)
    return [] if core._is_over else core._decide()


def decide_with_one_less(core: Recovery, entry: EntryId) -> RecoveryEffect | None:
    """Decide as the core does, with one ABSENT made up."""
    answers = core._answers[entry - core._first]
    have = sorted(slot for slot, answer in answers.items() if answer is Answer.HAVE)
    if have:
        core._decided = EntryId(entry + 1)
        core._to_ack.add(entry)
        return Rewrite(entry, have[0])
    absent = sum(1 << slot for slot, answer in answers.items() if answer is Answer.ABSENT)
    write_set = core._rule.write_set(entry)
    if absent and any(core._rule.is_block(entry, absent | 1 << slot) for slot in write_set):
        core._end = EntryId(entry - 1)
        return CloseAt(core._end)
    spoken = core._silent | sum(1 << slot for slot in answers)
    return None if core._rule.write_mask(entry) & ~spoken else core._give_up(entry)


async def recover_from_zero(run: _Round) -> LedgerRecord:
    """Recover as the core does, but from entry 0."""
    await run._fence()
    return await run._close(await run._recover_from(EntryId(0)))


async def connect_to_anybody(link: NodeLink) -> bool:
    """Accept any instance that answers at the address."""
    was_up = False

    def on_ready(connection: NodeConnection) -> None:
        nonlocal was_up
        was_up = True
        link.connection = connection
        link._announce()
        for user in list(link._users):
            user.on_link_up(link.instance, connection)

    pool = link._pool
    try:
        address = await pool.address_of(link.instance)
        with trio.fail_after(pool.config.connection.connect_timeout_s):
            stream = await pool.transport.connect(address)
    except (trio.TooSlowError, GeologError) as error:
        link.why_down = str(error)
        return False
    connection = NodeConnection(stream, pool.config.connection, str(address))
    try:
        await connection.run(cluster=pool.cluster, on_ready=on_ready)
    finally:
        link.connection = None
        link.why_down = connection.broken_why
    return was_up


async def recovered_without_writers(
    name: PartitionName,
    *,
    last: SegmentRecord,
    segments: SegmentRecords,
    ledgers: LedgerMetadata,
    reader: LedgerReader,
    progress: RecoveryProgress,
) -> PartitionState:
    """Find the end of the partition, but none of its writers."""
    state = await _recovered_state(
        name,
        last=last,
        segments=segments,
        ledgers=ledgers,
        reader=reader,
        progress=progress,
    )
    state.writers.clear()
    return state


async def replace_anywhere(
    _finder: ReplacementFinder,
    record: LedgerRecord,
    slots: Collection[int],
    seen: ClusterSnapshot,
    excluded: set[InstanceId],
) -> Replacement:
    """Take any nodes, whatever their regions."""
    taken = {member.instance for member in record.fragments[-1].ensemble} | excluded
    names = sorted(set(seen.records) - taken)
    if not names:
        raise NotEnoughNodesError("there is no other node")
    return Replacement(dict(zip(sorted(slots), names, strict=False)), Adherence.STRICT)


def check_nothing(_writer: LedgerWriter, _fragment: Fragment) -> None:
    """Accept any ensemble as an improvement."""


def go_on_by_old_regions(writer: LedgerWriter, fragment: Fragment) -> bool:
    """Count new members in the regions of the members they replace."""
    new = writer.fragment.slots_changed(fragment)
    up = sum(1 << slot for slot in {*writer._links.slots_up, *new})
    return writer.fragment.rule(writer.record.quorum).acks_all(up)


def release_with_fewer_regions(window: AddWindow) -> list[AdvanceLac]:
    """Require fewer regions, one less for each region that is wholly lost."""
    rule = window._rule
    here = {region for slot, region in enumerate(rule.regions) if not window._lost >> slot & 1}
    regions_count = max(1, rule.config.min_regions - len({*rule.regions} - here))
    config = attrs.evolve(rule.config, min_regions=regions_count)
    window._rule = AckRule(config, rule.regions)
    try:
        return _release_acked_prefix(window)
    finally:
        window._rule = rule


def send_nothing_again(window: AddWindow, slot: int) -> list[SendAdd]:
    """Resend nothing: count on the next answer, which is cumulative."""
    window._lost &= ~(1 << slot)
    return []


def count_all_before(window: AddWindow, slot: int, entry: EntryId) -> list[AdvanceLac]:
    """Take an answer as confirming all entries up to its own, whatever connection they used."""
    for place in range(max(0, entry - window._lac)):
        window._confirmed[place] |= 1 << slot
    return window._release_acked_prefix()


def catch_up_with_nobody(_metadata: MemoryMetadata, _freshness: Freshness) -> None:
    """Read on from a metadata server that may lag."""


def hold_nothing(_window: AddWindow, _slots: Iterable[int]) -> None:
    """Let slots count while their member is being replaced."""


def change_forgets_nothing(
    window: AddWindow, rule: AckRule, slots: Iterable[int]
) -> list[AdvanceLac]:
    """Let new members inherit the confirmations of the old ones."""
    for slot in slots:
        window._lost |= 1 << slot
    window._confirmed = deque(window._confirmed)
    window._rule = rule
    return window.unhold()


def begin_at_lac(keeper: EnsembleKeeper, found: ReplacementFound) -> None:
    """Begin the new fragment at the LAC instead of after it."""
    record = keeper.ledger.record
    last = record.fragments[-1]
    first = max(keeper._writer.lac, last.first_entry)
    keeper._change = LedgerChange(
        state=record.state,
        epoch=record.epoch,
        lasts=(last,),
        fragments=(found.fragment_of(record, first=first),),
    )
    keeper._known_over = found.connections
    keeper._is_in_doubt = False
    keeper._writer.hold(found.members)


async def replace_blindly(
    ledgers: LedgerMetadata, _read: VersionedLedger, record: LedgerRecord
) -> VersionedLedger:
    """Store a record whatever the current version."""
    path = ledgers._paths.ledger(record.ledger)
    stored = await ledgers._metadata.get(path)
    version = await ledgers._metadata.put(path, seal_document(record), stored.version)
    return VersionedLedger(record, version)


async def activate_meanwhile(
    activation: SegmentActivation, prepared: PreparedLedger, closing: ClosingSegment | None
) -> tuple[PreparedLedger, VersionedLedger, VersionedSegment]:
    """Go on in the next ledger while the close of the previous one is still pending."""
    if closing is None:
        return await _activated(activation, prepared, closing)
    segment, before = activation._segment_of(prepared), activation.owner
    owned = attrs.evolve(before.record, segment_highest=segment.segment)
    opened = attrs.evolve(prepared.ledger.record.opened(), segment=segment.segment)
    activation._source._nursery.start_soon(
        _activate_later, activation, before, closing, prepared.ledger, segment
    )
    activation.owner = VersionedOwner(owned, before.version + 1)
    ledger = VersionedLedger(opened, prepared.ledger.version + 1)
    return prepared, ledger, VersionedSegment(segment, 0)


async def _activate_later(
    activation: SegmentActivation,
    owner: VersionedOwner,
    closing: ClosingSegment,
    opening: VersionedLedger,
    segment: SegmentRecord,
) -> None:
    """Repeat the request until metadata answers; nobody sees the answer."""
    while True:
        try:
            await activation._changes.activate(
                activation._name,
                owner,
                closing=closing,
                opening=opening,
                segment=segment,
                mirror_in=activation._user.mirror_in,
            )
        except GeologError as error:
            if error.retriable:
                await trio.sleep(activation._config.retry_delay_s)
                continue
        return


def add_with_lac_of_sent(
    connection: NodeConnection,
    sink: AddSink,
    slot: int,
    *,
    ledger: LedgerId,
    entry: EntryId,
    epoch: Epoch,
    lac: EntryId,
    is_recovery: bool,
    encoded: EncodedEntry,
    wants_received: bool = False,
) -> None:
    """Claim that each entry is acknowledged as soon as it is sent."""
    _add_nowait(
        connection,
        sink,
        slot,
        ledger=ledger,
        entry=entry,
        epoch=epoch,
        lac=lac if is_recovery else entry,
        is_recovery=is_recovery,
        encoded=encoded,
        wants_received=wants_received,
    )


def fence_one_write_set(core: FenceRound, slot: int, lac: EntryId) -> list[FenceTaken]:
    """Accept the fence when one write set is blocked."""
    core._fenced |= 1 << slot
    core._lac = max(core._lac, lac)
    rule = core._rule
    if core._is_taken or not any(
        rule.is_block_within(mask, core._fenced) for mask in rule.write_masks()
    ):
        return []
    core._is_taken = True
    return [FenceTaken(core._lac)]


def end_at_have(
    record: LedgerRecord, lac: EntryId, probed: range, answers: Mapping[int, ProbeAnswer]
) -> EntryId | None:
    """Take the first entry of which no ack set says HAVE as the end."""
    rule = record.fragments[-1].rule(record.quorum)
    for place, entry in enumerate(probed):
        have = sum(
            1 << slot
            for slot, answer in answers.items()
            if answer.answers[place] is Answer.HAVE
        )
        if entry > lac and not rule.is_ack(entry, have):
            return EntryId(entry)
    return None
