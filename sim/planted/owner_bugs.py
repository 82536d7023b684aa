"""Defects of owners, and of readers that look for them: each replaces a good method."""

from geolog.partition.batch_in_flight import PartInFlight
from geolog.partition.partition_writer import PartitionWriter
from geolog.protocol.ids import Sequence
from geolog.protocol.owner_absence import OwnerAbsences, OwnerLook
from geolog.protocol.owner_answers import Placed
from geolog.protocol.owner_presence import OwnerPresence
from geolog.protocol.read_end import EndSearch, Step, _OpenTail
from geolog.protocol.segment_succession import Rest, SegmentSuccession, SegmentView
from geolog.protocol.stream_state import PartitionName
from geolog.protocol.tail_view import TailView
from sim.planted.planted_bug import PlantedBug
from topology.errors import GeologError

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001

_start = PartitionWriter.start
_fail = PartitionWriter._fail
_on_taken = OwnerPresence.on_taken

_wait_for_lac = EndSearch._wait_for_lac

_NOT_LOOKED_AT = -1


def take_without_a_look(presence: OwnerPresence, owner: str, session: int) -> None:
    """Look only once the writer has started."""
    _on_taken(presence, owner, session)
    presence._shown_in = _NOT_LOOKED_AT


def is_hidden_once_looked_at(presence: OwnerPresence, session: int) -> bool:
    """Show only processes whose writers have started."""
    return presence._shown_in not in (session, _NOT_LOOKED_AT)


async def start_and_look(writer: PartitionWriter) -> None:
    """Take the session of the first look as the one in which the process was shown."""
    await _start(writer)
    owners = writer._owners
    owners._core._shown_in = owners._metadata.session_id


def fail_and_stay(writer: PartitionWriter, failure: GeologError) -> None:
    """Fail, but keep reporting that the owner is alive."""
    is_leaving, writer._is_leaving = writer._is_leaving, True
    _fail(writer, failure)
    writer._is_leaving = is_leaving


def take_for_dead(
    _absences: OwnerAbsences[PartitionName],
    _partition: PartitionName,
    _look: OwnerLook,
    *,
    now_s: float,  # noqa: ARG001 - the shape.
    session_timeout_s: float,  # noqa: ARG001 - the shape.
) -> bool:
    """Recover, whether there is an owner or not."""
    return True


def wait_for_ever(core: SegmentSuccession, view: SegmentView) -> Rest:
    """Wait for answers, though none is missing."""
    return core._rest(view)


def end_where_members_say(search: EndSearch, tail: _OpenTail, view: TailView) -> Step:
    """Take the end that the members told, whether or not the LAC covers it."""
    if tail.end is None:
        return _wait_for_lac(search, tail, view)
    return search._end_at(tail.ledger, tail.end)


def place_of_the_entry(part: PartInFlight) -> Placed:
    """Tell where the entry begins, whatever comes before the batch in it."""
    first_sequence = Sequence(part.first_sequence - part.slot)
    return Placed(part.segment, part.entry, 0, first_sequence)


OWNER_BUGS: dict[str, PlantedBug] = {
    "hidden-owner": PlantedBug(
        66,
        "an owner whose session was lost before its first look is not shown in the next",
        [
            (OwnerPresence, "on_taken", take_without_a_look),
            (OwnerPresence, "is_hidden", is_hidden_once_looked_at),
            (PartitionWriter, "start", start_and_look),
        ],
        is_of_owners=True,
    ),
    "failed-owner-stays": PlantedBug(
        67,
        "an owner that has failed keeps reporting that it is alive",
        [(PartitionWriter, "_fail", fail_and_stay)],
        is_of_owners=True,
    ),
    "live-owner-deposed": PlantedBug(
        68,
        "a reader recovers an open ledger without looking for its owner",
        [(OwnerAbsences, "on_look", take_for_dead)],
        is_of_owners=True,
    ),
    "roll-never-ends": PlantedBug(
        90,
        "a roll never moves on to the next ledger",
        [(SegmentSuccession, "_roll_over", wait_for_ever)],
    ),
    "end-above-lac": PlantedBug(
        91,
        "a read ends behind entries that are not acknowledged",
        [(EndSearch, "_wait_for_lac", end_where_members_say)],
    ),
    "answered-as-first-of-entry": PlantedBug(
        96,
        "a batch that shares an entry is answered with the place of the first one",
        [(PartInFlight, "placed", property(place_of_the_entry))],
    ),
}
"""These bugs, by name."""
