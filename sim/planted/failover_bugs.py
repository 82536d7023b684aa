"""Defects of failovers, and of what they leave behind: each replaces a good method."""

from collections.abc import Iterable, Sequence

import attrs

from geolog.catalog.kept_rests import DeadBranch, KeptRests
from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.catalog.partition_owners import FindChecks, VersionedOwner
from geolog.catalog.partition_trims import PartitionTrims
from geolog.catalog.stream_homes import StreamHomes, VersionedHome
from geolog.client.reading.bounds import Bound
from geolog.client.reading.gone import TrimmedRun
from geolog.client.reading.place_search import PlaceSearch
from geolog.client.reading.scan import PartitionScan
from geolog.client.reading.walk import PartitionWalk
from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.seam import Check, Operation, Put, Stored
from geolog.partition import branch_cut, home_failover, mirror_opening, mirror_resync
from geolog.partition.mirror_writer import last_watermark
from geolog.partition.takeover import TakenOver, Takeover
from geolog.protocol import failover, failover_record, switch_over
from geolog.protocol.failover import EndedLog, FailoverCourse
from geolog.protocol.failover_record import RangeAtRisk
from geolog.protocol.home_record import Fork, HomeRecord
from geolog.protocol.ids import EntryId, SegmentEntry
from geolog.protocol.ids import Sequence as LogSequence
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from geolog.protocol.read_end import PartitionEnd
from geolog.protocol.stream_state import (
    PartitionName,
    SegmentRecord,
    SequenceGap,
    StreamName,
    StreamRecord,
    TrimRecord,
)
from geolog.protocol.watermark import Watermark
from sim.planted.planted_bug import PlantedBug
from sim.world.apps.failing_over import HOME_CUT_OFF
from sim.world.chance import Draws
from sim.world.draws.failover_draws import (
    with_homes_cut_off,
    with_homes_lost_in_a_row,
    with_mirrors_begun_again,
    with_resyncs,
)
from sim.world.options import Options

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001

_fork_behind = switch_over.fork_behind
_compare = FailoverCourse._compare
_cut = KeptRests.cut
_known_end = PartitionScan.known_end
_make = KeptRests._make
_range_at_risk = failover_record.range_at_risk


def with_homes_cut_off_later(options: Options, draws: Draws) -> Options:
    """The same, once mirrors have begun, and for long; readers follow in all regions."""
    drawn = with_homes_cut_off(options, draws)
    return attrs.evolve(
        drawn,
        shape=attrs.evolve(drawn.shape, readers_count=3),
        knobs=attrs.evolve(drawn.knobs, pause_s_max=0.2, segment_bytes=1 << 20),
        hazards=attrs.evolve(
            drawn.hazards, duration_s_max=16.0, strikes_per_s=((HOME_CUT_OFF, 0.25),)
        ),
    )


def with_places_of_lost_homes(options: Options, draws: Draws) -> Options:
    """The same, and readers begin at places that anybody was shown; their metadata lags."""
    drawn = with_homes_cut_off_later(options, draws)
    return attrs.evolve(
        drawn,
        stream=attrs.evolve(drawn.stream, placed_share=0.8),
        hazards=attrs.evolve(
            drawn.hazards, strikes_per_s=((HOME_CUT_OFF, 0.25), ("metadata-lag", 0.3))
        ),
    )


def fork_at_the_best(core: FailoverCourse, number: int) -> list[failover.Effect]:
    """Fork behind the best log without fetching what the new home lacks of it."""
    one = core._partitions[number]
    found = [log for log in one.logs.values() if log is not None]
    if {core._home, *core._mirrors} <= one.logs.keys() and one.logs[core._to] is not None:
        best = max(found, key=lambda log: log.rank)
        mine = one.logs[core._to]
        assert mine is not None
        one.logs[core._to] = EndedLog(
            last=best.last, row_highest=mine.row_highest, begins=mine.begins
        )
    return _compare(core, number)


def fork_one_entry_early(last: Watermark | None, **parts: object) -> Fork:
    """Begin the new home at its own last entry, not behind it."""
    fork = _fork_behind(last, **parts)  # type: ignore[arg-type]
    return attrs.evolve(fork, entry=SegmentEntry(max(0, fork.entry - 1)))


def use_numbers_again(last: Watermark | None, *, row_highest: int, **parts: object) -> Fork:
    """Have the new home number its segments as its rows."""
    fork = _fork_behind(last, row_highest=row_highest, **parts)  # type: ignore[arg-type]
    return attrs.evolve(fork, segment_offset=0)


async def go_on_uncut(
    name: PartitionName,
    taken: TakenOver,
    takeover: Takeover,
    _forks: Sequence[Fork],
    *,
    region: str | None,
) -> tuple[TakenOver, Watermark | None]:
    """Go on with a log as it is, whatever forks it has missed."""
    del region
    return taken, await last_watermark(name, takeover)


def fork_of_the_latest(forks: Iterable[Fork], home_epoch: int) -> Fork | None:
    """Take the last fork for the only one that a log can have missed."""
    later = [one for one in forks if one.home_epoch > home_epoch]
    return max(later, key=lambda one: one.home_epoch, default=None)


def read_to_the_end_of_its_ledger(
    scan: PartitionScan, segment: SegmentRecord, ledger: LedgerRecord, end: PartitionEnd | None
) -> EntryId:
    """Read a row to the end of its ledger, wherever the row ends."""
    if ledger.state is LedgerState.CLOSED and ledger.last_entry is not None:
        is_last = end is not None and end.row_number == segment.row_number
        return ledger.last_entry if not is_last else _known_end(scan, segment, ledger, end)
    return _known_end(scan, segment, ledger, end)


async def keep_nothing(
    rests: KeptRests,
    name: PartitionName,
    owner: VersionedOwner,
    fork: Fork,
    branch: DeadBranch,
    *,
    region: str | None,
) -> PartitionName | None:
    """Drop what lies behind the fork."""
    nothing = attrs.evolve(branch, records_count=0)
    return await _cut(rests, name, owner, fork, nothing, region=region)


async def end_without_keeping(
    rests: KeptRests, name: PartitionName, _rest: PartitionName | None, branch: DeadBranch
) -> list[Operation]:
    """End the row through which the fork goes, and keep the whole rows behind it alone."""
    if branch.through is None or branch.through_cut is None:
        return []
    path = rests._paths.segment(name, branch.through.record.row_number)
    return [Put(path, seal_document(branch.through_cut), branch.through.version)]


def is_always_ended(_core: FailoverCourse, _number: int) -> bool:
    """Take the log of the old home for one that was read to its end."""
    return True


def tell_from_the_next_record(
    partition: int, *, from_sequence: int, **parts: object
) -> RangeAtRisk:
    """Leave the first record out of the range that is told."""
    return _range_at_risk(partition, from_sequence=from_sequence + 1, **parts)  # type: ignore[arg-type]


async def make_it_begin_late(
    rests: KeptRests, rest: PartitionName, fork: Fork, branch: DeadBranch
) -> None:
    """Have a kept rest begin behind its first record."""
    late = attrs.evolve(fork, sequence=LogSequence(fork.sequence + 1))
    await _make(rests, rest, late, branch)


async def stay_in_the_dead_branch(_walk: PartitionWalk, _segment: SegmentRecord) -> None:
    """Go on by number in a later home, whatever of the old one was read."""


async def take_as_it_is(
    _search: PlaceSearch, bound: Bound | None, _end: PartitionEnd | None = None
) -> tuple[Bound | None, TrimmedRun | None]:
    """Take a saved position for one of the stream, whatever home it is of."""
    return bound, None


async def look_only_once(
    stream: StreamRecord, _region: str, _partitions: PartitionMetadata
) -> StreamRecord:
    """Go by the settings that the operator looked at."""
    return stream


async def read_what_is_at_hand(
    homes: StreamHomes, name: StreamName, life: str, stored: Stored
) -> VersionedHome:
    """Read a home record without the forks that are stored apart."""
    path = homes._paths.home(name, life)
    return VersionedHome(open_document(stored.data, HomeRecord, path=path), stored.version)


async def check_nothing(
    _homes: StreamHomes, _name: PartitionName, _region: str, _home_epoch: int
) -> list[Check]:
    """Claim a mirror to begin it again wherever the home is."""
    return []


async def drop_without_a_note(
    trims: PartitionTrims,
    mirror: PartitionName,
    owner: VersionedOwner,
    at: LogSequence,
    *,
    ended: LogSequence,
    now_us: int,
    find_checks: FindChecks,
) -> TrimRecord:
    """Begin a mirror again, and drop its rows without a note of it."""

    def begun(found: TrimRecord) -> TrimRecord:
        return attrs.evolve(
            found,
            first_sequence=max(found.first_sequence, at),
            trimmed_us=now_us,
            gap=SequenceGap(ended, at) if ended < at else found.gap,
        )

    changed = await trims._change_owned(mirror, owner, begun, find_checks)
    await trims.drop_all(mirror, owner)
    return changed


FAILOVER_BUGS: dict[str, PlantedBug] = {
    "fork-above-the-home": PlantedBug(
        142,
        "a failover forks behind the best log without fetching what the new home lacks",
        [(FailoverCourse, "_compare", fork_at_the_best)],
        drawn_for=with_homes_cut_off,
    ),
    "fork-one-entry-early": PlantedBug(
        143,
        "the fork names the last entry of the new home, not the place behind it",
        [(failover, "fork_behind", fork_one_entry_early)],
        drawn_for=with_homes_cut_off,
    ),
    "failover-numbers-reused": PlantedBug(
        144,
        "a home after a failover numbers its segments as its rows",
        [(failover, "fork_behind", use_numbers_again)],
        drawn_for=with_homes_cut_off,
    ),
    "mirror-uncut": PlantedBug(
        145,
        "a mirror above a fork is not cut when it is taken over",
        [
            (mirror_opening, "without_dead_branch", go_on_uncut),
            (home_failover, "without_dead_branch", go_on_uncut),
        ],
        drawn_for=with_homes_cut_off,
    ),
    "dead-branch-dropped": PlantedBug(
        146,
        "rows behind a fork are dropped, not kept aside",
        [(KeptRests, "cut", keep_nothing)],
        drawn_for=with_homes_cut_off,
    ),
    "kept-by-whole-rows": PlantedBug(
        147,
        "of the row through which a fork goes nothing is kept aside",
        [(KeptRests, "_ends", end_without_keeping)],
        drawn_for=with_homes_cut_off_later,
    ),
    "loss-told-as-none": PlantedBug(
        148,
        "a failover says that nothing is lost, although the old home was out of reach",
        [(FailoverCourse, "is_ended_at_home", is_always_ended)],
        drawn_for=with_homes_cut_off,
    ),
    "range-told-late": PlantedBug(
        149,
        "the range that a failover tells of begins one record late",
        [(home_failover, "range_at_risk", tell_from_the_next_record)],
        drawn_for=with_homes_cut_off,
    ),
    "resync-of-the-home": PlantedBug(
        170,
        "a mirror is begun again by settings of before, though its region is the home by now",
        [
            (mirror_resync, "_settled", look_only_once),
            (StreamHomes, "checks_to_begin_again", check_nothing),
        ],
        drawn_for=with_resyncs,
    ),
    "rows-dropped-unnoted": PlantedBug(
        172,
        "the rows of a mirror that is begun again are dropped, and nothing says that they go",
        [(PartitionTrims, "begin_again", drop_without_a_note)],
        drawn_for=with_mirrors_begun_again,
    ),
    "dead-branch-left-by-number": PlantedBug(
        155,
        "a reader leaves a dead branch by number, and skips what the new home has there",
        [(PartitionWalk, "_leave_dead_branch", stay_in_the_dead_branch)],
        drawn_for=with_homes_lost_in_a_row,
        chaos_s=40.0,
    ),
    "two-forks-missed": PlantedBug(
        161,
        "a log that missed two forks is compared with the latest alone",
        [(branch_cut, "branch_point", fork_of_the_latest)],
        drawn_for=with_homes_lost_in_a_row,
        chaos_s=40.0,
    ),
    "forks-apart-unread": PlantedBug(
        171,
        "forks that are not in the home record any more are not read",
        [(StreamHomes, "_whole", read_what_is_at_hand)],
        drawn_for=with_homes_lost_in_a_row,
        chaos_s=40.0,
    ),
    "row-end-ignored": PlantedBug(
        162,
        "a reader reads a row to the end of its ledger, though a fork goes through it",
        [(PartitionScan, "known_end", read_to_the_end_of_its_ledger)],
        drawn_for=with_homes_cut_off_later,
    ),
    "dead-place-in-the-stream": PlantedBug(
        166,
        "a saved position of a dead branch is taken for one of the stream",
        [(PlaceSearch, "in_lineage", take_as_it_is)],
        drawn_for=with_places_of_lost_homes,
    ),
    "rest-begins-late": PlantedBug(
        150,
        "what is kept aside begins one record behind the fork",
        [(KeptRests, "_make", make_it_begin_late)],
        drawn_for=with_homes_cut_off,
    ),
}
"""Defects of failovers, by name."""
