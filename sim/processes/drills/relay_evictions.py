"""A fault of the drill `relay-matrix`: a target is away for longer than its home keeps records.

With `--relay-retention evict` the home keeps so many bytes of trimmed records for a mirror, and
no more. The mirror must go on behind a gap that readers are told of; nothing else is missing.
"""

from collections.abc import Sequence

import trio

from geolog.client.log import Log
from geolog.client.reading.bounds import AtSequence
from geolog.client.reading.record import Gap, GapReason
from sim.processes.drills.mirrored_load import LOOK_AGAIN_S
from sim.processes.drills.relay_stream_faults import (
    SEGMENT_BYTES,
    Content,
    append,
    compare,
    content,
    create,
    wait_content,
)
from sim.processes.drills.relayed_regions import ANSWER_S_MAX, RelayedRegions
from topology.errors import ConflictError, UnavailableError

_RECORD_BYTES = 8000
_BEFORE_COUNT = 20
"""Records that the mirror has before it is away."""
_MISSED_COUNT = 200
"""1.6 MB: six times what the home keeps for it."""
_AFTER_COUNT = 20
_EVICT_BYTES = 256 << 10
_OVERHEAD = 1.05
"""Of a record in its entry."""


async def evict(regions: RelayedRegions) -> str:
    """Pause a target, freeze its relays, or kill them, until the home gives records up for it.

    Once it is back its mirror must go on behind a gap, by itself, or where an operator has
    begun it again before: `relay resync` must refuse to, unless the gap is accepted.
    """
    home, stream = await create(regions, "evicted", segment_bytes=SEGMENT_BYTES)
    log, rng = regions.logs[home], regions.rng
    await log.update_stream(stream, relay_evict_bytes=_EVICT_BYTES)
    target = rng.choice([one for one in regions.regions if one != home])
    how, is_resynced = rng.choice(("paused", "frozen", "dead")), rng.random() < 0.5
    count = _BEFORE_COUNT + _MISSED_COUNT
    values = [rng.randbytes(_RECORD_BYTES) for _ in range(count + _AFTER_COUNT)]
    await append(log, stream, values[:_BEFORE_COUNT])
    followed = Content({}, [])
    async with trio.open_nursery() as nursery:
        await wait_content(regions.logs[target], stream, _BEFORE_COUNT)
        await nursery.start(_follow, regions.logs[target], stream, followed)
        relays = [
            one for part in [await regions.members(target)] for one in (part[0], *part[1])
        ]
        regions.note(f"{target} {how}: misses records of {stream}")
        await _part(regions, stream, target, relays, how)
        try:
            await append(log, stream, values[_BEFORE_COUNT:count])
            await _truncate_until_evicted(log, stream, target, count)
            await _check_refused(regions, log, stream, target)
            if is_resynced:
                await log.resync_relay(stream, target=target, accept_gap=True)
        finally:
            await _join(regions, stream, target, relays, how)
        await append(log, stream, values[count:])
        with trio.move_on_after(ANSWER_S_MAX):
            while followed.values[-1:] != values[-1:]:  # noqa: ASYNC110 - a reader's list.
                await trio.sleep(LOOK_AGAIN_S)
        nursery.cancel_scope.cancel(reason="the mirror has the last record")
    begin, problems = gap_problems(f"{stream} in {target}", followed, values)
    regions.problems.extend(problems)
    kept_bytes = (count - begin) * _RECORD_BYTES
    regions.measure("evicted_kept_share_of_bound", kept_bytes / _EVICT_BYTES)
    if kept_bytes > (_EVICT_BYTES + SEGMENT_BYTES) * _OVERHEAD:
        regions.problems.append(
            f"{stream}: the home kept {kept_bytes} bytes for {target}, more than the bound of"
            f" {_EVICT_BYTES} and a segment"
        )
    # Records that are trimmed at home, and kept for mirrors alone, are read nowhere.
    at_home = await content(log, stream)
    left = at_home.places[0][0][1]
    await compare(regions, home, stream, values[left:])
    verified = await log.verify_stream(stream)
    regions.problems.extend([] if verified.is_good else verified.reasons)
    await log.delete_stream(stream)
    return (
        f"{target} was {how} until {home} gave up records for it: its mirror went on at"
        f" {begin} of {count}, behind a gap,"
        f" {'after resync --accept-gap' if is_resynced else 'by itself'}; {kept_bytes} bytes"
        f" were kept for it, the bound is {_EVICT_BYTES}; all regions begin at {left} now"
    )


async def _part(
    regions: RelayedRegions, stream: str, target: str, relays: list[str], how: str
) -> None:
    if how == "paused":
        await regions.logs[target].pause_relay(stream, targets=[target])
        return
    act = regions.cluster.pause if how == "frozen" else regions.cluster.kill
    for one in relays:
        await act(one)


async def _join(
    regions: RelayedRegions, stream: str, target: str, relays: list[str], how: str
) -> None:
    if how == "paused":
        await regions.logs[target].resume_relay(stream)
        return
    act = regions.cluster.resume if how == "frozen" else regions.cluster.start
    for one in relays:
        await act(one)


async def _truncate_until_evicted(log: Log, stream: str, target: str, count: int) -> None:
    """Truncate at the end until the home keeps no more than its bound. UnavailableError."""
    with trio.move_on_after(ANSWER_S_MAX):
        while True:
            first = (await log.truncate_stream(stream, before=AtSequence(count)))[0]
            if first * _RECORD_BYTES > _EVICT_BYTES:
                return
            await trio.sleep(LOOK_AGAIN_S)
    raise UnavailableError(
        f"{stream} still keeps all that {target} lacks, {ANSWER_S_MAX:.0f} s after it was"
        f" truncated before {count}"
    )


async def _follow(
    log: Log,
    stream: str,
    found: Content,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Read from the beginning, and go on until cancelled."""
    async with log.open_reader(stream, follow=True) as reader:
        async for item in reader.items():
            if isinstance(item, Gap):
                found.gaps.append(item)
            else:
                place = item.dlsn, item.sequence, item.value
                found.places.setdefault(item.partition, []).append(place)
                if len(found.places[0]) == _BEFORE_COUNT:
                    task_status.started()


def gap_problems(
    where: str, followed: Content, values: Sequence[bytes]
) -> tuple[int, list[str]]:
    """Where the gap ends, and problems unless the reader got that one gap, and all else."""
    problems = []
    places = followed.places.get(0, [])
    wrong = [f"sequence {number}" for _, number, value in places if values[number] != value]
    numbers = [number for _, number, _ in places]
    missing = sorted(set(range(len(values))) - set(numbers))
    gaps = [(one.from_sequence, one.to_sequence, one.reason) for one in followed.gaps]
    ends = [(missing[0], missing[-1] + 1, GapReason.EVICTED)] if missing else []
    if gaps != ends or not missing:
        problems.append(f"{where}: the reader misses {ends}, and was given {gaps}")
    if wrong or numbers != sorted(set(numbers)):
        problems.append(f"{where}: records out of order, repeated or unequal: {wrong}")
    return missing[-1] + 1 if missing else 0, problems


async def _check_refused(regions: RelayedRegions, log: Log, stream: str, target: str) -> None:
    """Beginning the mirror again must be refused, because the home lacks what it lacks."""
    try:
        await log.resync_relay(stream, target=target)
    except ConflictError:
        pass
    else:
        regions.problems.append(f"{stream}: resync of {target} did not refuse to leave a gap")
