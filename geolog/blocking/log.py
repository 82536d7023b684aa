# Generated from geolog/aio/log.py by `python -P -m sim.twins`: edit that file.
"""The log, as calls into the trio thread."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Concatenate, Literal, ParamSpec, TypeVar

from geolog.admin.verification import VerifyReport
from geolog.blocking.opening import Opening
from geolog.blocking.reader import Reader
from geolog.blocking.waiting import Waiter, wait_for, wait_with_progress, wake_all
from geolog.blocking.writer import Writer
from geolog.client import connect as trio_connect
from geolog.client.log import Log as TrioLog
from geolog.client.reading.bounds import EARLIEST, Bound
from geolog.client.reading.reader import Reader as TrioReader
from geolog.client.relays.relay_links import next_event
from geolog.client.spooling.spool_inlet import SPOOL_BYTES
from geolog.client.writing.writer import Writer as TrioWriter
from geolog.client.writing.writer_pending import AckLevel
from geolog.ledger.replicas.hedging import ReadStatistics
from geolog.portal.inlet import Inlet
from geolog.portal.outlet import Outlet, open_outlets
from geolog.portal.residence import Residence, TrioBlock
from geolog.portal.trio_thread import Tasks, shared_thread
from geolog.protocol.hedge_policy import HedgePolicy
from geolog.protocol.relay_report import RelayEvent
from geolog.protocol.stream_pattern import is_pattern

P = ParamSpec("P")
T = TypeVar("T")


def _in_trio_thread(
    method: Callable[Concatenate[TrioLog, P], Awaitable[T]],
) -> Callable[Concatenate["Log", P], T]:
    """Run the method in the trio thread; wait for its result in the calling thread."""

    @wraps(method)
    def call(self: "Log", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return wait_for(self._residence.call(partial(method, self._log, *args, **kwargs)))

    return call


class Log:
    """A connected cluster. `geolog.blocking.connect` opens it."""

    def __init__(self, residence: Residence[TrioLog], log: TrioLog) -> None:
        self.cluster = log.cluster
        self.region = log.region
        self._residence = residence
        self._log = log

    def __repr__(self) -> str:
        return f"Log(cluster {self.cluster!r}, region {self.region!r})"

    create_stream = _in_trio_thread(TrioLog.create_stream)
    update_stream = _in_trio_thread(TrioLog.update_stream)
    namespace_defaults = _in_trio_thread(TrioLog.namespace_defaults)
    set_namespace_defaults = _in_trio_thread(TrioLog.set_namespace_defaults)
    seal_stream = _in_trio_thread(TrioLog.seal_stream)
    truncate_stream = _in_trio_thread(TrioLog.truncate_stream)
    delete_stream = _in_trio_thread(TrioLog.delete_stream)
    list_streams = _in_trio_thread(TrioLog.list_streams)
    describe_stream = _in_trio_thread(TrioLog.describe_stream)
    stream_created_us = _in_trio_thread(TrioLog.stream_created_us)
    list_segments = _in_trio_thread(TrioLog.list_segments)
    list_cursors = _in_trio_thread(TrioLog.list_cursors)
    describe_cursor = _in_trio_thread(TrioLog.describe_cursor)
    seek_cursor = _in_trio_thread(TrioLog.seek_cursor)
    delete_cursor = _in_trio_thread(TrioLog.delete_cursor)
    commit_cursor = _in_trio_thread(TrioLog.commit_cursor)
    list_nodes = _in_trio_thread(TrioLog.list_nodes)
    relay_status = _in_trio_thread(TrioLog.relay_status)
    pause_relay = _in_trio_thread(TrioLog.pause_relay)
    resync_relay = _in_trio_thread(TrioLog.resync_relay)
    switch_over = _in_trio_thread(TrioLog.switch_over)
    plan_switch_over = _in_trio_thread(TrioLog.plan_switch_over)
    failover = _in_trio_thread(TrioLog.failover)
    plan_failover = _in_trio_thread(TrioLog.plan_failover)
    list_failovers = _in_trio_thread(TrioLog.list_failovers)
    list_divergences = _in_trio_thread(TrioLog.list_divergences)
    export_divergence = _in_trio_thread(TrioLog.export_divergence)
    discard_divergence = _in_trio_thread(TrioLog.discard_divergence)
    streams_at_home = _in_trio_thread(TrioLog.streams_at_home)
    home_of = _in_trio_thread(TrioLog.home_of)
    resume_relay = _in_trio_thread(TrioLog.resume_relay)
    health = _in_trio_thread(TrioLog.health)

    def read_statistics(self) -> ReadStatistics:
        """Questions to replicas so far, by all readers of the log, and how they were hedged."""
        return self._log.read_statistics()

    def verify_stream(
        self,
        name: str,
        *,
        full_copies: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> VerifyReport:
        """Read every replica of every entry, up to the stream's current end.

        full_copies: fail entries with fewer than W good copies, too. progress: called in
        this thread, with records done and records in all, approximately. NoSuchStreamError,
        UnavailableError.
        """
        verify = partial(self._log.verify_stream, name, full_copies=full_copies)
        if progress is None:
            return wait_for(self._residence.call(verify))
        return wait_with_progress(
            lambda tell: self._residence.call(partial(verify, progress=tell)), progress
        )

    def open_writer(
        self,
        name: str,
        *,
        writer_id: str | None = None,
        ack: AckLevel | Literal["received", "durable"] = AckLevel.DURABLE,
        linger_s: float = 0.001,
        batch_bytes: int = 256 * 1024,
        in_flight_bytes: int = 32 * 1024 * 1024,
        spool: str | Path | None = None,
        spool_bytes: int = SPOOL_BYTES,
    ) -> Opening[Writer, TrioWriter]:
        """Own the stream, or one partition of it, and append to it within the block.

        Opening fences the previous writer and recovers its open ledger. A block that ends
        without an error flushes first.
        writer_id: number the records, so that a repeated append is recognised and not stored
        twice. ack: answer appends once an ack set has them on disk ("durable") or in memory
        ("received"). linger_s, batch_bytes: seal a batch after this time or at this size.
        in_flight_bytes: let appends wait while this much is unanswered.
        spool: a directory of this writer alone. Records are written there first, and sent to
        the log as soon as it answers, also by the next writer with this spool: `post` returns
        once a record is on the local disk, `append` once the log has it. It needs a writer_id.
        spool_bytes: bound of that directory; appends wait while it is full.
        """
        thread = self._residence.thread
        inlet = Inlet[Waiter](thread, in_flight_bytes=in_flight_bytes, wake=wake_all)
        opening = partial(
            self._log.open_writer,
            name,
            writer_id=writer_id,
            ack=ack,
            linger_s=linger_s,
            batch_bytes=batch_bytes,
            in_flight_bytes=in_flight_bytes,
            spool=spool,
            spool_bytes=spool_bytes,
        )

        def prepare() -> tuple[Residence[TrioWriter], Tasks]:
            return Residence(thread, lambda: inlet.open(opening())), self._residence.tasks

        return Opening(prepare, lambda residence, writer: Writer(residence, writer, inlet))

    def relay_events(
        self, *, follow: bool = False
    ) -> Opening["RelayEvents", AsyncIterator[RelayEvent]]:
        """Iterate over the changes of links that coordinators remember.

        follow: go on with new ones, from coordinators that come later, too.
        """
        thread = self._residence.thread
        opening = partial(self._log.relay_events, follow=follow)

        def prepare() -> tuple[Residence[AsyncIterator[RelayEvent]], Tasks]:
            return Residence(thread, opening), self._residence.tasks

        return Opening(prepare, RelayEvents)

    def open_reader(
        self,
        name: str,
        *,
        start: Bound = EARLIEST,
        stop: Bound | None = None,
        follow: bool = False,
        cursor: str | None = None,
        shared: bool = False,
        take: bool = False,
        auto_commit: bool = True,
        hedge: str | HedgePolicy | None = None,
        positions: Mapping[str, str] | None = None,
    ) -> Opening[Reader, TrioReader]:
        """Read in order from `start` up to `stop`, exclusive.

        name: a stream, one partition of it, or a pattern such as `shop/*` for all streams that
        it matches. Without `stop` the read ends at the current end.
        follow: go on after that end, and wait for new records until the stream is sealed. With
        a pattern, streams and partitions that are made later are read from their first record,
        and the read goes on for ever.
        cursor: resume where the cursor of this name stands, and commit what was taken, within
        about a second and at the end of the block; `start` is for a new cursor. shared: divide
        the partitions among all readers that share the cursor. take: take the cursor from a
        reader that has it. auto_commit: if False, only `Reader.commit` commits.
        CursorHeldError.
        hedge: the hedge policy of this reader, as in `connect`; None for that of the log.
        positions: with a pattern, go on where an earlier `Reader.positions` says.
        """
        thread = self._residence.thread
        outlet = Outlet[Waiter](thread, wake=wake_all)
        opening = partial(
            self._log.open_reader,
            name,
            start=start,
            stop=stop,
            follow=follow,
            cursor=cursor,
            shared=shared,
            take=take,
            auto_commit=auto_commit,
            hedge=hedge,
            positions=positions,
        )

        is_told = cursor is not None or is_pattern(str(name))

        def prepare() -> tuple[Residence[TrioReader], Tasks]:
            return Residence(thread, lambda: outlet.open(opening())), self._residence.tasks

        return Opening(
            prepare,
            lambda residence, reader: Reader(residence.call, reader, outlet, is_told=is_told),
            on_leave=lambda reader, is_failed: reader.put_down(is_failed=is_failed),
        )

    def open_divergence(self, name: str, divergence: str) -> Opening[Reader, TrioReader]:
        """Read a divergence, named REGION~EPOCH#PARTITION, from its first record to its last.

        NoSuchStreamError, NotFoundError.
        """
        thread = self._residence.thread
        outlet = Outlet[Waiter](thread, wake=wake_all)
        opening = partial(self._log.open_divergence, name, divergence)

        def prepare() -> tuple[Residence[TrioReader], Tasks]:
            return Residence(thread, lambda: outlet.open(opening())), self._residence.tasks

        return Opening(
            prepare,
            lambda residence, reader: Reader(residence.call, reader, outlet, is_told=False),
            on_leave=lambda reader, is_failed: reader.put_down(is_failed=is_failed),
        )

    def open_readers(
        self,
        name: str,
        *,
        count: int,
        start: Bound = EARLIEST,
        stop: Bound | None = None,
        follow: bool = False,
        cursor: str | None = None,
        shared: bool = False,
        take: bool = False,
        auto_commit: bool = True,
        hedge: str | HedgePolicy | None = None,
    ) -> Opening[list[Reader], Sequence[TrioReader]]:
        """Divide the partitions of a stream among `count` readers of this process.

        Each partition is one reader's. With a cursor, the readers have it together. The other
        arguments are as of `open_reader`.
        """
        thread = self._residence.thread
        outlets = [Outlet[Waiter](thread, wake=wake_all) for _ in range(max(count, 0))]
        opening = partial(
            self._log.open_readers,
            name,
            count=count,
            start=start,
            stop=stop,
            follow=follow,
            cursor=cursor,
            shared=shared,
            take=take,
            auto_commit=auto_commit,
            hedge=hedge,
        )

        def prepare() -> tuple[Residence[Sequence[TrioReader]], Tasks]:
            opened = Residence(thread, lambda: open_outlets(outlets, opening()))
            return opened, self._residence.tasks

        return Opening(
            prepare,
            lambda residence, readers: [
                Reader(residence.call, reader, outlet, is_told=cursor is not None)
                for reader, outlet in zip(readers, outlets, strict=True)
            ],
            on_leave=_put_down,
        )


class RelayEvents:
    """Changes of links, in order; `Log.relay_events` opens them."""

    def __init__(
        self, residence: Residence[AsyncIterator[RelayEvent]], events: AsyncIterator[RelayEvent]
    ) -> None:
        self._residence = residence
        self._events = events

    def __repr__(self) -> str:
        return "RelayEvents()"

    def __iter__(self) -> "RelayEvents":
        return self

    def __next__(self) -> RelayEvent:
        event = wait_for(self._residence.call(partial(next_event, self._events)))
        if event is None:
            raise StopIteration
        return event


def _put_down(readers: list[Reader], is_failed: bool) -> None:  # noqa: FBT001 - as `on_leave` is called.
    for reader in readers:
        reader.put_down(is_failed=is_failed)


def log_of(
    opening: Callable[[], TrioBlock[TrioLog]],
) -> Opening[Log, TrioLog]:
    """Open a log in the process's trio thread, as `opening` does."""

    def prepare() -> tuple[Residence[TrioLog], Tasks]:
        thread = shared_thread()
        return Residence(thread, opening), thread.tasks

    return Opening(prepare, Log)


def _connecting(
    connect: Callable[P, TrioBlock[TrioLog]],
) -> Callable[P, Opening[Log, TrioLog]]:
    @wraps(connect)
    def opening(*args: P.args, **kwargs: P.kwargs) -> Opening[Log, TrioLog]:
        connection = connect(*args, **kwargs)  # Here, so that it fails where it is called.
        return log_of(lambda: connection)

    return opening


connect = _connecting(trio_connect.connect)
