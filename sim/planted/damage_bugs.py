"""Defects in how nodes handle damage, settled or unreadable."""

from regions.storage import readable, replay
from regions.storage.disk import DiskFile, UnreadableError
from regions.storage.protocol.damage import DamageSet
from regions.storage.readable import Readable
from sim.planted.planted_bug import PlantedBug


def without_settled_files(found: DamageSet, settled: DamageSet) -> DamageSet:
    """Drop all damage of files of which some damage was settled."""
    return DamageSet(
        damage
        for damage in found
        if not any(settled.is_in(file) for file in range(damage.first, damage.last + 1))
    )


async def end_at_unreadable(file: DiskFile, offset: int, length: int) -> Readable:
    """Take an unreadable part as the end of the file."""
    at, parts = offset, []
    try:
        while at < min(offset + length, file.size_bytes):
            piece_bytes = min(
                readable.PAGE_BYTES - at % readable.PAGE_BYTES, offset + length - at
            )
            parts.append(await file.read(at, piece_bytes))
            at += piece_bytes
    except UnreadableError:
        pass
    return Readable(b"".join(parts))


DAMAGE_BUGS: dict[str, PlantedBug] = {
    "settled-by-file": PlantedBug(
        78,
        "new damage to a file counts as settled if earlier damage was",
        [(DamageSet, "without", without_settled_files)],
        is_of_damage=True,
    ),
    "unreadable-as-end": PlantedBug(
        79,
        "a file is taken to end at its first unreadable byte",
        [
            (readable, "read_around", end_at_unreadable),
            (replay, "read_around", end_at_unreadable),
        ],
        is_of_damage=True,
    ),
}
"""These bugs, by name."""
