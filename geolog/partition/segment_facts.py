"""The facts by which `SegmentSuccession` decides, gathered from an owner's objects."""

from geolog.catalog.partition_config import PartitionConfig
from geolog.partition.ledger_allocator import LedgerAllocator
from geolog.partition.open_segment import OpenSegment
from geolog.partition.prepared_ledger import PreparedLedger
from geolog.protocol.segment_succession import PreparedView, SegmentView, SuccessionPace


def pace_of(config: PartitionConfig) -> SuccessionPace:
    """The pace at which an owner's segments follow one another."""
    return SuccessionPace(
        look_s=min(0.25, config.add_timeout_s / 4),
        member_patience_s=config.member_patience_s,
        retry_delay_s=config.retry_delay_s,
        prepare_retry_s=config.prepare_retry_s,
        prepared_age_s_max=config.prepared_age_s_max,
        better_ledger_s=config.better_ledger_s,
    )


def view_of(
    segment: OpenSegment,
    prepared: PreparedLedger | None,
    source: LedgerAllocator,
    *,
    has_unanswered: bool,
) -> SegmentView:
    """The open segment and the prepared ledger, as they are now."""
    ensemble = segment.keeper.ledger.record.fragments[-1]
    return SegmentView(
        entry_next=segment.writer.entry_next,
        written_bytes=segment.written_bytes,
        has_unanswered=has_unanswered,
        is_urgent=segment.keeper.is_urgent,
        is_keeping_due=segment.keeper.is_due,
        members_late=segment.writer.instances_late(),
        adherence=segment.keeper.adherence,
        keeps_promise=source.keeps_promise(ensemble),
        is_forbidden=source.is_forbidden(ensemble),
        switches=source.switches,
        prepared=None if prepared is None else _prepared_view(prepared, source),
    )


def _prepared_view(prepared: PreparedLedger, source: LedgerAllocator) -> PreparedView:
    return PreparedView(
        age_s=prepared.age_s,
        is_forbidden=source.is_forbidden(prepared.ledger.record.fragments[-1]),
        can_go_on=prepared.writer.can_go_on(),
        members=prepared.writer.instances(),
    )
