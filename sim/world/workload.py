"""The applications of a world: they append to one stream, read it, and note all they see."""

from collections.abc import Iterator
from random import Random

import attrs
import trio

import geolog
from geolog.client.writer import ForgottenSeqError
from sim.world.history import Append, History, Outcome, Read
from sim.world.options import Knobs
from sim.world.process import Process
from sim.world.trace import Trace

STREAM = "shop/orders"

_RETRY_S = 0.25

_PATIENCE_S = 90.0
"""Longer than an owner tries: an append has ended by then, one way or the other."""


@attrs.define
class _Numbering:
    """The numbers that a writer gives, which outlive its processes."""

    seq_next: int = 0
    unanswered: dict[int, Append] = attrs.field(factory=dict)
    """By number: what was sent, and not answered OK so far."""
    answered_last: Append | None = None


@attrs.define(eq=False)
class Workload:
    """What client processes run, until `quiet` is set."""

    knobs: Knobs
    history: History
    trace: Trace
    rng: Random
    quiet: trio.Event = attrs.field(factory=trio.Event, init=False)
    _calls_count: int = attrs.field(default=0, init=False)
    _numberings: dict[str, _Numbering] = attrs.field(factory=dict, init=False)
    """By host of a writer, where writers number their records."""

    async def append_for_ever(self, process: Process, log: geolog.Log) -> None:
        """Take the stream, append for a while, give it back; again and again."""
        while not self.quiet.is_set():
            await self.append_some(process, log, self.knobs.appends_per_tenure)
            with trio.move_on_after(self.rng.random() * self.knobs.rest_s_max):
                await self.quiet.wait()

    async def append_once(self, process: Process, log: geolog.Log) -> None:
        """Append one record; try again until one is acknowledged."""
        while not await self.append_some(process, log, 1):  # noqa: ASYNC110 - no event tells it.
            await trio.sleep(_RETRY_S)

    async def append_some(self, process: Process, log: geolog.Log, count: int) -> bool:
        """Append so many as the owner; False when something went wrong, and was noted."""
        try:
            with trio.fail_after(_PATIENCE_S):
                name = process.host if self.knobs.are_writers_named else None
                async with log.open_writer(STREAM, writer_id=name) as writer:
                    await self._repeat_last(process, writer)
                    while count > 0 and not (self.quiet.is_set() and count > 1):
                        run = min(count, self.rng.randint(1, self.knobs.pipelined_max))
                        await self._append_run(process, writer, run)
                        count -= run
                        await trio.sleep(self.rng.random() * self.knobs.pause_s_max)
        except (geolog.GeologError, trio.TooSlowError):
            return False
        return True

    async def read_for_ever(self, process: Process, log: geolog.Log) -> None:
        """Read all that is there, or follow for a while; again and again."""
        while not self.quiet.is_set():
            is_of_all = self.rng.random() < 0.5
            read = self.history.on_read(
                process.key, self._call(process, "read"), is_of_all=is_of_all
            )
            try:
                if is_of_all:
                    await self._read_all(log, read)
                else:
                    await self._follow(log, read)
            except geolog.GeologError as error:
                self._on_read_failed(process, read, error)
            else:
                self.trace.add(process.host, "done", f"read {len(read.sequences)}")
            await trio.sleep(self.rng.random())

    # Appending.

    async def _append_run(self, process: Process, writer: geolog.Writer, count: int) -> None:
        """Send some, then wait for the answers of all, whatever becomes of the first."""
        sent: list[tuple[Append, geolog.Pending]] = []
        failure: geolog.GeologError | None = None
        for append in self._next_appends(process, count):
            try:
                sent.append((append, writer.append_nowait(append.value, seq=append.seq)))
            except trio.WouldBlock:
                self._end(process, append, "refused", "no room")
                break
            except geolog.GeologError as error:
                self._fail(process, append, error)
                failure = error
                break
        for append, pending in sent:
            try:
                receipt = await pending.wait()
            except geolog.GeologError as error:
                self._fail(process, append, error)
                failure = error
            else:
                self._on_receipt(process, append, receipt)
        if failure is not None:
            raise failure

    def _next_appends(self, process: Process, count: int) -> Iterator[Append]:
        """What waits to be sent again, in its order, and then new ones."""
        numbering = self._numbering(process)
        waiting = sorted(numbering.unanswered)[:count] if numbering else []
        for seq in waiting:
            assert numbering is not None
            append = numbering.unanswered[seq]
            self._call(process, f"append again {seq}")
            self.history.on_sent_again(append)
            yield append
        for _ in range(count - len(waiting)):
            yield self._next_append(process, numbering)

    def _next_append(self, process: Process, numbering: _Numbering | None) -> Append:
        at = self._call(process, "append")
        filling = self.rng.randbytes(self.rng.randrange(self.knobs.value_bytes_max))
        value = f"{process.key}#{self._calls_count}".encode() + b"|" + filling
        append = self.history.on_sent(value, process.key, at)
        if numbering is not None:
            append.seq = numbering.seq_next
            numbering.seq_next += 1
            numbering.unanswered[append.seq] = append
        return append

    async def _repeat_last(self, process: Process, writer: geolog.Writer) -> None:
        """Now and then send once more what was answered: it is where it was."""
        numbering = self._numbering(process)
        if numbering is None or numbering.answered_last is None or self.rng.random() < 0.5:
            return
        append = numbering.answered_last
        self._call(process, f"repeat {append.seq}")
        try:
            receipt = await writer.append(append.value, seq=append.seq)
        except ForgottenSeqError:
            return  # It says so, and appends nothing.
        if process.is_alive and not self.trace.is_closed:
            self.history.repeats.append((append, receipt.dlsn))

    def _numbering(self, process: Process) -> _Numbering | None:
        if not self.knobs.are_writers_named:
            return None
        return self._numberings.setdefault(process.host, _Numbering())

    def _on_receipt(self, process: Process, append: Append, receipt: geolog.Receipt) -> None:
        if not process.is_alive or self.trace.is_closed:
            return  # Nobody hears what a dead process believes.
        append.sequence, append.dlsn = receipt.sequence, receipt.dlsn
        append.is_duplicate, append.answered_by = receipt.duplicate, process.key
        if append.seq is not None:
            numbering = self._numberings[process.host]
            numbering.unanswered.pop(append.seq, None)
            numbering.answered_last = append
        self._end(process, append, "acknowledged", f"{receipt.sequence} {receipt.dlsn}")

    def _fail(self, process: Process, append: Append, error: geolog.GeologError) -> None:
        if append.seq is not None and isinstance(error, ForgottenSeqError):
            self._numberings[process.host].unanswered.pop(append.seq, None)
            self._end(process, append, "unknown", repr(error))
        else:
            self._end(process, append, error.outcome, repr(error))

    def _call(self, process: Process, what: str) -> int:
        self._calls_count += 1
        self.trace.add(process.host, "call", f"{what} {self._calls_count}")
        return self.trace.events_count

    def _end(self, process: Process, append: Append, outcome: Outcome, words: str) -> None:
        if not process.is_alive or self.trace.is_closed:
            return
        name = append.value.partition(b"|")[0].decode()
        event = "done" if outcome == "acknowledged" else "failed"
        self.trace.add(process.host, event, f"append {name} {outcome} {words}")
        self.history.on_answered(append, outcome, self.trace.events_count)

    # Reading.

    async def _read_all(self, log: geolog.Log, read: Read) -> None:
        async with log.open_reader(STREAM) as reader:
            async for record in reader:
                self.history.on_shown(read, record.sequence, record.value)
        read.has_reached_end = True

    async def _follow(self, log: geolog.Log, read: Read) -> None:
        start = self.rng.choice((geolog.EARLIEST, geolog.LATEST, geolog.LastRecords(3)))
        with trio.move_on_after(self.rng.random() * 5):
            async with log.open_reader(STREAM, start=start, follow=True) as reader:
                async for record in reader:
                    self.history.on_shown(read, record.sequence, record.value)

    def _on_read_failed(self, process: Process, read: Read, error: geolog.GeologError) -> None:
        self.trace.add(process.host, "failed", f"read {len(read.sequences)} {error!r}")
        if not error.retriable and not self.trace.is_closed:
            self.history.harsh_errors.append(f"a read of {read.reader} failed: {error!r}")
