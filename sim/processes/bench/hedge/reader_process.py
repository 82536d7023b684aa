"""Reads single entries under several hedge policies at once, in a process of its own.

Run with a `ReaderOrder` as JSON for its argument. It opens a log for each policy, so no policy
profits from what another learned. Each line on standard input is a `ReadRun`, answered by one
line with the reads of each policy. The reads are due at a steady rate, one of each policy for
the same entry, in an order that rotates: what disturbs one policy disturbs all. A read that is
late delays no other.
"""

import itertools
import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypedDict

import attrs
import trio

from geolog.client.connect import connect
from geolog.client.log import Log
from geolog.protocol.hedge_policy import AUTO, BOOKKEEPER, OFF, HedgePolicy
from geolog.protocol.ids import EntryId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord
from sim.processes.bench.hedge.reads import CostSample, PolicyReads
from topology.errors import GeologError, UnavailableError

POLICIES: dict[str, HedgePolicy] = {"auto": AUTO, "off": OFF, "bookkeeper": BOOKKEEPER}
"""The policies that are compared, by name."""

SAMPLE_S = 0.5
GRACE_S = 4.0
"""How long to wait at the end of a run for reads that are late; then they are given up."""


@attrs.frozen(kw_only=True)
class ReaderOrder:
    """Where to read, and how."""

    zookeeper: str
    cluster: str
    region: str
    gateway: str | None
    stream: str


@attrs.frozen
class ReadRun:
    """One run of reads."""

    duration_s: float
    rate_per_s: float
    """Reads of each policy."""


class ReaderProcess:
    """The reading process, as seen by the process that started it."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process

    def __repr__(self) -> str:
        return f"ReaderProcess(pid {self._process.pid})"

    async def read(self, run: ReadRun) -> dict[str, PolicyReads]:
        """Read for this long, and return the reads of each policy."""
        assert self._process.stdin is not None
        await self._process.stdin.send_all(json.dumps(attrs.asdict(run)).encode() + b"\n")
        document = json.loads(await self._line())
        return {name: _reads_of(each) for name, each in document.items()}

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            chunk = await self._process.stdout.receive_some()
            if not chunk:
                raise UnavailableError("the reading process has ended; its error is above")
            line += chunk
        return line


@asynccontextmanager
async def open_reader_process(order: ReaderOrder) -> AsyncIterator[ReaderProcess]:
    """Start the process, and wait until it can read."""
    argument = json.dumps(attrs.asdict(order))
    process = await trio.lowlevel.open_process(
        [sys.executable, "-P", "-m", "sim.processes.bench.hedge.reader_process", argument],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        reader = ReaderProcess(process)
        await reader._line()  # noqa: SLF001 - The first says that it can read.
        yield reader
    finally:
        with trio.CancelScope(shield=True):
            assert process.stdin is not None
            await process.stdin.aclose()
            with trio.move_on_after(5):
                await process.wait()
            process.kill()
            await process.wait()


class _Document(TypedDict):
    """The reads of one policy, as JSON."""

    begun_s: list[float]
    took_s: list[float]
    failed_count: int
    costs: list[tuple[float, int, list[int]]]


def _reads_of(document: _Document) -> PolicyReads:
    costs = [
        CostSample(at_s, asked_count, tuple(extra_counts))
        for at_s, asked_count, extra_counts in document["costs"]
    ]
    return PolicyReads(document["begun_s"], document["took_s"], document["failed_count"], costs)


class _PolicyReader:
    """One policy's log, and its reads of the run under way."""

    def __init__(self, log: Log, record: LedgerRecord) -> None:
        assert record.last_entry is not None, "the ledger is closed"
        self.entries_count = record.last_entry + 1
        self._reader = log.access.reader
        self._log = log
        self._record = record
        self.begin()

    def begin(self) -> None:
        """Forget the reads before, and count time from now on."""
        self._started_s = trio.current_time()
        self._begun_s: list[float] = []
        self._took_s: list[float] = []
        self._failed_count = 0
        self._costs: list[CostSample] = []

    async def read(self, entry: EntryId) -> None:
        """Read one entry, and note how long it took."""
        begun_s = trio.current_time()
        is_good = False
        try:
            await self._reader.read(self._record, entry, entry)
            is_good = True
        except GeologError:
            pass  # It counts as a failed read, whatever the reason.
        finally:
            self._begun_s.append(begun_s - self._started_s)
            self._took_s.append(trio.current_time() - begun_s)
            self._failed_count += not is_good

    def sample(self) -> None:
        """Note what reads have cost up to now."""
        at_s = trio.current_time() - self._started_s
        now = self._log.read_statistics()
        stages = max(now.hedged_count, default=0)
        extra_counts = tuple(now.hedged_count.get(one, 0) for one in range(1, stages + 1))
        self._costs.append(CostSample(at_s, now.asked_count, extra_counts))

    def document(self) -> _Document:
        """All reads since `begin`."""
        return {
            "begun_s": self._begun_s,
            "took_s": self._took_s,
            "failed_count": self._failed_count,
            "costs": [
                (each.at_s, each.asked_count, list(each.extra_counts)) for each in self._costs
            ],
        }


async def _read_all(readers: Sequence[_PolicyReader], run: ReadRun, rng: random.Random) -> None:
    """Read at the rate, one entry for all policies at a time, in turns."""
    started_s = trio.current_time()
    for reader in readers:
        reader.begin()
        reader.sample()
    with trio.move_on_after(run.duration_s + GRACE_S):
        async with trio.open_nursery() as nursery:
            sampled_s = started_s
            for turn in itertools.count():
                due_s = started_s + turn / run.rate_per_s
                if due_s >= started_s + run.duration_s:
                    break
                entry = EntryId(rng.randrange(readers[0].entries_count))
                for place in range(len(readers)):
                    await trio.sleep_until(due_s + place / len(readers) / run.rate_per_s)
                    nursery.start_soon(readers[(turn + place) % len(readers)].read, entry)
                if trio.current_time() >= sampled_s + SAMPLE_S:
                    sampled_s = trio.current_time()
                    for reader in readers:
                        reader.sample()
    for reader in readers:
        reader.sample()


async def _serve(order: ReaderOrder) -> None:
    """Answer each line of standard input until it ends."""
    rng = random.Random(0)
    async with AsyncExitStack() as stack:
        readers: dict[str, _PolicyReader] = {}
        for name, policy in POLICIES.items():
            log = await stack.enter_async_context(
                connect(
                    zookeeper=order.zookeeper,
                    cluster=order.cluster,
                    region=order.region,
                    gateway=order.gateway,
                    via="direct",
                    hedge=policy,
                )
            )
            (segment,) = await log.list_segments(order.stream)
            found = await log.access.ledgers.read_latest(LedgerId(segment.ledger))
            readers[name] = _PolicyReader(log, found.record)
        _say({})
        async with trio.lowlevel.FdStream(0) as given:
            async for line in given:  # One at a time: each is answered before the next.
                await _read_all(list(readers.values()), ReadRun(**json.loads(line)), rng)
                _say({name: reader.document() for name, reader in readers.items()})


def _say(document: Mapping[str, _Document]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    trio.run(_serve, ReaderOrder(**json.loads(sys.argv[1])))
