"""Faults of the drill `relay-matrix`: changes of a stream while it is relayed.

Each uses a stream of its own, which is deleted in the end. Its records must be the same, in the
same order and at the same positions, in every region.
"""

from collections.abc import Sequence

import attrs
import trio

from geolog.client.log import Log
from geolog.client.reading.bounds import AtSequence
from geolog.client.reading.record import Gap
from geolog.protocol.ids import DLSN
from sim.processes.drills.mirrored_load import LOOK_AGAIN_S
from sim.processes.drills.relayed_regions import ANSWER_S_MAX, RelayedRegions, create_relayed
from topology.errors import UnavailableError

_COUNT = 200
"""Records before a change, and behind it."""

_PARTITIONS_MORE = 3

SEGMENT_BYTES = 64 << 10
"""The smallest: so there are segments that all mirrors have completed."""

_LARGE_BYTES = 2000
"""Of these, a segment holds about thirty records."""

Place = tuple[DLSN, int, bytes]
"""A record: DLSN, sequence, value."""


@attrs.frozen
class Content:
    """All that a reader got from the beginning to the end, in that order."""

    places: dict[int, list[Place]]
    """By partition."""
    gaps: list[Gap]

    @property
    def values(self) -> list[bytes]:
        """All values, partition by partition."""
        return [value for number in sorted(self.places) for *_, value in self.places[number]]


async def make_again(regions: RelayedRegions) -> str:
    """Delete a stream while its mirrors follow, and make one of the same name."""
    home, stream = await create(regions, "made-again")
    log = regions.logs[home]
    await append(log, stream, values_of(b"first"))
    regions.note(f"deleted {stream}")
    await log.delete_stream(stream)
    targets = [region for region in regions.regions if region != home]
    name = await create_relayed(log, stream, home, targets)
    values = values_of(b"second")
    await append(log, name, values)
    await compare(regions, home, name, values)
    await log.delete_stream(name)
    return f"deleted {stream} and made it again"


async def truncate(regions: RelayedRegions) -> str:
    """Truncate a stream while it is appended to and relayed.

    The home keeps what a mirror may lack, so it begins later only once all mirrors have
    completed segments. In the end all regions must begin at the same record.
    """
    home, stream = await create(regions, "truncated", segment_bytes=SEGMENT_BYTES)
    log = regions.logs[home]
    values = values_of(b"first", b"second", size_bytes=_LARGE_BYTES, regions=regions)
    await append(log, stream, values[:_COUNT])
    before = regions.rng.randrange(_COUNT // 2, _COUNT)
    first = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(append, log, stream, values[_COUNT:])
        regions.note(f"truncated {stream}")
        with trio.move_on_after(ANSWER_S_MAX):
            while not first:
                first = (await log.truncate_stream(stream, before=AtSequence(before)))[0]
                await trio.sleep(LOOK_AGAIN_S)
    if not first:
        regions.problems.append(
            f"{stream} still begins at 0, {ANSWER_S_MAX:.0f} s after it was truncated before"
            f" {before}"
        )
    await compare(regions, home, stream, values[first:])
    await log.delete_stream(stream)
    regions.measure("truncated_first", first)
    return f"truncated {stream} before {before}; every region begins at {first}"


async def grow(regions: RelayedRegions) -> str:
    """Add partitions to a stream while it is appended to and relayed."""
    home, stream = await create(regions, "grown")
    log = regions.logs[home]
    values = values_of(b"first", b"second")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(append, log, stream, values[:_COUNT])
        regions.note(f"grew {stream}")
        await log.update_stream(stream, partitions=_PARTITIONS_MORE)
    await append(log, stream, values[_COUNT:])
    await compare(regions, home, stream, values)
    await log.delete_stream(stream)
    return f"grew {stream} to {_PARTITIONS_MORE} partitions"


async def create(
    regions: RelayedRegions, what: str, *, segment_bytes: int | None = None
) -> tuple[str, str]:
    """A stream that all other regions mirror: its home and name."""
    home = regions.rng.choice(regions.regions)
    targets = [region for region in regions.regions if region != home]
    name = await create_relayed(
        regions.logs[home], f"drill/{what}", home, targets, segment_bytes=segment_bytes
    )
    return home, name


def values_of(
    *texts: bytes, size_bytes: int = 0, regions: RelayedRegions | None = None
) -> list[bytes]:
    """Values to append one by one, all different; padded with bytes that do not compress."""
    values = [b"%s %d" % (text, number) for text in texts for number in range(_COUNT)]
    if regions is None:
        return values
    return [one + regions.rng.randbytes(size_bytes - len(one)) for one in values]


async def append(log: Log, stream: str, values: Sequence[bytes]) -> None:
    """Append these one after the other."""
    async with log.open_writer(stream) as writer:
        for number, value in enumerate(values):
            await writer.append(value, key=b"%d" % number)


async def compare(
    regions: RelayedRegions,
    home: str,
    stream: str,
    values: Sequence[bytes],
    *,
    is_one_by_one: bool = True,
) -> None:
    """Note what differs between the regions, once they had time, and from these values.

    is_one_by_one: each value was appended after the one before it was acknowledged.
    """
    at_home = await content(regions.logs[home], stream)
    _note_differences(regions, f"{stream} at home in {home}", at_home, values)
    if is_one_by_one:
        regions.problems.extend(disorder(f"{stream} at home in {home}", at_home, values))
    for region in regions.regions:
        where, mirrored = f"{stream} in {region}", Content({}, [])
        with trio.move_on_after(ANSWER_S_MAX):
            while mirrored != at_home:
                await trio.sleep(LOOK_AGAIN_S)
                mirrored = await content(regions.logs[region], stream, is_mirror=region != home)
            continue
        _note_differences(regions, where, mirrored, values)
        if mirrored != at_home:
            regions.problems.append(f"{where}: other positions or another order, or gaps")


async def wait_content(log: Log, stream: str, count: int) -> Content:
    """All that a mirror has, once that is so many records. UnavailableError."""
    with trio.move_on_after(ANSWER_S_MAX):
        while True:
            found = await content(log, stream, is_mirror=True)
            if len(found.values) >= count:
                return found
            await trio.sleep(LOOK_AGAIN_S)
    raise UnavailableError(
        f"the mirror of {stream} in {log.region} has no {count} records after"
        f" {ANSWER_S_MAX:.0f} s"
    )


async def content(log: Log, stream: str, *, is_mirror: bool = False) -> Content:
    """All that a reader gets; only what a mirror has, if it must get that."""
    found = Content({}, [])
    async with log.open_reader(stream) as reader:
        async for item in reader.items():
            if isinstance(item, Gap):
                found.gaps.append(item)
            elif item.origin is not None or not is_mirror:
                place = item.dlsn, item.sequence, item.value
                found.places.setdefault(item.partition, []).append(place)
    return found


def disorder(where: str, found: Content, values: Sequence[bytes]) -> list[str]:
    """Problems of the order: values must come as they were appended, at rising positions."""
    turns = {value: turn for turn, value in enumerate(values)}
    problems = []
    for number, places in sorted(found.places.items()):
        order = [turns.get(value, -1) for *_, value in places]
        if order != sorted(order):
            problems.append(f"{where}, partition {number}: not in the order of the appends")
        dlsns = [dlsn for dlsn, *_ in places]
        first = places[0][1]
        is_dense = [one for _, one, _ in places] == list(range(first, first + len(places)))
        if not is_dense or dlsns != sorted(set(dlsns)):
            problems.append(f"{where}, partition {number}: positions do not follow each other")
    return problems


def _note_differences(
    regions: RelayedRegions, where: str, content_found: Content, values: Sequence[bytes]
) -> None:
    found, wanted = content_found.values, set(values)
    counts = {
        "lost": len(wanted - set(found)),
        "repeated": len(found) - len(set(found)),
        "foreign": len(set(found) - wanted),
    }
    regions.problems.extend(
        f"{where}: {count} records {what}" for what, count in counts.items() if count
    )
    if content_found.gaps:
        regions.problems.append(f"{where}: {len(content_found.gaps)} gaps")
