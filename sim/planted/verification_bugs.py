"""Defects of verification and of the repair queue; and the list of them."""

from collections.abc import Sequence

import attrs

from geolog.client.reading import verification
from geolog.client.upkeep import queue_repair
from geolog.metadata.repair_queue import RepairReason
from geolog.protocol.messages import Read
from regions.storage.read_lane import Answered
from regions.storage.service import StorageService
from sim.planted.planted_bug import PlantedBug

_read = StorageService.read
_read_in_memory = StorageService.read_in_memory


def answer_from_memory(service: StorageService, read: Read) -> Answered | None:
    """Answer a read from disk as any other, if memory can."""
    return _read_in_memory(service, attrs.evolve(read, is_from_disk=False))


async def read_by_the_caches(service: StorageService, read: Read) -> Answered:
    """Read what no cache has."""
    return await _read(service, attrs.evolve(read, is_from_disk=False))


def nothing_to_repair(*_: object, **__: object) -> list[RepairReason]:
    """Let what was found be told, and no more."""
    return []


async def nobody_in_doubt(*_: object, **__: object) -> Sequence[object]:
    """Leave what nodes in doubt lack to others."""
    return []


VERIFICATION_BUGS: dict[str, PlantedBug] = {
    "verified-in-memory": PlantedBug(
        82,
        "a verification is answered from the memory of nodes",
        [
            (StorageService, "read_in_memory", answer_from_memory),
            (StorageService, "read", read_by_the_caches),
        ],
    ),
    "verified-and-not-queued": PlantedBug(
        83,
        "what a verification finds damaged or missing is not put into the repair queue",
        [(verification, "_to_repair", nothing_to_repair)],
    ),
    "doubt-left-alone": PlantedBug(
        84,
        "a repair of the queue leaves out what nodes in doubt lack",
        [(queue_repair, "nodes_in_doubt", nobody_in_doubt)],
    ),
}
"""By name."""
