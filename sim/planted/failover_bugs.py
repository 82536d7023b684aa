"""Defects of failovers, and of what they leave behind: each replaces a good method."""

from collections.abc import Iterable, Sequence

import attrs

from geolog.catalog.home_moves import HomeMoves
from geolog.catalog.kept_rests import DeadBranch, KeptRests
from geolog.catalog.partition_owners import VersionedOwner
from geolog.client.reading.bounds import Bound
from geolog.client.reading.gone import TrimmedRun
from geolog.client.reading.place_search import PlaceSearch
from geolog.client.reading.scan import PartitionScan
from geolog.client.reading.walk import PartitionWalk
from geolog.metadata.documents import seal_document
from geolog.metadata.seam import Operation, Put
from geolog.partition import branch_cut, home_failover, mirror_opening
from geolog.partition.mirror_writer import last_watermark
from geolog.partition.takeover import TakenOver, Takeover
from geolog.protocol import failover, switch_over
from geolog.protocol.failover import EndedLog, FailoverCourse
from geolog.protocol.home_record import Fork
from geolog.protocol.ids import EntryId, SegmentEntry
from geolog.protocol.ledger_state import LedgerRecord
from geolog.protocol.mirror_course import MirrorCourse
from geolog.protocol.read_end import PartitionEnd
from geolog.protocol.stream_state import PartitionName, SegmentRecord, StreamRecord
from geolog.protocol.watermark import Watermark
from sim.planted.planted_bug import PlantedBug
from sim.world.chance import Draws
from sim.world.draws.failover_draws import with_homes_cut_off
from sim.world.options import Options

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001

_fork_behind = switch_over.fork_behind
_compare = FailoverCourse._compare
_cut = KeptRests.cut
_finish = HomeMoves.finish
_known_end = PartitionScan.known_end


def with_two_failovers(options: Options, draws: Draws) -> Options:
    """A world whose home is cut off and fails over, often twice in a row."""
    drawn = with_homes_cut_off(options, draws)
    return attrs.evolve(drawn, knobs=attrs.evolve(drawn.knobs, failovers_at_once_share=0.7))


def with_names_cut_off(options: Options, draws: Draws) -> Options:
    """The same with one failover at a time, and writers that number their records."""
    drawn = with_homes_cut_off(options, draws)
    return attrs.evolve(
        drawn, knobs=attrs.evolve(drawn.knobs, are_writers_named=True, repeats_share=0.3)
    )


def with_cursors_cut_off(options: Options, draws: Draws) -> Options:
    """The same, and a cursor is read in all regions."""
    drawn = with_homes_cut_off(options, draws)
    return attrs.evolve(drawn, stream=attrs.evolve(drawn.stream, cursor_readers=3))


def latest_fork_alone(forks: Iterable[Fork], home_epoch: int) -> Fork | None:
    """Take the latest fork for the end of every epoch before it."""
    later = [one for one in forks if one.home_epoch > home_epoch]
    return max(later, key=lambda one: one.home_epoch, default=None)


def read_to_the_ledgers_end(
    scan: PartitionScan, segment: SegmentRecord, ledger: LedgerRecord, end: PartitionEnd | None
) -> EntryId:
    """Read a completed row to the end of its ledger."""
    is_last = end is not None and end.row_number == segment.row_number
    if not is_last and ledger.last_entry is not None:
        return ledger.last_entry
    return _known_end(scan, segment, ledger, end)


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


def is_never_off(_course: MirrorCourse, _mark: Watermark) -> bool:
    """Take entries of a dead branch."""
    return False


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


async def keep_the_sessions(moves: HomeMoves, *parts: object, **named: object) -> StreamRecord:
    """Have writers go on although records may be lost."""
    return await _finish(moves, *parts, **{**named, "is_whole": True})  # type: ignore[arg-type]


def is_always_ended(_core: FailoverCourse, _number: int) -> bool:
    """Take the log of the old home for one that was read to its end."""
    return True


async def leave_silently(walk: PartitionWalk, segment: SegmentRecord) -> TrimmedRun | None:
    """Go on by number in the list of the later home."""
    epoch, due = walk._home_epoch, walk._sequence
    if epoch is None or due is None or segment.home_epoch <= epoch:
        return None
    if due > segment.first_sequence:
        begin = await PlaceSearch(walk._scan).at_sequence(due)
        walk._segment, walk._entry = begin.row_number, begin.entry
        walk._sequence, walk._least_sequence = None, due
        walk._home_epoch, walk._ledger = None, None
    return None


async def take_any_position(
    _search: PlaceSearch, bound: Bound | None
) -> tuple[Bound | None, TrimmedRun | None]:
    """Take a position of any home epoch for one of the lineage as it is now."""
    return bound, None


FAILOVER_BUGS: dict[str, PlantedBug] = {
    "latest-fork-alone": PlantedBug(
        143,
        "a log that missed two forks is compared with the latest one alone",
        [(branch_cut, "branch_point", latest_fork_alone)],
        drawn_for=with_two_failovers,
    ),
    "row-end-unread": PlantedBug(
        144,
        "a row that a fork goes through is read to the end of its ledger",
        [(PartitionScan, "known_end", read_to_the_ledgers_end)],
        drawn_for=with_homes_cut_off,
    ),
    "fork-above-the-home": PlantedBug(
        145,
        "a failover forks behind the best log without fetching what the new home lacks",
        [(FailoverCourse, "_compare", fork_at_the_best)],
        drawn_for=with_homes_cut_off,
    ),
    "fork-one-entry-early": PlantedBug(
        146,
        "the fork names the last entry of the new home, not the place behind it",
        [(failover, "fork_behind", fork_one_entry_early)],
        drawn_for=with_homes_cut_off,
    ),
    "failover-numbers-reused": PlantedBug(
        147,
        "a home after a failover numbers its segments as its rows",
        [(failover, "fork_behind", use_numbers_again)],
        drawn_for=with_homes_cut_off,
    ),
    "mirror-uncut": PlantedBug(
        148,
        "a mirror above a fork is not cut when it is taken over",
        [
            (mirror_opening, "without_dead_branch", go_on_uncut),
            (home_failover, "without_dead_branch", go_on_uncut),
        ],
        drawn_for=with_homes_cut_off,
    ),
    "dead-branch-dropped": PlantedBug(
        149,
        "rows behind a fork are dropped, not kept aside",
        [(KeptRests, "cut", keep_nothing)],
        drawn_for=with_homes_cut_off,
    ),
    "kept-by-whole-rows": PlantedBug(
        150,
        "of the row through which a fork goes nothing is kept aside",
        [(KeptRests, "_ends", end_without_keeping)],
        drawn_for=with_homes_cut_off,
    ),
    "sessions-outlive-losses": PlantedBug(
        151,
        "sessions of writers go on in a new home that may lack what they were answered",
        [(HomeMoves, "finish", keep_the_sessions)],
        drawn_for=with_names_cut_off,
    ),
    "loss-told-as-none": PlantedBug(
        152,
        "a failover says that nothing is lost, although the old home was out of reach",
        [(FailoverCourse, "is_ended_at_home", is_always_ended)],
        drawn_for=with_homes_cut_off,
    ),
    "branch-left-silently": PlantedBug(
        153,
        "a reader that followed a dead branch goes on by number in the later home",
        [(PartitionWalk, "_leave_dead_branch", leave_silently)],
        drawn_for=with_homes_cut_off,
    ),
    "position-of-any-home": PlantedBug(
        154,
        "a saved position in a dead branch is taken for one in the later home",
        [(PlaceSearch, "in_lineage", take_any_position)],
        drawn_for=with_cursors_cut_off,
    ),
    "dead-entries-taken": PlantedBug(
        155,
        "a mirror takes entries of its home's dead branch",
        [(MirrorCourse, "_is_off", is_never_off)],
        drawn_for=with_homes_cut_off,
    ),
}
"""Defects of failovers, by name."""
