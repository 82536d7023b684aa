"""Defects of planned moves of a home: each replaces a good method."""

from collections.abc import Iterable, Sequence

import attrs
import trio

from geolog.catalog import partition_trims
from geolog.catalog.home_moves import HomeMoves, MarkedMove, MirrorsReclaimedError
from geolog.catalog.segment_records import VersionedSegment
from geolog.catalog.stream_homes import StreamHomes, VersionedHome
from geolog.client.log import Log
from geolog.client.reading.scan import PartitionScan
from geolog.ledger.reading.ledger_reader import LedgerReader
from geolog.metadata.seam import Check, Operation
from geolog.partition import home_switch, state_recovery, takeover
from geolog.partition.home_move import HomeMove
from geolog.partition.home_switch import HomeSwitch
from geolog.partition.owner import OwnedPartitions
from geolog.partition.read_back import LocalOnlyElsewhereError
from geolog.partition.repeated_batch import RepeatedBatch
from geolog.protocol import switch_over
from geolog.protocol.home_record import Fork, HomeRecord
from geolog.protocol.ids import Position
from geolog.protocol.partition_state import PartitionState, WrittenBatch
from geolog.protocol.stream_state import PartitionName, SegmentRecord, StreamRecord
from geolog.protocol.switch_over import Effect, Flip, SwitchOver
from geolog.protocol.watermark import Watermark
from sim.planted.planted_bug import PlantedBug
from sim.world.chance import Draws
from sim.world.draws.move_draws import AMBUSH_MOVE, with_moves
from sim.world.draws.relay_draws import COORDINATORS_GONE
from sim.world.options import Options
from topology.errors import ConflictError, GeologError

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001

_fork = SwitchOver._fork
_scan = Log._scan
_recovered_state = state_recovery.recovered_state


def with_many_moves(options: Options, draws: Draws) -> Options:
    """A world whose home moves all the time; some moves are stopped in the middle."""
    drawn = with_moves(options, draws)
    return attrs.evolve(
        drawn,
        knobs=attrs.evolve(
            drawn.knobs,
            moves_rest_s_max=1.0,
            moves_dropped_share=0.3,
            move_s_max=3.0,
            relay_evict_bytes=None,
            relays_after_s=0.0,
        ),
        stream=attrs.evolve(drawn.stream, seal_after_s_max=None),
    )


def with_much_left_behind(options: Options, draws: Draws) -> Options:
    """The same, and most records stay in the region in which they were appended."""
    drawn = with_many_moves(options, draws)
    return attrs.evolve(drawn, knobs=attrs.evolve(drawn.knobs, local_only_share=0.7))


def with_repeats_of_what_is_left(options: Options, draws: Draws) -> Options:
    """The same, and writers often repeat what was acknowledged."""
    drawn = with_much_left_behind(options, draws)
    knobs = attrs.evolve(drawn.knobs, are_writers_named=True, repeats_share=0.7)
    return attrs.evolve(drawn, knobs=knobs)


def with_movers_struck(options: Options, draws: Draws) -> Options:
    """The same, and strikes wait for the steps of moves alone."""
    drawn = with_many_moves(options, draws)
    return attrs.evolve(
        drawn,
        knobs=attrs.evolve(drawn.knobs, moves_dropped_share=0.0, movers_count=1),
        hazards=attrs.evolve(drawn.hazards, strikes_per_s=((AMBUSH_MOVE, 5.0),)),
    )


def with_truncated_moves(options: Options, draws: Draws) -> Options:
    """The same, while the front is truncated all the time."""
    drawn = with_many_moves(options, draws)
    return attrs.evolve(
        drawn, stream=attrs.evolve(drawn.stream, truncation_rest_s_max=0.2, partitions_added=0)
    )


def with_rows_truncated(options: Options, draws: Draws) -> Options:
    """The same with long segments, each of which gets several rows in a mirror."""
    drawn = with_truncated_moves(options, draws)
    return attrs.evolve(
        drawn,
        knobs=attrs.evolve(
            drawn.knobs, segment_bytes=1 << 20, appends_per_tenure=400, moves_rest_s_max=6.0
        ),
        hazards=attrs.evolve(drawn.hazards, strikes_per_s=((COORDINATORS_GONE, 0.7),)),
    )


def with_numbered_moves(options: Options, draws: Draws) -> Options:
    """The same, and writers number their records, and repeat many of them."""
    drawn = with_many_moves(options, draws)
    return attrs.evolve(
        drawn, knobs=attrs.evolve(drawn.knobs, are_writers_named=True, repeats_share=0.7)
    )


def with_cursors_set_back(options: Options, draws: Draws) -> Options:
    """The same, and a cursor is read, and set back."""
    drawn = with_many_moves(options, draws)
    return attrs.evolve(
        drawn,
        stream=attrs.evolve(drawn.stream, cursor_readers=2, cursor_seek_rest_s_max=2.0),
    )


async def give_up_what_has_happened(
    moves: HomeMoves, known: StreamRecord, move_id: str
) -> bool:
    """Give a move up whether or not the home has changed meanwhile."""
    stream, version = await moves._same_stream(known)
    home = await moves._home(known)
    if home.record.move_id != move_id and home.record.home_epoch == known.home_epoch:
        return False
    stayed = HomeRecord(
        region=str(known.home), home_epoch=known.home_epoch, forks=home.record.forks
    )
    stays = attrs.evolve(known, moving_to="", partitions=stream.partitions)
    return await moves._store(home, stayed, version, stays) is not None


async def flip_once(switch: HomeSwitch, run: home_switch._Run, flip: Flip) -> list[Effect]:
    """Take a change of the home whose answer was lost for one that failed."""
    move, moves = run.move, switch.takeover.partitions.home_moves
    assert move.marked is not None
    try:
        move.after = await moves.finish(move.marked, flip.forks, move.claims)
    except MirrorsReclaimedError as error:
        return run.core.on_reclaimed([name.number for name in error.names])
    except GeologError as error:
        return run.core.on_failed(error)
    return run.core.on_flipped()


def use_numbers_again(core: SwitchOver, one: switch_over._Partition) -> Fork:
    """Have the new home number its segments as its rows."""
    return attrs.evolve(_fork(core, one), segment_offset=0)


async def forget_writers_of_other_homes(
    name: PartitionName, *, last: SegmentRecord, **parts: object
) -> PartitionState:
    """Recover no writers if the last row is that of a mirror, or of a home that was one."""
    state = await _recovered_state(name, last=last, **parts)  # type: ignore[arg-type]
    return state if last.row is None else attrs.evolve(state, writers={})


async def wait_for_no_mirror(
    _switch: HomeSwitch, _move: HomeMove, _mirror: PartitionName, _last: Watermark | None
) -> None:
    """Take any mirror for one that has everything."""


def are_always_equal(_home: Watermark | None, _mirror: Watermark | None) -> bool:
    """Compare nothing."""
    return True


async def take_it_for_closed(_move: HomeMove, _name: PartitionName) -> bool:
    """Take the last segment at home for a completed one."""
    return True


async def check_no_home(
    homes: StreamHomes, name: PartitionName, _home_epoch: int | None = None
) -> list[Check]:
    """Change the log of a home that may have moved."""
    await homes.look(name)
    return []


async def follow_no_move(_owned: OwnedPartitions) -> None:
    """Go on as the owner while the home moves."""
    await trio.sleep_forever()


async def take_for_alive(_moves: HomeMoves, _home: HomeRecord) -> bool:
    """Take any mover for one that is still there."""
    return True


async def judge_by_what_is_known(
    homes: StreamHomes, name: PartitionName, check: object
) -> VersionedHome | None:
    """Fence an owner by a home record that may be old."""
    home = await homes._known_home(name)
    if home is not None:
        check(home.record)  # type: ignore[operator]
    return home


async def leave_trims_behind(
    _moves: HomeMoves,
    _move: MarkedMove,
    _stream: StreamRecord,
    _logs: Iterable[PartitionName],
    _forks: Sequence[Fork],
) -> list[Operation]:
    """Have the new home begin where its mirror does."""
    return []


def keep_the_records_home(position: Position, _known: Position | None) -> Position:
    """Take the home of a record for that of the position behind it."""
    return position


def gone_by_row(
    whole: partition_trims._WholeSegments, found: VersionedSegment
) -> list[VersionedSegment]:
    """Drop each row that lies before the trim, whatever stays of its segment."""
    last = found.record.last_sequence
    whole.is_over = last is None or last >= whole.first_sequence
    return [] if whole.is_over else [found]


def scan_as_if_never_moved(
    log: Log, record: StreamRecord, name: PartitionName, reader: LedgerReader | None = None
) -> PartitionScan:
    """Read the log of the first home as if each of its rows were a segment."""
    scan = _scan(log, record, name, reader)
    scan.has_rows = bool(name.region)
    return scan


def scan_by_the_home_of_now(
    log: Log, record: StreamRecord, name: PartitionName, reader: LedgerReader | None = None
) -> PartitionScan:
    """Take a reader for abroad unless the home is in its region, whichever log it reads."""
    scan = _scan(log, record, name, reader)
    scan.is_abroad = log.region not in (None, record.home)
    return scan


def refuse_what_is_elsewhere(
    _batch: RepeatedBatch, _written: WrittenBatch, seq: int, error: LocalOnlyElsewhereError
) -> None:
    """Take a batch whose bytes are in another region for a different one."""
    raise ConflictError(f"seq {seq} was appended before with different bytes: {error}")


MOVE_BUGS: dict[str, PlantedBug] = {
    "gives-up-after-the-flip": PlantedBug(
        129,
        "a move whose change of the home got no answer is given up, by a write that compares"
        " nothing",
        [
            (HomeSwitch, "_flip", flip_once),
            (HomeMoves, "give_up", give_up_what_has_happened),
        ],
        drawn_for=with_movers_struck,
    ),
    "segment-numbers-reused": PlantedBug(
        130,
        "a new home numbers its segments as its rows, whatever earlier homes have used",
        [(SwitchOver, "_fork", use_numbers_again)],
        drawn_for=with_many_moves,
    ),
    "writers-forgotten-at-the-move": PlantedBug(
        131,
        "a home that was a mirror does not recover the seqs of its writers",
        [(takeover, "recovered_state", forget_writers_of_other_homes)],
        drawn_for=with_numbered_moves,
    ),
    "mirror-not-compared": PlantedBug(
        132,
        "the home moves to a mirror whose end was neither waited for nor compared",
        [
            (HomeSwitch, "_await_mirror", wait_for_no_mirror),
            (switch_over, "_are_equal", are_always_equal),
        ],
        drawn_for=with_many_moves,
    ),
    "home-not-closed": PlantedBug(
        133,
        "the home moves before the last ledger of the old home is closed and completed",
        [(HomeMove, "_is_closed", take_it_for_closed)],
        drawn_for=with_many_moves,
    ),
    "old-home-writes-on": PlantedBug(
        134,
        "a writer of the old home does not check the home record, and does not see the move",
        [
            (StreamHomes, "checks_to_open", check_no_home),
            (StreamHomes, "checks_to_close", check_no_home),
            (OwnedPartitions, "follow_stream", follow_no_move),
        ],
        drawn_for=with_many_moves,
    ),
    "mark-stays": PlantedBug(
        135,
        "nobody gives up a move whose mover is gone",
        [(HomeMoves, "is_mover_alive", take_for_alive)],
        drawn_for=with_movers_struck,
    ),
    "fenced-by-a-move-given-up": PlantedBug(
        136,
        "an owner is fenced by the home record that it read last, which may be old",
        [(StreamHomes, "_judged", judge_by_what_is_known)],
        drawn_for=with_many_moves,
    ),
    "trim-left-behind": PlantedBug(
        137,
        "the new home begins where its mirror does, not where the old home did",
        [(HomeMoves, "_trimmed_alike", leave_trims_behind)],
        drawn_for=with_truncated_moves,
    ),
    "position-of-the-record": PlantedBug(
        139,
        "a cursor's position is of the home of the last record, and so may count as lower",
        [(Position, "reached_from", keep_the_records_home)],
        drawn_for=with_cursors_set_back,
    ),
    "rows-dropped-apart": PlantedBug(
        140,
        "a trim drops the first rows of a segment of which a later row stays",
        [(partition_trims._WholeSegments, "gone_before", gone_by_row)],
        drawn_for=with_rows_truncated,
    ),
    "rows-read-as-segments": PlantedBug(
        141,
        "the log of the first home is read as if it had never been a mirror",
        [(Log, "_scan", scan_as_if_never_moved)],
        drawn_for=with_many_moves,
    ),
    "local-only-withheld": PlantedBug(
        163,
        "local-only records are withheld from readers in their region once the home has moved",
        [(Log, "_scan", scan_by_the_home_of_now)],
        drawn_for=with_much_left_behind,
    ),
    "local-only-repeat-refused": PlantedBug(
        164,
        "a new home refuses the repeat of a record that stayed in the region of the old one",
        [(RepeatedBatch, "_compare_checksums", refuse_what_is_elsewhere)],
        drawn_for=with_repeats_of_what_is_left,
    ),
}
"""These bugs, by name."""
