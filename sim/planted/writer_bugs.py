"""Defects of writers: what stands in the place of a good method, under its signature."""

from geolog.client.writing.record_fields import RecordFields
from geolog.client.writing.writer import Writer
from geolog.client.writing.writer_lane import WriterLane
from sim.planted.planted_bug import PlantedBug


def has_room_in_lane(
    _writer: Writer, lane: WriterLane, fields: RecordFields, size_bytes: int
) -> bool:
    """Take records in, however many bytes are in flight."""
    return lane.has_room(fields, size_bytes)


WRITER_BUGS: dict[str, PlantedBug] = {
    "unbounded-writer": PlantedBug(
        63,
        "a writer takes records in without a bound",
        [(Writer, "_has_room", has_room_in_lane)],
    ),
}
"""By name."""
