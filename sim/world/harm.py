"""What rot, a stray hand or a disk that writes to the wrong place does to synced bytes.

Only files are harmed that another followed. Of the newest a harmed end looks as a torn one
does, and no node can tell what was synced there but by what comes behind it.
"""

from random import Random

from regions.protocol.records import file_id_of
from sim.memory_disk import SECTOR_BYTES, MemoryDisk

_CUT_CHANCE = 0.3


def harm_disk(disk: MemoryDisk, rng: Random) -> str | None:
    """Change some bytes of some file; what was done, or None if there is nothing to harm."""
    older = [name for name in disk.names if file_id_of(name) is not None][:-1]
    names = [name for name in older if disk.content(name)]
    if not names:
        return None
    name = rng.choice(names)
    content = disk.content(name)
    if rng.random() < _CUT_CHANCE:
        length = rng.randrange(len(content))
        disk.overwrite(name, content[:length])
        return f"the end of {name} from {length} on"
    if rng.random() < 0.5:
        offset = rng.randrange(len(content))
        harmed = bytes([content[offset] ^ 1 << rng.randrange(8)])
        what = "a flipped bit"
    else:
        offset = _some_sector(content, rng)
        harmed, what = _other_sector(disk, rng, names)
    disk.overwrite_at(name, offset, harmed[: len(content) - offset])
    return f"{what} at {offset} of {name}"


def _other_sector(disk: MemoryDisk, rng: Random, names: list[str]) -> tuple[bytes, str]:
    if rng.random() < 0.5:
        return bytes(SECTOR_BYTES), "zeros"
    content = disk.content(rng.choice(names))
    start = _some_sector(content, rng)
    return content[start : start + SECTOR_BYTES], "another sector"


def _some_sector(content: bytes, rng: Random) -> int:
    return rng.randrange((len(content) + SECTOR_BYTES - 1) // SECTOR_BYTES) * SECTOR_BYTES
