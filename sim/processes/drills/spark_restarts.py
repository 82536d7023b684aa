"""Restarts a streaming query with Spark under load, and its driver by SIGKILL, many times.

A query copies a stream, which a writer appends to all the time, into another stream. At random
moments it is stopped and started again by its driver, or the driver is killed with its Java and
another one goes on from the checkpoint. At last a second driver runs the same query: one of the
two must go on, and the other one say why it does not.

Each record must be in the copy once, in the order of the source. The query's cursor must never
go back, nor be ahead of the copy, and at the end its lag must be 0.
"""

import json
import math
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import attrs
import trio

from geolog.client.connect import connect
from geolog.client.log import Log
from sim.processes.cluster.local import LocalCluster
from sim.processes.drills.verdict import Verdict
from sim.processes.drills.writer_process import WriterProcess
from sim.processes.spark_program import (
    end_spark_program,
    has_spark,
    kill_spark_program,
    start_spark_program,
)
from topology.errors import UnavailableError

SOURCE = "drill/spark-source"
SINK = "drill/spark-copy"
CURSOR = "copy"
PROGRAM = "sim.processes.drills.spark_copy"

TIMES_DEFAULT = 20

ANSWER_S_MAX = 240.0
"""Time limit for a batch, a start of Spark included."""

_LOAD_S_MAX = 3.0
"""A restart comes at a random moment within this time of a batch."""
_RECORDS_S = 300.0
_LOG_LINES = 4


@attrs.frozen(kw_only=True)
class SparkRestartsOptions:
    """Number of restarts, half of them of the driver, and the seed."""

    times: int = TIMES_DEFAULT
    seed: int = 0


_OF_TWO_DRIVERS = ("another driver", "Multiple streaming jobs detected")
"""Words of the sink, and of Spark where it notices first that two queries share checkpoints."""


class DriverFailedError(UnavailableError):
    """The query failed in its driver, which says why."""


class Driver:
    """One driver of the query: its process, and what it has told."""

    def __init__(self, process: trio.Process, log: Path) -> None:
        self.process = process
        self._log = log
        self._said = b""

    async def ask(self, line: str) -> None:
        """Send it a line."""
        assert self.process.stdin is not None
        await self.process.stdin.send_all(line.encode() + b"\n")

    async def next(self, *kinds: str) -> dict[str, object]:
        """Return its next line of these kinds. DriverFailedError; UnavailableError if none."""
        with trio.move_on_after(ANSWER_S_MAX):
            while True:
                told = await self._next_line()
                if "failed" in told:
                    raise DriverFailedError(str(told["failed"]))
                if not told.keys().isdisjoint(kinds):
                    return told
        raise UnavailableError(f"Spark told no {' or '.join(kinds)}: {self._end_of_log()}")

    async def _next_line(self) -> dict[str, object]:
        assert self.process.stdout is not None
        while b"\n" not in self._said:
            chunk = await self.process.stdout.receive_some()
            if not chunk:
                raise UnavailableError(f"Spark has ended: {self._end_of_log()}")
            self._said += chunk
        line, _, self._said = self._said.partition(b"\n")
        told = json.loads(line)
        assert isinstance(told, dict), told
        return told

    def _end_of_log(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return f"{'; '.join(lines[-_LOG_LINES:])} ({self._log})"


async def spark_restarts(
    cluster: LocalCluster, options: SparkRestartsOptions, tell: Callable[[str], None]
) -> Verdict:
    """Run the drill on a running cluster. UnavailableError without PySpark."""
    if not has_spark():
        raise UnavailableError(
            "this drill needs PySpark, which is not installed: pip install 'geolog[spark]'"
        )
    plan = cluster.plan
    async with connect(zookeeper=plan.zookeeper, cluster=plan.cluster) as log:
        for stream in (SOURCE, SINK):
            await log.create_stream(stream, survive="1 region", segment_bytes=4 << 20)
        return await _SparkRestarts(cluster, options, log, tell).run()


class _SparkRestarts:
    """State of one drill: what the cursor showed, and the rounds."""

    def __init__(
        self,
        cluster: LocalCluster,
        options: SparkRestartsOptions,
        log: Log,
        tell: Callable[[str], None],
    ) -> None:
        self._plan = cluster.plan
        self._options = options
        self._log = log
        self._tell = tell
        self._rng = random.Random(options.seed)
        self._cursor_at = 0
        self._problems: list[str] = []
        self._rounds: list[dict[str, float]] = []
        self._directory = self._plan.directory / "spark"
        self._starts_count = 0

    async def run(self) -> Verdict:
        """Run all rounds, the two drivers at once, and compare the streams."""
        self._directory.mkdir(parents=True, exist_ok=True)
        numbers = count()
        writer = WriterProcess(
            self._plan,
            SOURCE,
            lambda: b"%d" % next(numbers),
            records_s_max=_RECORDS_S,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(writer.run)
            driver = await self._restarted_many_times()
            async with self._ending(driver):
                second = await self._start()
                async with self._ending(second):
                    survivor, why = await self._one_of(driver, second)
                    self._tell(f"two drivers: one failed and said: {why}")
                    await survivor.next("batch")
                    await trio.sleep(self._rng.uniform(0, _LOAD_S_MAX))
                    await writer.finish()
                    await survivor.ask("finish")
                    await survivor.next("finished")
        return await self._verdict(why)

    async def _restarted_many_times(self) -> Driver:
        """The driver that runs after all restarts."""
        kinds = ["query", "driver"] * math.ceil(self._options.times / 2)
        self._rng.shuffle(kinds)
        driver = await self._start()
        try:
            for number, kind in enumerate(kinds[: self._options.times], start=1):
                await driver.next("batch")
                await trio.sleep(self._rng.uniform(0, _LOAD_S_MAX))
                begun_s = trio.current_time()
                if kind == "query":
                    await driver.ask("restart")
                    await driver.next("restarted")
                else:
                    kill_spark_program(driver.process)
                    await driver.process.wait()
                    await self._look_at_cursor(number)
                    driver = await self._start()
                await driver.next("batch")
                took_s = trio.current_time() - begun_s
                self._rounds.append(
                    {"is_driver": float(kind == "driver"), "next_batch_s": took_s}
                )
                self._tell(
                    f"{number} of {self._options.times}: restarted the {kind}; its next batch"
                    f" was done after {took_s:.1f} s"
                )
        except BaseException:
            kill_spark_program(driver.process)
            raise
        return driver

    async def _start(self) -> Driver:
        self._starts_count += 1
        log = self._plan.directory / "logs" / f"spark-{self._starts_count}.log"
        argument = {
            "zookeeper": self._plan.zookeeper,
            "cluster": self._plan.cluster,
            "source": SOURCE,
            "sink": SINK,
            "cursor": CURSOR,
            "checkpoint": str(self._directory / "checkpoint"),
            "directory": str(self._directory),
        }
        process = await start_spark_program(
            PROGRAM, argument, directory=self._directory, log=log
        )
        return Driver(process, log)

    @asynccontextmanager
    async def _ending(self, driver: Driver) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await end_spark_program(driver.process)

    async def _one_of(self, *drivers: Driver) -> tuple[Driver, str]:
        """The driver that goes on when the other one has failed, and why that did.

        UnavailableError if both go on.
        """
        failed: list[tuple[Driver, str]] = []

        async def watch(driver: Driver) -> None:
            try:
                while True:
                    await driver.next("batch")
            except DriverFailedError as error:
                failed.append((driver, str(error)))
                nursery.cancel_scope.cancel(reason="one has failed")

        with trio.move_on_after(ANSWER_S_MAX):
            async with trio.open_nursery() as nursery:
                for driver in drivers:
                    nursery.start_soon(watch, driver)
        if not failed:
            raise UnavailableError("two drivers of one query went on at the same time")
        loser, why = failed[0]
        (survivor,) = (one for one in drivers if one is not loser)
        return survivor, why

    async def _look_at_cursor(self, number: int) -> None:
        """While no driver runs: the cursor has not gone back, and is not ahead of the copy."""
        described = await self._log.describe_cursor(SOURCE, CURSOR)
        at = sum(part.sequence or 0 for part in described.partition_list)
        copied = await self._end_of(SINK)
        if at < self._cursor_at:
            self._problems.append(
                f"restart {number}: the cursor went back from {self._cursor_at} to {at}"
            )
        if at > copied:
            self._problems.append(
                f"restart {number}: the cursor is at {at}, and {copied} records are copied"
            )
        self._cursor_at = at

    async def _end_of(self, stream: str) -> int:
        _, spans = await self._log.spans_between(stream)
        return sum(span.end for span in spans)

    async def _values(self, stream: str) -> list[bytes]:
        async with self._log.open_reader(stream) as reader:
            return [record.value async for record in reader]

    async def _verdict(self, why: str) -> Verdict:
        given, copied = await self._values(SOURCE), await self._values(SINK)
        described = await self._log.describe_cursor(SOURCE, CURSOR)
        found = Counter(copied)
        counts = {
            "records": len(given),
            "copied": len(copied),
            "lost": len(set(given) - found.keys()),
            "repeated": sum(number - 1 for number in found.values()),
            "foreign": len(found.keys() - set(given)),
            "out_of_order": int(sorted(copied, key=int) != copied),
            "cursor_lag": described.lag_records,
        }
        wrong = ("lost", "repeated", "foreign", "out_of_order", "cursor_lag")
        self._problems += [f"{name} is {counts[name]}" for name in wrong if counts[name]]
        if not any(words in why for words in _OF_TWO_DRIVERS):
            self._problems.append(f"the second driver does not say that there is one: {why}")
        by_kind = {
            name: [one["next_batch_s"] for one in self._rounds if one["is_driver"] == is_driver]
            for name, is_driver in (("query", 0.0), ("driver", 1.0))
        }
        restarts = {f"{name}_restarts": len(taken) for name, taken in by_kind.items()}
        return Verdict(
            drill="spark-restarts",
            passed=not self._problems,
            problems=self._problems,
            counts=counts | restarts,
            figures={
                f"{name}_next_batch_s_max": max(taken, default=math.nan)
                for name, taken in by_kind.items()
            },
            rounds=self._rounds,
            seed=self._options.seed,
        )
