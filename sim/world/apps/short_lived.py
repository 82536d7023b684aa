"""A stream that is deleted and created again under its name, with writers and readers."""

import attrs
import trio

import geolog
from sim.world.calls import Calls
from sim.world.lives import Death, LifeRange, LifeRecord, Lives, Walk
from sim.world.options import Options
from sim.world.placement_knobs import terms_of
from sim.world.process import Process

BRIEF = "shop/carts"
"""The name of the stream."""

_RETRY_S = 0.25
_PATIENCE_S = 90.0
_SEGMENT_BYTES = 64 << 10
_VALUE_BYTES_MAX = 2000
_FOLLOWED_S_MAX = 5.0
_RUNS_MAX = 10


@attrs.define(eq=False)
class ShortLived:
    """The main functions of that stream's applications."""

    calls: Calls
    options: Options

    @property
    def lives(self) -> Lives:
        """The history of its lives."""
        return self.calls.history.lives

    # Create and delete: one process at a time.

    async def delete_for_ever(self, process: Process, log: geolog.Log) -> None:
        """Create the stream, let it live, delete it; repeat. At the end the stream exists."""
        rest_s_max = self.calls.stream.deletion_rest_s_max
        assert rest_s_max is not None
        while True:
            if self.lives.is_dying:
                await self._delete(process, log)
            await self._make(process, log)
            await self.calls.rest(rest_s_max)
            if self.calls.quiet.is_set():
                return
            self.lives.deaths.append(Death(begun_s=trio.current_time()))
            self.lives.is_made = False

    async def _make(self, process: Process, log: geolog.Log) -> None:
        while not self.lives.is_made:
            self.lives.begun = self.lives.next_life()
            self.calls.begin(process, f"create-stream {BRIEF}")
            try:
                await log.create_stream(
                    BRIEF,
                    **terms_of(self.options.shape.quorum, self.options.placement),
                    home=self.options.shape.regions[0] if self.options.relay_to else None,
                    relay_to=list(self.options.relay_to),
                    segment_bytes=_SEGMENT_BYTES,
                    segment_age_s=self.calls.stream.segment_age_s,
                    if_not_exists=True,
                )
            except geolog.GeologError as error:
                await self._on_failed(process, "create-stream", error)
            else:
                self.calls.done(process, f"create-stream {BRIEF}, life {self.lives.begun}")
                self.lives.is_made = self.calls.is_heard(process)

    async def _delete(self, process: Process, log: geolog.Log) -> None:
        death = self.lives.deaths[-1]
        while death.answered_at is None:
            self.calls.begin(process, f"delete-stream {BRIEF}")
            try:
                await log.delete_stream(BRIEF)
            except geolog.NoSuchStreamError:
                self._on_deleted(process, death)  # By a call whose answer was lost.
            except geolog.GeologError as error:
                await self._on_failed(process, "delete-stream", error)
            else:
                self._on_deleted(process, death)

    def _on_deleted(self, process: Process, death: Death) -> None:
        self.calls.done(process, f"delete-stream {BRIEF}, life {self.lives.begun}")
        if self.calls.is_heard(process):
            death.answered_at = self.calls.trace.events_count
            death.answered_s = trio.current_time()
            self.calls.history.happened.add("deleted")

    async def _on_failed(self, process: Process, what: str, error: geolog.GeologError) -> None:
        self.calls.failed(process, f"{what} {error!r}")
        if not error.retriable and self.calls.is_heard(process):
            self.calls.history.harsh_errors.append(f"{what} {BRIEF} failed: {error!r}")
            raise error
        await trio.sleep(_RETRY_S)

    # Write.

    async def append_for_ever(self, process: Process, log: geolog.Log) -> None:
        """Open a writer, append for a while, close it; repeat."""
        while not self.calls.quiet.is_set():
            first_life = self.lives.next_life()
            try:
                with trio.fail_after(_PATIENCE_S):
                    async with log.open_writer(BRIEF) as writer:
                        life = LifeRange(first_life, self.lives.begun)
                        for _ in range(self.calls.rng.randrange(_RUNS_MAX)):
                            await self._append_some(process, writer, life)
                            await self.calls.rest(self.calls.knobs.pause_s_max)
            except (geolog.GeologError, trio.TooSlowError) as error:
                self._on_writer_failed(process, error)
            await self.calls.rest(self.calls.knobs.rest_s_max / 5)

    async def _append_some(
        self, process: Process, writer: geolog.Writer, life: LifeRange
    ) -> None:
        """Send some records, then wait for all answers, even if the first one fails."""
        sent: list[tuple[LifeRecord, geolog.Pending]] = []
        failure: geolog.GeologError | None = None
        for _ in range(self.calls.rng.randint(1, self.calls.knobs.pipelined_max)):
            entry = self._next_entry(process, life)
            try:
                sent.append((entry, writer.append_nowait(entry.value)))
            except trio.WouldBlock:
                break
            except geolog.GeologError as error:
                failure = error
                break
        for entry, pending in sent:
            try:
                receipt = await pending.wait()
            except geolog.GeologError as error:
                failure = error
            else:
                self._on_receipt(process, entry, receipt)
        if failure is not None:
            raise failure

    def _next_entry(self, process: Process, life: LifeRange) -> LifeRecord:
        at = self.calls.begin(process, "append")
        bytes_max = min(_VALUE_BYTES_MAX, self.calls.knobs.value_bytes_max)
        filling = self.calls.rng.randbytes(self.calls.rng.randrange(bytes_max))
        value = f"{process.key}#{self.calls.count}".encode() + b"|" + filling
        entry = self.lives.entries[value] = LifeRecord(value=value, life=life, sent_at=at)
        return entry

    def _on_receipt(self, process: Process, entry: LifeRecord, receipt: geolog.Receipt) -> None:
        if self.calls.is_heard(process):
            self.calls.done(process, f"append {receipt.sequence} {receipt.dlsn}")
            entry.answered_at = self.calls.trace.events_count
            entry.sequence = receipt.sequence

    def _on_writer_failed(self, process: Process, error: Exception) -> None:
        self.calls.failed(process, f"write {BRIEF} {error!r}")
        if not self.calls.is_heard(process):
            return
        history = self.calls.history
        if isinstance(error, geolog.NoSuchStreamError):
            history.happened.add("deleted-refused")
        elif isinstance(error, geolog.GeologError) and not error.retriable:
            if not isinstance(error, geolog.FencedError):
                history.harsh_errors.append(f"{process.key} was refused: {error!r}")

    # Read.

    async def read_for_ever(self, process: Process, log: geolog.Log) -> None:
        """Read everything, or follow for a while; repeat."""
        while not self.calls.quiet.is_set():
            walk = self._begin(process)
            try:
                if self.calls.rng.random() < 0.5:
                    await self.read_to_end(log, walk)
                else:
                    with trio.move_on_after(self.calls.rng.random() * _FOLLOWED_S_MAX):
                        await self._read(log, walk, follow=True)
            except geolog.GeologError as error:
                self._on_reader_failed(process, walk, error)
            walk.life = LifeRange(walk.life.first, self.lives.begun)
            await self.calls.rest(1.0)

    def _begin(self, process: Process) -> Walk:
        at = self.calls.begin(process, f"read {BRIEF}")
        walk = Walk(
            reader=process.key,
            begun_at=at,
            life=LifeRange(self.lives.next_life(), self.lives.begun),
        )
        self.lives.walks.append(walk)
        return walk

    def begin_last(self) -> Walk:
        """The last read of the stream."""
        walk = Walk(
            reader="last",
            begun_at=self.calls.trace.events_count,
            life=LifeRange(self.lives.next_life(), self.lives.begun),
        )
        self.lives.walks.append(walk)
        return walk

    async def read_to_end(self, log: geolog.Log, walk: Walk) -> None:
        """Read from the earliest record to the current end."""
        await self._read(log, walk, follow=False)
        walk.has_reached_end = True

    async def _read(self, log: geolog.Log, walk: Walk, *, follow: bool) -> None:
        async with log.open_reader(BRIEF, start=geolog.EARLIEST, follow=follow) as reader:
            async for item in reader.items():
                if isinstance(item, geolog.Gap):
                    walk.gaps.append((item.from_sequence, item.to_sequence))
                else:
                    walk.items.append((item.sequence, item.value))
                if self.calls.rng.random() < 0.1:
                    await self.calls.rest(self.calls.stream.reader_rest_s_max)

    def _on_reader_failed(
        self, process: Process, walk: Walk, error: geolog.GeologError
    ) -> None:
        self.calls.failed(process, f"read {BRIEF} {len(walk.items)} {error!r}")
        if isinstance(error, geolog.NoSuchStreamError):
            self.calls.history.happened.update({"deleted-while-read"} if walk.items else ())
        elif not error.retriable and self.calls.is_heard(process):
            self.calls.history.harsh_errors.append(
                f"a read of {BRIEF} by {process.key} failed: {error!r}"
            )
