"""Defects of bridges, the buffers of relays, and the owners of mirrors."""

from collections.abc import Iterable

import attrs

from geolog.catalog.partition_owners import FindChecks, VersionedOwner
from geolog.catalog.partition_trims import PartitionTrims
from geolog.partition.mirror_writer import MirrorWriter
from geolog.partition.stream_upkeep import Kept, StreamUpkeep
from geolog.protocol.ids import FIRST_SEQUENCE, EntryId, Sequence
from geolog.protocol.stream_state import PartitionName, StreamRecord, TrimRecord
from geolog.protocol.watermark import Watermark
from relay.bridge.home_bridge import HomeBridge
from relay.protocol.bridge_messages import RelayedEntry
from relay.protocol.multicast_placing import MulticastPlacing
from relay.protocol.outgoing import OutgoingChannel, OutgoingEffect
from relay.protocol.outgoing_link import OutgoingLink
from relay.protocol.standby_buffer import StandbyBuffer, _place
from sim.planted.planted_bug import PlantedBug
from sim.planted.relay_bugs import with_evictions
from sim.world.chance import Draws
from sim.world.draws.relay_draws import RELAYS_GONE, SLOW_TARGET, with_relays
from sim.world.options import Options

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001

_begin_again = PartitionTrims.begin_again
_kept_for_mirrors = StreamUpkeep._kept_for_mirrors
_on_durable = OutgoingLink.on_durable
_on_lac = MirrorWriter.on_lac
_on_told = OutgoingChannel.on_told
_next_after = MulticastPlacing.next_after


def with_slow_targets(options: Options, draws: Draws) -> Options:
    """A world with relays and large records, in which little becomes durable at targets."""
    drawn = with_relays(options, draws)
    return attrs.evolve(
        drawn,
        knobs=attrs.evolve(
            drawn.knobs, value_bytes_max=4000, pipelined_max=10, appends_per_tenure=400
        ),
        hazards=attrs.evolve(drawn.hazards, strikes_per_s=((SLOW_TARGET, 1.0),)),
    )


def with_mirrors_apart(options: Options, draws: Draws) -> Options:
    """A world with relays and two mirrors, one of which is away while the front goes."""
    drawn = with_relays(options, draws)
    home, count = drawn.shape.nodes_by_region[0]
    regions = [home, *(one for one in ("eu-west", "ap-northeast", "us-east") if one != home)]
    return attrs.evolve(
        drawn,
        shape=attrs.evolve(
            drawn.shape, nodes_by_region=tuple((region, count) for region in regions[:3])
        ),
        stream=attrs.evolve(drawn.stream, truncation_rest_s_max=0.5, seal_after_s_max=None),
        knobs=attrs.evolve(drawn.knobs, relay_evict_bytes=None, appends_per_tenure=10),
        hazards=attrs.evolve(drawn.hazards, strikes_per_s=((RELAYS_GONE, 0.5),)),
    )


def count_all_that_was_sent(mirror: MirrorWriter, lac: EntryId) -> None:
    """Take an acknowledgement for that of everything that is on its way to nodes."""
    segment = mirror._rows.open
    if segment is not None and mirror._sent:
        last = mirror._sent[-1].mark.entry
        lac = max(lac, segment.segment.record.numbering.in_ledger(last))
    _on_lac(mirror, lac)


def go_on_one_too_far(
    channel: OutgoingChannel,
    watermark: Watermark | None,
    *,
    first_sequence: Sequence = FIRST_SEQUENCE,
) -> list[OutgoingEffect]:
    """Go on behind the entry that comes next, if the buffer has it."""
    behind = channel._buffer.after(watermark)
    begin = watermark if behind is None else behind.watermark
    return _on_told(channel, begin, first_sequence=first_sequence)


async def keep_for_the_furthest(
    upkeep: StreamUpkeep, name: PartitionName, stream: StreamRecord, asked: int
) -> Kept:
    """Keep what the mirror lacks that is furthest."""
    kept = [
        await _kept_for_mirrors(upkeep, name, attrs.evolve(stream, relay_to=(region,)), asked)
        for region in stream.relay_to
    ]
    return max(kept, key=lambda one: (one.begin, one.stored))


def free_twice(
    link: OutgoingLink, number: int, watermark: Watermark, *, now_s: float
) -> list[OutgoingEffect]:
    """Give the room of what has become durable back twice."""
    before_bytes = link._unanswered_bytes
    effects = _on_durable(link, number, watermark, now_s=now_s)
    link._unanswered_bytes -= before_bytes - link._unanswered_bytes
    return effects


async def look_once(bridge: HomeBridge) -> None:
    """Open the channels of what is relayed as the bridge begins, and no others later."""
    bridge._open_missing()


def next_of_all(placing: MulticastPlacing, end: Watermark | None) -> RelayedEntry | None:
    """Put the next entry of a segment that has come behind the last, whatever is between."""
    found = _next_after(placing, end)
    if found is not None or end is None:
        return found
    waiting: Iterable[tuple[int, int]] = placing._waiting
    later = min((one for one in waiting if one[0] == end.segment), default=None)
    if later is None:
        return None
    encoded = placing._waiting[later]
    placing._drop(later)
    header = encoded.header
    watermark = Watermark(
        header.home_epoch,
        header.segment,
        header.entry,
        encoded.header_crc,
        Sequence(header.next_sequence),
    )
    return RelayedEntry(watermark, end, None, encoded)


def drop_and_begin_as_before(buffer: StandbyBuffer) -> None:
    """Drop the first entry, and still count as a buffer that has it."""
    dropped = buffer._kept.popleft().entry
    del buffer._by_place[_place(dropped.watermark)]
    buffer._bytes_count -= dropped.length_bytes


async def trim_to_the_end(mirror: MirrorWriter, first_sequence: Sequence) -> None:
    """Drop all rows that the mirror has completed, if its home begins anywhere later."""
    if first_sequence == FIRST_SEQUENCE:
        return
    await mirror._partitions.trims.move(
        mirror.name, mirror.acknowledged.sequence_next, now_us=mirror._now_us(), is_mirror=True
    )
    await mirror._partitions.trims.drop_trimmed(mirror.name)


async def gap_from_the_beginning(
    trims: PartitionTrims,
    mirror: PartitionName,
    owner: VersionedOwner,
    at: Sequence,
    *,
    ended: Sequence,
    now_us: int,
    find_checks: FindChecks,
) -> TrimRecord:
    """Note a gap that begins where the mirror began."""
    begin = (await trims.read_latest(mirror)).first_sequence
    ended = min(begin, ended)
    return await _begin_again(
        trims, mirror, owner, at, ended=ended, now_us=now_us, find_checks=find_checks
    )


BRIDGE_BUGS: dict[str, PlantedBug] = {
    "mirrored-as-sent": PlantedBug(
        120,
        "a mirror takes one acknowledgement for that of all that is on its way to nodes",
        [(MirrorWriter, "on_lac", count_all_that_was_sent)],
        drawn_for=with_relays,
    ),
    "resumes-one-too-far": PlantedBug(
        121,
        "a relay goes on behind the entry that comes next",
        [(OutgoingChannel, "on_told", go_on_one_too_far)],
        drawn_for=with_relays,
    ),
    "keeps-for-the-furthest": PlantedBug(
        122,
        "the home keeps what the furthest of its mirrors lacks, not the last one",
        [(StreamUpkeep, "_kept_for_mirrors", keep_for_the_furthest)],
        drawn_for=with_mirrors_apart,
    ),
    "window-freed-twice": PlantedBug(
        123,
        "what becomes durable gives its room in the window back twice",
        [(OutgoingLink, "on_durable", free_twice)],
        drawn_for=with_slow_targets,
    ),
    "bridge-looks-once": PlantedBug(
        124,
        "a bridge relays what there is as it opens, and nothing that is added or stopped later",
        [(HomeBridge, "_look", look_once)],
        drawn_for=with_relays,
    ),
    "placed-over-a-hole": PlantedBug(
        125,
        "an entry of the multicast is put behind the buffer's last one, whatever is between",
        [(MulticastPlacing, "next_after", next_of_all)],
        drawn_for=with_relays,
    ),
    "dropped-and-covered": PlantedBug(
        126,
        "a buffer that has dropped entries still counts as one that has them",
        [(StandbyBuffer, "drop_oldest", drop_and_begin_as_before)],
        drawn_for=with_relays,
    ),
    "mirror-trims-itself": PlantedBug(
        127,
        "a mirror drops all that it has durably as soon as its home is truncated",
        [(MirrorWriter, "follow_trim", trim_to_the_end)],
        drawn_for=with_relays,
    ),
    "gap-hides-more": PlantedBug(
        128,
        "the gap of a mirror begins where the mirror began, not where it ended",
        [(PartitionTrims, "begin_again", gap_from_the_beginning)],
        drawn_for=with_evictions,
    ),
}
