"""Applications that append: they open the stream, append for a while, and close it."""

from typing import TypedDict

import attrs
import trio

import geolog
from sim.world.apps.new_records import NewRecords
from sim.world.apps.tenure import Tenure
from sim.world.calls import STREAM, Calls
from sim.world.options import Knobs
from sim.world.process import Process

_RETRY_S = 0.25

_RECORD_BYTES_MORE = 300
"""The most that a record takes in a writer in addition to its value."""

_BATCHES_IN_WINDOW = 2

_PATIENCE_S = 90.0
"""Longer than an owner keeps trying: by then an append has ended, one way or the other."""


@attrs.define(eq=False)
class Appending:
    """The main functions of writers."""

    calls: Calls
    records: NewRecords = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.records = NewRecords(self.calls)

    async def append_for_ever(self, process: Process, log: geolog.Log) -> None:
        """Open the stream, append for a while, close it; repeat."""
        while not self.calls.quiet.is_set():
            await self.append_some(process, log, self.calls.knobs.appends_per_tenure)
            await self.calls.rest(self.calls.knobs.rest_s_max)

    async def append_once(self, process: Process, log: geolog.Log) -> None:
        """Append one record, unless the stream is sealed; retry until it succeeds."""
        while not await self.append_some(process, log, 1):  # noqa: ASYNC110 - no event for it.
            await trio.sleep(_RETRY_S)

    async def append_across(
        self,
        process: Process,
        log: geolog.Log,
        has_begun: trio.Event,
        has_gone: trio.Event,
        has_gone_on: trio.Event,
    ) -> None:
        """Append a record, wait for the event, and append another as the same owner."""
        partitions = self.calls.history.partitions
        try:
            async with log.open_writer(STREAM) as writer:
                self.calls.history.writers[process.key] = writer
                tenure = Tenure(self.calls, self.records, process, writer, partitions)
                await tenure.append_run(1)
                has_begun.set()
                await has_gone.wait()
                await tenure.append_run(1)
                has_gone_on.set()
        except geolog.GeologError as error:
            self.calls.failed(process, f"append {error!r}")

    async def append_some(self, process: Process, log: geolog.Log, count: int) -> bool:
        """Append this many records as the owner; False if something went wrong."""
        calls = self.calls
        least = calls.history.partitions[0]
        partition = self._one_partition()
        try:
            with trio.fail_after(_PATIENCE_S):
                async with log.open_writer(
                    STREAM if partition is None else f"{STREAM}#{partition}",
                    writer_id=process.host if self.records.are_numbered else None,
                    ack="received" if calls.stream.answers == "received" else "durable",
                    **_window_of(calls.knobs),
                ) as writer:
                    calls.history.writers[process.key] = writer
                    known = least, calls.history.partitions[1]
                    tenure = Tenure(calls, self.records, process, writer, known, partition)
                    await tenure.repeat_last()
                    try:
                        await self._append_runs(tenure, count)
                    except geolog.GeologError:
                        await self._keep_failed()
                        raise
        except geolog.SealedError as error:
            self._on_sealed(process, error)
            return True
        except (geolog.GeologError, trio.TooSlowError):
            return False
        return True

    async def _append_runs(self, tenure: Tenure, count: int) -> None:
        calls = self.calls
        while count > 0 and not (calls.quiet.is_set() and count > 1):
            await tenure.repeat_now_and_then()
            run = min(count, calls.rng.randint(1, calls.knobs.pipelined_max))
            try:
                await tenure.append_run(run)
            except geolog.OverCapacityError as held:
                calls.history.happened.add("loss-held")
                await trio.sleep(held.retry_after_s)
                continue
            count -= run
            await trio.sleep(calls.rng.random() * calls.knobs.pause_s_max)

    async def _keep_failed(self) -> None:
        """Keep the block of a failed writer open, as a busy application does."""
        if self.calls.knobs.failed_kept_s:
            self.calls.history.happened.add("failed-writer-kept")
            with trio.move_on_after(self.calls.knobs.failed_kept_s):
                await self.calls.let_go.wait()

    def _one_partition(self) -> int | None:
        """The one partition to write; None for the whole stream."""
        stream, rng = self.calls.stream, self.calls.rng
        if stream.is_plain or self.records.are_numbered or self.calls.quiet.is_set():
            return None
        if rng.random() >= stream.alone_share:
            return None
        return rng.randrange(self.calls.history.partitions[0])

    def _on_sealed(self, process: Process, error: geolog.SealedError) -> None:
        history = self.calls.history
        history.happened.add("sealed-refused")
        if not history.is_seal_asked and self.calls.is_heard(process):
            history.harsh_errors.append(f"{process.key} was refused: {error!r}")


class _Window(TypedDict, total=False):
    in_flight_bytes: int
    batch_bytes: int


def _window_of(knobs: Knobs) -> _Window:
    """The writer's window option where there is room for few records; no option otherwise."""
    if knobs.writer_window_records is None:
        return {}
    record_bytes = knobs.value_bytes_max + _RECORD_BYTES_MORE
    window_bytes = knobs.writer_window_records * record_bytes
    return {"in_flight_bytes": window_bytes, "batch_bytes": window_bytes // _BATCHES_IN_WINDOW}
