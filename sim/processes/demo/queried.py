"""The demo's query: flights and delays of each airline, by Spark, from the nearest region."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from sim.processes.cluster.plan import ClusterPlan
from sim.processes.demo.report import AirlineRow, QueryReport
from sim.processes.spark_program import end_spark_program, start_spark_program
from topology.errors import UnavailableError

PROGRAM = "sim.processes.demo.spark_query"

_CARRIER = re.compile(rb'"carrier":"(\w+)"')
_SHOWN_COUNT = 5
_LOG_LINES = 3


@attrs.frozen(eq=False)
class Query:
    """Spark, started in a region, and waiting for the word."""

    process: trio.Process
    region: str
    log: Path

    async def answer(self, flights: Sequence[bytes]) -> QueryReport:
        """Query, and compare the count of each airline's flights with these."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        said = bytearray()
        try:
            await self.process.stdin.send_all(b"query\n")
            async for some in self.process.stdout:
                said += some
        except trio.BrokenResourceError:
            said.clear()
        if not said:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
            raise UnavailableError(
                f"Spark did not answer: {'; '.join(lines[-_LOG_LINES:])} ({self.log})"
            )
        given = json.loads(said)
        return _report(given["rows"], given["took_s"], self.region, flights)


@asynccontextmanager
async def open_query(plan: ClusterPlan, region: str, stream: str) -> AsyncIterator[Query]:
    """Start Spark in this region; it ends with the block, at the latest."""
    directory = plan.directory / "spark"
    directory.mkdir(exist_ok=True)
    log = plan.directory / "logs" / "spark.log"
    argument = {
        "zookeeper": plan.zookeeper,
        "cluster": plan.cluster,
        "gateway": str(plan.gateway or ""),
        "stream": stream,
        "directory": str(directory),
    }
    process = await start_spark_program(
        PROGRAM, argument, directory=directory, log=log, region=region
    )
    try:
        yield Query(process, region, log)
    finally:
        await end_spark_program(process)


def _report(
    rows: list[tuple[str, str, int, float | None, int, int]],
    took_s: float,
    region: str,
    flights: Sequence[bytes],
) -> QueryReport:
    counts: Counter[str] = Counter()
    delays_min: defaultdict[str, float] = defaultdict(float)
    delayed: Counter[str] = Counter()
    served: Counter[str] = Counter()
    for carrier, served_region, count, delay_min, with_delay, size_bytes in rows:
        counts[carrier] += count
        delays_min[carrier] += delay_min or 0.0
        delayed[carrier] += with_delay
        served[served_region] += size_bytes
    expected = Counter(
        found.group(1).decode() for found in map(_CARRIER.search, flights) if found
    )
    wrong = sorted(one for one in {*counts, *expected} if counts[one] != expected[one])
    return QueryReport(
        region=region,
        rows_count=counts.total(),
        served_bytes=dict(served.most_common()),
        took_s=took_s,
        airlines=tuple(
            AirlineRow(one, count, delays_min[one] / max(1, delayed[one]))
            for one, count in counts.most_common(_SHOWN_COUNT)
        ),
        problems=tuple(
            f"Spark counted {counts[one]:,} flights of {one}, not {expected[one]:,}"
            for one in wrong
        ),
    )
