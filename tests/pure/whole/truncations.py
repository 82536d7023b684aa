"""Truncations in a loop, with a writer and a reader, and a verification after each batch.

`python -P -m tests.pure.whole.truncations [TIMES] [SEED]` does a thousand in memory, and prints
a summary. With `--processes` it runs on real nodes, for at most five minutes.
"""

import math
import random
import sys

import attrs
import trio
from trio.testing import MockClock

import geolog
from sim.processes.bench.own_cluster import open_own_cluster
from tests.pure.whole.clusters import STREAM, open_world

_VERIFIED_EVERY = 50
_SEGMENT_BYTES = 65536
_PROCESSES_S = 300.0
"""Time limit of a run on real processes."""


@attrs.define
class Seen:
    """The counts of one run."""

    truncations: int = 0
    appended: int = 0
    read: int = 0
    gaps: int = 0
    verified: int = 0


async def truncate_often(times: int, seed: int) -> Seen:
    """Append and truncate somewhere, again and again. AssertionError if anything is wrong."""
    async with open_world(segment_bytes=_SEGMENT_BYTES, seed=seed) as world:
        return await _truncate_often(world.log, times, seed, rest_s=0.05)


async def truncate_processes(times: int, seed: int) -> Seen:
    """Do the same for a while on a cluster of real processes."""
    async with (
        open_own_cluster(None, needed_bytes=1 << 30) as plan,
        geolog.connect(zookeeper=plan.zookeeper, cluster=plan.cluster) as log,
    ):
        await log.create_stream(
            STREAM,
            ensemble_size=3,
            write_quorum=3,
            ack_quorum=2,
            min_regions=2,
            segment_bytes=_SEGMENT_BYTES,
        )
        until_s = trio.current_time() + _PROCESSES_S
        return await _truncate_often(log, times, seed, rest_s=0.3, until_s=until_s)


async def _truncate_often(
    log: geolog.Log, times: int, seed: int, *, rest_s: float, until_s: float = math.inf
) -> Seen:
    rng, seen = random.Random(seed), Seen()
    async with log.open_writer(STREAM) as writer, trio.open_nursery() as nursery:
        nursery.start_soon(_read_on, log, seen, rest_s)
        first = 0
        for number in range(1, times + 1):
            for _ in range(rng.randrange(8)):
                value = b"%d:" % seen.appended + rng.randbytes(rng.randrange(8000))
                await writer.append(value)
                seen.appended += 1
            first = max(first, rng.randrange(first, seen.appended + 1))
            told = await log.truncate_stream(STREAM, before=geolog.AtSequence(first))
            assert told == {0: first}
            seen.truncations += 1
            is_last = number == times or trio.current_time() > until_s
            if number % _VERIFIED_EVERY == 0 or is_last:
                await _verify(log, first, seen)
            if is_last:
                break
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert seen.read > 0
    return seen


async def _read_on(log: geolog.Log, seen: Seen, rest_s: float) -> None:
    """Follow the stream: check that each sequence is read, or lies in a reported gap."""
    due = 0
    async with log.open_reader(STREAM, follow=True) as reader:
        async for item in reader.items():
            if isinstance(item, geolog.Gap):
                assert item.from_sequence == due, (item, due)
                due = item.to_sequence
                seen.gaps += 1
                continue
            assert item.sequence == due, (item, due)
            assert item.value.startswith(b"%d:" % due)
            due += 1
            seen.read += 1
            if seen.read % 7 == 0:
                await trio.sleep(rest_s)  # It falls behind and is overtaken.


async def _verify(log: geolog.Log, first: int, seen: Seen) -> None:
    report = await log.verify_stream(STREAM)
    assert report.is_good, report.problems
    async with log.open_reader(STREAM) as reader:
        found = [record.sequence async for record in reader]
    assert found == list(range(first, seen.appended))
    seen.verified += 1


def main() -> None:
    """Run the loop and print the counts."""
    numbers = [int(each) for each in sys.argv[1:] if each != "--processes"]
    times, seed = [*numbers, *(1000, 0)[len(numbers) :]][:2]
    if "--processes" in sys.argv:
        seen = trio.run(truncate_processes, times, seed)
    else:
        seen = trio.run(truncate_often, times, seed, clock=MockClock(autojump_threshold=0))
    sys.stdout.write(
        f"{seen.truncations} truncations during {seen.appended} appends: {seen.read} records"
        f" read, {seen.gaps} gaps reported, {seen.verified} verifications without a fault\n"
    )


if __name__ == "__main__":
    main()
