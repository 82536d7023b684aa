"""Defects of relays, bridges and mirrors: each replaces a good method."""

import math

import attrs
import trio

from geolog.catalog.partition_owners import FindChecks, VersionedOwner
from geolog.catalog.partition_trims import PartitionTrims
from geolog.client.log import Log
from geolog.client.reading.scan import PartitionScan
from geolog.client.reading.walk import PartitionWalk
from geolog.ledger.reading.ledger_reader import FetchedEntry, LedgerReader
from geolog.metadata.documents import seal_document
from geolog.metadata.seam import Freshness, Put
from geolog.partition.mirror_writer import MirrorWriter, last_watermark
from geolog.partition.partition_opener import PartitionOpener
from geolog.partition.relay_multicast import MulticastPort
from geolog.partition.stream_upkeep import Kept, StreamUpkeep
from geolog.protocol.ids import FIRST_SEQUENCE, Sequence
from geolog.protocol.loss_bound import HeldBack, LossBound
from geolog.protocol.mirror_course import DropRepeat, MirrorCourse, SentEntry, Verdict
from geolog.protocol.stream_state import (
    PartitionName,
    SegmentRecord,
    StreamRecord,
    TrimRecord,
)
from geolog.protocol.watermark import Watermark
from geolog.wire.entry import EncodedEntry
from relay.bridge.bridge_ends import BridgeEnds
from relay.bridge.home_bridge import HomeBridge
from relay.bridge.home_feed import HomeFeed, HomeFeeds
from relay.bridge.home_log import HomeLog
from relay.bridge.target_bridge import TargetBridge, _TargetChannel
from relay.protocol.bridge_gate import BridgeGate
from relay.protocol.bridge_messages import RelayedEntry
from relay.protocol.incoming import IncomingChannel, IncomingEffect, PushEntry
from relay.protocol.outgoing import OutgoingChannel, OutgoingEffect
from relay.protocol.standby_buffer import StandbyBuffer
from sim.planted.planted_bug import PlantedBug
from sim.world.chance import Draws
from sim.world.draws.relay_draws import (
    COORDINATORS_GONE,
    RELAYS_GONE,
    SLOW_TARGET,
    with_bounded_loss,
    with_local_only,
    with_relays,
    with_settings_changed,
)
from sim.world.options import Options
from topology.errors import TrimmedError

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001

_push = TargetBridge._push
_on_entry = MirrorCourse.on_entry
_on_told = OutgoingChannel.on_told
_wanted = HomeFeeds._wanted
_next_entries = HomeLog.next_entries
_relayed = HomeLog._relayed
_on_sent = MulticastPort.on_sent
_read = HomeFeed._read
_look = LossBound.look

_scan = Log._scan
_kept_for_mirrors = StreamUpkeep._kept_for_mirrors
_begin_again = PartitionTrims.begin_again

_NO_END = 1 << 60


def with_settings_and_truncations(options: Options, draws: Draws) -> Options:
    """A world whose targets are paused, while the front of the stream is truncated."""
    drawn = with_settings_changed(options, draws)
    return attrs.evolve(
        drawn,
        stream=attrs.evolve(drawn.stream, truncation_rest_s_max=0.5, seal_after_s_max=None),
        knobs=attrs.evolve(
            drawn.knobs,
            relay_evict_bytes=None,
            settings_rest_s_max=3.0,
            settings_only_paused=True,
        ),
    )


def with_evictions(options: Options, draws: Draws) -> Options:
    """A world with relays whose stream keeps next to nothing for mirrors that are behind."""
    drawn = with_relays(options, draws)
    return attrs.evolve(
        drawn,
        knobs=attrs.evolve(drawn.knobs, relay_evict_bytes=1),
        stream=attrs.evolve(drawn.stream, truncation_rest_s_max=0.5),
    )


def with_empty_mirrors(options: Options, draws: Draws) -> Options:
    """The same, but mirrors are emptied again and again, far from their home.

    Between the moment at which an empty mirror reads where it begins and its first entry, the
    home has often dropped more.
    """
    drawn = with_evictions(options, draws)
    return attrs.evolve(
        drawn,
        shape=attrs.evolve(drawn.shape, writers_count=1, readers_count=1),
        stream=attrs.evolve(
            drawn.stream,
            partitions=2,
            partitions_added=0,
            truncation_rest_s_max=0.1,
            seal_after_s_max=None,
        ),
        knobs=attrs.evolve(
            drawn.knobs,
            value_bytes_max=4000,
            pipelined_max=10,
            pause_s_max=0.05,
            appends_per_tenure=400,
            relay_buffer_entries=3,
            relays_after_s=3.0,
        ),
        links=attrs.evolve(drawn.links, latency_s_across=0.15),
        hazards=attrs.evolve(
            drawn.hazards,
            strikes_per_s=((COORDINATORS_GONE, 0.5), (RELAYS_GONE, 0.3), (SLOW_TARGET, 0.3)),
        ),
    )


async def keep_one_byte(
    upkeep: StreamUpkeep, name: PartitionName, stream: StreamRecord, asked: int
) -> Kept:
    """Keep nothing for mirrors, whatever the stream says."""
    greedy = attrs.evolve(stream, relay_evict_bytes=1)
    return await _kept_for_mirrors(upkeep, name, greedy, asked)


async def keep_for_those_that_go_on(
    upkeep: StreamUpkeep, name: PartitionName, stream: StreamRecord, asked: int
) -> Kept:
    """Keep nothing for paused targets."""
    going = tuple(one for one in stream.relay_to if one not in stream.relay_paused)
    if not going:
        return Kept(asked, asked)
    return await _kept_for_mirrors(upkeep, name, attrs.evolve(stream, relay_to=going), asked)


async def begin_without_gap(
    trims: PartitionTrims,
    mirror: PartitionName,
    owner: VersionedOwner,
    at: Sequence,
    *,
    ended: Sequence,
    now_us: int,
    find_checks: FindChecks,
) -> TrimRecord:
    """Begin the mirror again where its home has entries, as if it had been trimmed."""
    begun = await _begin_again(
        trims, mirror, owner, at, ended=ended, now_us=now_us, find_checks=find_checks
    )
    path = trims._paths.trim(mirror)
    _, version = await trims._read(mirror, Freshness.LATEST)
    silent = attrs.evolve(begun, gap=None)
    await trims._metadata.multi([Put(path, seal_document(silent), version)])
    return silent


async def never_elsewhere(_walk: PartitionWalk, _row: SegmentRecord) -> bool:
    """Take the next row for the one that follows."""
    return False


def tell_what_is_pushed(
    bridge: TargetBridge, channel: _TargetChannel, entry: RelayedEntry
) -> None:
    """Tell the home that an entry is durable as soon as the mirror has taken it."""
    _push(bridge, channel, entry)
    if not channel.core.is_over:
        bridge.perform(channel, channel.core.on_durable(entry.watermark))


def go_on_at_the_buffer(
    channel: OutgoingChannel,
    watermark: Watermark | None,
    *,
    first_sequence: Sequence = FIRST_SEQUENCE,
) -> list[OutgoingEffect]:
    """Go on where the buffer begins, if that is further than the mirror."""
    begin = channel._buffer.begin
    if begin is not None and (watermark is None or watermark < begin):
        watermark = begin
    return _on_told(channel, watermark, first_sequence=first_sequence)


def take_what_comes(channel: IncomingChannel, entry: RelayedEntry) -> list[IncomingEffect]:
    """Take any entry, whatever it says comes before it."""
    if channel.is_over or not channel._is_told:
        return []
    channel._last = entry.watermark
    return [PushEntry(entry)]


def take_anything_above(course: MirrorCourse, sent: SentEntry) -> Verdict:
    """Take every entry that is above the last one."""
    last = course.last
    if last is None or sent.mark <= last:
        return _on_entry(course, sent)
    return course._take(sent.mark)


async def hold_nothing(_upkeep: StreamUpkeep, _mirror: PartitionName) -> Kept:
    """Let the home drop what a mirror lacks."""
    return Kept(_NO_END, _NO_END)


async def skip_what_is_gone(log: HomeLog) -> list[RelayedEntry]:
    """Go on behind a gap as if nothing was missing."""
    while True:
        try:
            return await _next_entries(log)
        except TrimmedError:
            continue


def begin_with_what_is_left(
    log: HomeLog, segment: SegmentRecord, fetched: FetchedEntry
) -> RelayedEntry | None:
    """Put the first entry that is left behind a position that was trimmed."""
    last = log._last
    if log._is_at_position and last is not None and segment.segment > last.segment:
        log._is_at_position = False
    return _relayed(log, segment, fetched)


async def relay_mirrors_too(feeds: HomeFeeds) -> dict[PartitionName, StreamRecord]:
    """Relay what this region mirrors, as if it were its home."""
    found = await _wanted(feeds)
    catalog = feeds.log.partition_opener.upkeep.catalog
    for stream in await catalog.names():
        record = await catalog.read(stream)
        if feeds.region in record.relay_to:
            found |= dict.fromkeys(record.partition_names(), record)
    return found


def no_epoch_fault(_gate: BridgeGate, _region: str, _relay_epoch: int) -> None:
    """Admit a coordinator of any epoch."""


def make_no_way(_ends: BridgeEnds, _bridge: HomeBridge) -> None:
    """Listen to old bridges of a target as well."""


def cover_before_it_begins(buffer: StandbyBuffer, position: Watermark | None) -> bool:
    """Take a buffer that has not begun for one that begins with the log."""
    return position == buffer._begin or buffer._kept_at(position) is not None


async def hold_up_to_the_end(upkeep: StreamUpkeep, mirror: PartitionName) -> Kept:
    """Let the home drop the entry that a mirror ends with."""
    for listed in reversed(await upkeep.partitions.segments.all(mirror)):
        if listed.record.last_sequence is not None:
            end = listed.record.last_sequence + 1
            return Kept(end, end)
    first = (await upkeep.partitions.trims.read(mirror)).first_sequence
    return Kept(first, first)


async def leave_it_open(opener: PartitionOpener, mirror: PartitionName) -> Watermark | None:
    """Take the last row of a sealed mirror for a complete one."""
    return await last_watermark(mirror, opener.upkeep.takeover)


def publish_at_once(port: MulticastPort, encoded: EncodedEntry) -> None:
    """Send an entry to the relays before it is acknowledged."""
    port._multicast.publish(port._name, encoded)
    _on_sent(port, encoded)


def drop_what_has_no_records(course: MirrorCourse, sent: SentEntry) -> Verdict:
    """Compare sequences alone: an entry that moves none is a repeat."""
    last = course.last
    if last is not None and sent.mark.sequence_next <= last.sequence_next:
        return DropRepeat()
    return take_anything_above(course, sent)


async def read_and_rest(feed: HomeFeed) -> None:
    """Rest for good once a sealed stream is read to its end."""
    await _read(feed)
    feed._following = trio.CancelScope()


def judge_the_fastest(bound: LossBound, more_bytes: int, now_s: float) -> tuple[float, object]:
    """Judge by the target that lacks the least; one of which nothing is known lacks nothing."""
    rates = {one.name: bound._rate(one, more_bytes, now_s) for one in bound._targets.values()}
    rated = sorted((0.0 if rate == math.inf else rate, name) for name, rate in rates.items())
    rate, name = rated[0]
    return rate, bound._targets[name]


def hold_for_ever(bound: LossBound, *, now_s: float) -> HeldBack | None:
    """Stay held, however far the targets come."""
    return bound._held or _look(bound, now_s=now_s)


def relayed_whole(entry: EncodedEntry) -> EncodedEntry:
    """Let every entry leave its region as it is."""
    return entry


def scanned_anywhere(
    log: Log, record: StreamRecord, name: PartitionName, reader: LedgerReader | None = None
) -> PartitionScan:
    """Read a log as if the reader were in its region."""
    scan = _scan(log, record, name, reader)
    scan.is_abroad = False
    return scan


async def begin_as_it_comes(_mirror: MirrorWriter) -> None:
    """Begin an empty mirror with the first entry that comes, without another look."""


RELAY_BUGS: dict[str, PlantedBug] = {
    "gap-unheard": PlantedBug(
        106,
        "an empty mirror begins behind records that its home has just dropped, without a gap",
        [(MirrorWriter, "_check_beginning", begin_as_it_comes)],
        drawn_for=with_empty_mirrors,
    ),
    "loss-of-the-fastest": PlantedBug(
        112,
        "a bound on loss is judged by the fastest target, and what is not known counts as 0",
        [(LossBound, "_nearest", judge_the_fastest)],
        drawn_for=with_bounded_loss,
    ),
    "held-for-ever": PlantedBug(
        113,
        "a partition that was held by its bound on loss never goes on",
        [(LossBound, "look", hold_for_ever)],
        drawn_for=with_bounded_loss,
    ),
    "told-before-durable": PlantedBug(
        22,
        "a target keeps its watermark apart from its mirror: it tells what it has received",
        [(TargetBridge, "_push", tell_what_is_pushed)],
        drawn_for=with_relays,
    ),
    "highest-for-next": PlantedBug(
        23,
        "a relay goes on where its buffer begins, and targets take anything above their last",
        [
            (OutgoingChannel, "on_told", go_on_at_the_buffer),
            (IncomingChannel, "on_entry", take_what_comes),
            (MirrorCourse, "on_entry", take_anything_above),
        ],
        drawn_for=with_relays,
    ),
    "relay-skips-trimmed": PlantedBug(
        24,
        "the home drops what a mirror lacks, and the relay goes on behind it",
        [
            (StreamUpkeep, "_mirrored_to", hold_nothing),
            (HomeLog, "next_entries", skip_what_is_gone),
            (HomeLog, "_relayed", begin_with_what_is_left),
            (IncomingChannel, "on_entry", take_what_comes),
            (MirrorCourse, "on_entry", take_anything_above),
        ],
        drawn_for=with_relays,
    ),
    "mirrors-relay": PlantedBug(
        25,
        "a region relays what it mirrors",
        [(HomeFeeds, "_wanted", relay_mirrors_too)],
        drawn_for=with_relays,
    ),
    "bridge-of-any-epoch": PlantedBug(
        26,
        "a bridge is opened with a coordinator of any relay epoch",
        [(BridgeGate, "_epoch_fault", no_epoch_fault)],
        drawn_for=with_relays,
    ),
    "unbegun-buffer-covers": PlantedBug(
        100,
        "a buffer whose beginning is not known yet counts as one that has the whole log",
        [(StandbyBuffer, "covers", cover_before_it_begins)],
        drawn_for=with_relays,
    ),
    "trim-frees-the-mirrors-end": PlantedBug(
        101,
        "the home drops the entry that a mirror ends with, which a relay must compare",
        [(StreamUpkeep, "_mirrored_to", hold_up_to_the_end)],
        drawn_for=with_relays,
    ),
    "sealed-mirror-left-open": PlantedBug(
        102,
        "nobody closes the last row of a mirror whose owner died as it sealed it",
        [(PartitionOpener, "end_sealed_mirror", leave_it_open)],
        drawn_for=with_relays,
    ),
    "old-bridge-heard": PlantedBug(
        103,
        "a home still listens to an older bridge of a target",
        [(BridgeEnds, "_make_way", make_no_way)],
        drawn_for=with_relays,
    ),
    "multicast-before-acknowledged": PlantedBug(
        104,
        "an owner multicasts entries before they are acknowledged",
        [(MulticastPort, "on_sent", publish_at_once)],
        drawn_for=with_relays,
    ),
    "watermark-of-sequences": PlantedBug(
        105,
        "a mirror takes an entry without records for a repeat, and anything above for the next",
        [(MirrorCourse, "on_entry", drop_what_has_no_records)],
        drawn_for=with_relays,
    ),
    "hold-evicts": PlantedBug(
        117,
        "a stream that holds all lets mirrors go on behind",
        [(StreamUpkeep, "_kept_for_mirrors", keep_one_byte)],
        drawn_for=with_relays,
    ),
    "paused-not-kept": PlantedBug(
        165,
        "a home keeps nothing for targets that are paused",
        [(StreamUpkeep, "_kept_for_mirrors", keep_for_those_that_go_on)],
        drawn_for=with_settings_and_truncations,
    ),
    "gap-untold": PlantedBug(
        118,
        "a mirror goes on behind what its home dropped, and notes no gap",
        [(PartitionTrims, "begin_again", begin_without_gap)],
        drawn_for=with_evictions,
    ),
    "gap-passed-over": PlantedBug(
        119,
        "a reader of a mirror passes over what its home dropped",
        [(PartitionWalk, "_begins_elsewhere", never_elsewhere)],
        drawn_for=with_evictions,
    ),
    "local-only-relayed": PlantedBug(
        158,
        "local-only records are relayed",
        [(EncodedEntry, "as_relayed", relayed_whole)],
        drawn_for=with_local_only,
    ),
    "local-only-read-abroad": PlantedBug(
        159,
        "a reader of another region that reads at home is given local-only records",
        [(Log, "_scan", scanned_anywhere)],
        drawn_for=with_local_only,
    ),
    "sealed-feed-rests": PlantedBug(
        116,
        "a standby that has read a sealed stream to its end reads nothing again",
        [(HomeFeed, "_read", read_and_rest)],
        drawn_for=with_relays,
    ),
}
