"""Truncations in a loop, beside a writer and a reader, with a verification after each batch.

`python -P -m tests.pure.whole.truncations [TIMES] [SEED]` does a thousand and says what it saw;
the test does a few.
"""

import random
import sys

import attrs
import trio
from trio.testing import MockClock

import geolog
from tests.pure.whole.clusters import STREAM, open_world

_VERIFIED_EVERY = 50


@attrs.define
class Seen:
    """What one run saw."""

    truncations: int = 0
    appended: int = 0
    read: int = 0
    gaps: int = 0
    verified: int = 0


async def truncate_often(times: int, seed: int) -> Seen:
    """Append, truncate somewhere, again and again; AssertionError when anything is amiss."""
    rng, seen = random.Random(seed), Seen()
    async with open_world(segment_bytes=65536, seed=seed) as world:
        async with world.log.open_writer(STREAM) as writer, trio.open_nursery() as nursery:
            nursery.start_soon(_read_on, world.log, seen)
            first = 0
            for number in range(1, times + 1):
                for _ in range(rng.randrange(8)):
                    value = b"%d:" % seen.appended + rng.randbytes(rng.randrange(8000))
                    await writer.append(value)
                    seen.appended += 1
                first = max(first, rng.randrange(first, seen.appended + 1))
                told = await world.log.truncate_stream(STREAM, before=geolog.AtSequence(first))
                assert told == {0: first}
                seen.truncations += 1
                if number % _VERIFIED_EVERY == 0 or number == times:
                    await _verify(world.log, first, seen)
            await trio.sleep(5)
            nursery.cancel_scope.cancel()
        assert seen.read > 0
    return seen


async def _read_on(log: geolog.Log, seen: Seen) -> None:
    """Follow the stream: each sequence is read, or lies in a gap that is told."""
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
                await trio.sleep(0.05)  # It falls behind, and is overtaken.


async def _verify(log: geolog.Log, first: int, seen: Seen) -> None:
    report = await log.verify_stream(STREAM)
    assert report.is_good, report.problems
    async with log.open_reader(STREAM) as reader:
        found = [record.sequence async for record in reader]
    assert found == list(range(first, seen.appended))
    seen.verified += 1


def main() -> None:
    """Run it, and say what was seen."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    seen = trio.run(truncate_often, times, seed, clock=MockClock(autojump_threshold=0))
    sys.stdout.write(
        f"{seen.truncations} truncations beside {seen.appended} appends: {seen.read} records"
        f" read, {seen.gaps} gaps told, {seen.verified} verifications, none amiss\n"
    )


if __name__ == "__main__":
    main()
