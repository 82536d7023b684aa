"""Defects of verification."""

import attrs

from geolog.protocol.messages import Read
from regions.storage.read_lane import Answered
from regions.storage.service import StorageService
from sim.planted.planted_bug import PlantedBug

_read = StorageService.read
_read_in_memory = StorageService.read_in_memory


def answer_from_memory(service: StorageService, read: Read) -> Answered | None:
    """Serve a read that should come from disk from memory, if possible."""
    return _read_in_memory(service, attrs.evolve(read, is_from_disk=False))


async def read_by_the_caches(service: StorageService, read: Read) -> Answered:
    """Read from disk only what no cache has."""
    return await _read(service, attrs.evolve(read, is_from_disk=False))


VERIFICATION_BUGS: dict[str, PlantedBug] = {
    "verified-in-memory": PlantedBug(
        82,
        "verification is answered from the memory of nodes",
        [
            (StorageService, "read_in_memory", answer_from_memory),
            (StorageService, "read", read_by_the_caches),
        ],
    ),
}
"""These bugs, by name."""
