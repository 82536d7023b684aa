"""Faults of the drill `relay-matrix`: changes of a stream while it is relayed.

Each uses a stream of its own, which is deleted in the end. Its records must be the same, at the
same positions, in every region.
"""

import trio

from geolog.client.log import Log
from geolog.client.reading.bounds import AtSequence
from geolog.client.reading.record import Gap
from geolog.protocol.ids import DLSN
from sim.processes.drills.mirrored_load import LOOK_AGAIN_S
from sim.processes.drills.relayed_regions import ANSWER_S_MAX, RelayedRegions, create_relayed

_COUNT = 200
"""Records before a change, and behind it."""

_PARTITIONS_MORE = 3

_Place = tuple[int, DLSN, int, bytes]
"""A record: partition, DLSN, sequence, value."""


async def make_again(regions: RelayedRegions) -> str:
    """Delete a stream while its mirrors follow, and make one of the same name."""
    home, stream = await create(regions, "made-again")
    log = regions.logs[home]
    await _append(log, stream, b"first", _COUNT)
    regions.note(f"deleted {stream}")
    await log.delete_stream(stream)
    targets = [region for region in regions.regions if region != home]
    name = await create_relayed(log, stream, home, targets)
    await _append(log, name, b"second", _COUNT)
    values = {b"second %d" % number for number in range(_COUNT)}
    await compare(regions, home, name, values)
    await log.delete_stream(name)
    return f"deleted {stream} and made it again"


async def truncate(regions: RelayedRegions) -> str:
    """Truncate a stream while it is appended to and relayed."""
    home, stream = await create(regions, "truncated")
    log = regions.logs[home]
    await _append(log, stream, b"first", _COUNT)
    before = regions.rng.randrange(1, _COUNT)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_append, log, stream, b"second", _COUNT)
        regions.note(f"truncated {stream}")
        # Records that a mirror may still lack stay.
        first = (await log.truncate_stream(stream, before=AtSequence(before)))[0]
    values = {b"second %d" % number for number in range(_COUNT)}
    values |= {b"first %d" % number for number in range(first, _COUNT)}
    await compare(regions, home, stream, values)
    await log.delete_stream(stream)
    return f"truncated {stream} before {before}; it begins at {first}"


async def grow(regions: RelayedRegions) -> str:
    """Add partitions to a stream while it is appended to and relayed."""
    home, stream = await create(regions, "grown")
    log = regions.logs[home]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_append, log, stream, b"first", _COUNT)
        regions.note(f"grew {stream}")
        await log.update_stream(stream, partitions=_PARTITIONS_MORE)
    await _append(log, stream, b"second", _COUNT)
    texts = (b"first", b"second")
    values = {b"%s %d" % (text, number) for text in texts for number in range(_COUNT)}
    await compare(regions, home, stream, values)
    await log.delete_stream(stream)
    return f"grew {stream} to {_PARTITIONS_MORE} partitions"


async def create(regions: RelayedRegions, what: str) -> tuple[str, str]:
    """A stream that all other regions mirror: its home and name."""
    home = regions.rng.choice(regions.regions)
    targets = [region for region in regions.regions if region != home]
    name = await create_relayed(regions.logs[home], f"drill/{what}", home, targets)
    return home, name


async def _append(log: Log, stream: str, text: bytes, count: int) -> None:
    async with log.open_writer(stream) as writer:
        for number in range(count):
            await writer.append(b"%s %d" % (text, number), key=b"%d" % number)


async def compare(regions: RelayedRegions, home: str, stream: str, values: set[bytes]) -> None:
    """Note what differs between the regions, once they had time, and from these values."""
    at_home, gaps_count = await content(regions.logs[home], stream)
    found = [value for *_, value in at_home]
    _note_differences(regions, f"{stream} at home in {home}", found, values)
    for region in regions.regions:
        mirrored: list[_Place] = []
        with trio.move_on_after(ANSWER_S_MAX):
            while (mirrored, gaps_count) != (at_home, 0):
                await trio.sleep(LOOK_AGAIN_S)
                mirrored, gaps_count = await content(
                    regions.logs[region], stream, is_mirror=region != home
                )
            continue
        found = [value for *_, value in mirrored]
        _note_differences(regions, f"{stream} in {region}", found, values)
        if set(mirrored) != set(at_home) or gaps_count:
            regions.problems.append(f"{stream}: {region} has other positions, or gaps")


async def content(
    log: Log, stream: str, *, is_mirror: bool = False
) -> tuple[list[_Place], int]:
    """All that readers get, by position; only what a mirror has, if they must get that."""
    places: list[_Place] = []
    gaps_count = 0
    async with log.open_reader(stream) as reader:
        async for item in reader.items():
            if isinstance(item, Gap):
                gaps_count += 1
            elif item.origin is not None or not is_mirror:
                places.append((item.partition, item.dlsn, item.sequence, item.value))
    return sorted(places), gaps_count


def _note_differences(
    regions: RelayedRegions, where: str, found: list[bytes], values: set[bytes]
) -> None:
    counts = {
        "lost": len(values - set(found)),
        "repeated": len(found) - len(set(found)),
        "foreign": len(set(found) - values),
    }
    regions.problems.extend(
        f"{where}: {count} records {what}" for what, count in counts.items() if count
    )
