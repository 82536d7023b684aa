"""Shows what opening a writer waits for, round by round, in a cluster where all is far away.

`python -P -m sim.studies.opening` runs real clients and nodes over a network and a metadata
store in memory, on a clock that only waits move. Each request to metadata takes one round trip,
and so does each way to a node and back. So the time of an opening is a number of rounds, and no
machine can be too slow for it. Over a real WAN, a round takes the round trip to the metadata
store's leader, or to the nearest server that may answer.
"""

import random
import re
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TypeVar

import attrs
import trio
from trio.testing import MockClock

from geolog.client.connect import open_log
from geolog.client.log import Log
from geolog.metadata.seam import Metadata
from sim.fakes.forwarded_metadata import ForwardedMetadata
from sim.fakes.memory_metadata import MemoryMetadata
from sim.in_process import InProcessCluster, open_in_process_cluster

ROUND_S = 0.2
"""One round trip, to metadata and to any node."""

_REGIONS = {"earth": 3, "mars": 3, "venus": 3}
_STREAM = "study/orders"
_PARTS = (
    (re.compile(r"put [^ ]*/owner .*/segments/"), "the segment, its ledger and its owner"),
    (re.compile(r"put [^ ]*/owner "), "the claim of an owner"),
    (re.compile(r"/nodes/"), "nodes"),
    (re.compile(r"/processes/"), "the process's own node"),
    (re.compile(r"/segments"), "the list of segments"),
    (re.compile(r"/ledger_next"), "the next ledger's number"),
    (re.compile(r"/ledgers"), "a ledger"),
    (re.compile(r"/owner"), "the owner"),
    (re.compile(r"/trim"), "where the partition begins"),
    (re.compile(r"/streams/"), "the stream"),
    (re.compile(r"/placement"), "placement switches"),
)

T = TypeVar("T")


@attrs.frozen
class OpeningStep:
    """One request to metadata."""

    begun_s: float
    took_s: float
    words: str

    @property
    def about(self) -> str:
        """Reads or writes, in words."""
        verb = "writes" if re.match(r"create|put|check|delete|ensure", self.words) else "reads"
        for pattern, part in _PARTS:
            if pattern.search(self.words):
                return f"{verb} {part}"
        return f"{verb} {self.words.split()[1]}"


@attrs.define(eq=False)
class HeardMetadata(ForwardedMetadata[Metadata]):
    """Metadata that notes when each request began, and how long it took."""

    asked: list[OpeningStep] = attrs.field(factory=list)

    async def _forward(self, request: str, send: Callable[[], Awaitable[T]]) -> T:
        begun_s = trio.current_time()
        try:
            return await send()
        finally:
            self.asked.append(OpeningStep(begun_s, trio.current_time() - begun_s, request))


@attrs.frozen(kw_only=True)
class Opening:
    """One opening of a writer, its first append, and closing it."""

    what: str
    opened_rounds: float
    appended_rounds: float
    closed_rounds: float
    steps: tuple[tuple[float, tuple[str, ...]], ...]
    """For each round in which requests began: when, and what they were about."""


async def measure() -> list[Opening]:
    """The openings of a stream that another process has written before."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(open_in_process_cluster(_REGIONS))
        async with cluster.open_client("earth", host="founder") as founder:
            await founder.create_stream(_STREAM, min_regions=2)
            async with founder.open_writer(_STREAM) as writer:
                await writer.append(b"an earlier record")
        cluster.network.latency_s = lambda _one, _other: ROUND_S / 2
        metadata, log = await _open_far_client(cluster, stack)
        return [
            await _opened(log, metadata, what)
            for what in ("by a new process", "again, by the same process")
        ]


async def _open_far_client(
    cluster: InProcessCluster, stack: AsyncExitStack
) -> tuple[HeardMetadata, Log]:
    session: MemoryMetadata = await stack.enter_async_context(
        cluster.store.open_session(6.0, round_trip_s=lambda: ROUND_S)
    )
    metadata = HeardMetadata(session)
    log = await stack.enter_async_context(
        open_log(
            metadata=metadata,
            transport=cluster.network.transport("application"),
            cluster="default",
            region="earth",
            who="application",
            rng=random.Random(0),
            now_us=cluster.now_us,
        )
    )
    return metadata, log


async def _opened(log: Log, metadata: HeardMetadata, what: str) -> Opening:
    metadata.asked.clear()
    begun_s = trio.current_time()
    async with log.open_writer(_STREAM) as writer:
        opened_s = trio.current_time()
        in_opening = list(metadata.asked)
        await writer.append(b"a record")
        appended_s = trio.current_time()
    closed_s = trio.current_time()
    return Opening(
        what=what,
        opened_rounds=_rounds(opened_s - begun_s),
        appended_rounds=_rounds(appended_s - opened_s),
        closed_rounds=_rounds(closed_s - appended_s),
        steps=tuple(_steps(in_opening, begun_s)),
    )


def _steps(asked: list[OpeningStep], begun_s: float) -> list[tuple[float, tuple[str, ...]]]:
    steps: dict[float, dict[str, None]] = {}
    for one in sorted(asked, key=lambda each: each.begun_s):
        steps.setdefault(_rounds(one.begun_s - begun_s), {})[one.about] = None
    return [(begun, tuple(about)) for begun, about in steps.items()]


def _rounds(time_s: float) -> float:
    return round(time_s / ROUND_S, 1)


async def main() -> None:
    """Measure, and print a table for each opening."""
    for one in await measure():
        _say(
            f"{one.what}: open {one.opened_rounds:g}, first append {one.appended_rounds:g},"
            f" close {one.closed_rounds:g} rounds"
        )
        _say("| begun after | requests to metadata |")
        _say("|---|---|")
        for begun, about in one.steps:
            _say(f"| {begun:g} | {', '.join(about)} |")


def _say(words: str) -> None:
    print(words, flush=True)  # noqa: T201 - what a study prints is what it is for.


if __name__ == "__main__":
    trio.run(main, clock=MockClock(autojump_threshold=0))
