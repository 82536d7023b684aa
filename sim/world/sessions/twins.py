"""Two live processes under one writer id: each appends the same records, in the same order.

Both read the records from one source, as two copies of an application do that replays its
input. A session begins at the first record that is not known to be in the log. Often one copy
believes that the other is dead, and opens a session: that deposes the other, which learns of it
with its next append, and comes back later.
"""

import math
from collections.abc import Callable, Sequence

import attrs
import trio

import geolog
from geolog.background import open_background
from geolog.client.writing.partition_batcher import WriterConfig
from geolog.client.writing.writer import Writer, open_linger
from geolog.client.writing.writer_session import open_session
from geolog.protocol.session_home import SessionHome
from geolog.protocol.stream_state import PartitionName, StreamName
from geolog.transport.seam import Transport
from sim.world.calls import STREAM, Calls
from sim.world.history import Append, OpenedSession
from sim.world.process import Process
from sim.world.sessions.owner_link import OwnerLink
from sim.world.sessions.owning import OwnerPlaces

WRITER_ID = "twins"
_KEYS_COUNT = 8
_OPENED_WITHIN_S = 30.0
_BY_THE_CLOCK_SHARE = 0.9
_NEVER_REACHED = 1 << 40

# A session over links is no product yet, so it is put together here.
# ruff: noqa: SLF001


@attrs.define(eq=False)
class Twins:
    """The main functions of both processes."""

    calls: Calls
    places: OwnerPlaces
    transport_of: Callable[[str], Transport]
    """The transport of a host."""
    _source: list[Append] = attrs.field(factory=list, init=False)
    """The records, by seq."""
    _settled: set[int] = attrs.field(factory=set, init=False)
    """Seqs below which a session need not begin: they are in the log."""

    async def append_for_ever(self, process: Process, log: geolog.Log) -> None:
        """Open a session, append for a while, close it; repeat."""
        calls = self.calls
        append_some = self._append_by_proxy if calls.is_proxied else self._append_some
        while not calls.quiet.is_set():
            try:
                await append_some(process, log)
            except geolog.GeologError as error:
                calls.failed(process, f"session {error!r}")
            except trio.TooSlowError:
                calls.failed(process, "session: no owners")
            await self._rest()

    async def _rest(self) -> None:
        """Rest for a random time, or to the next full second: then both open at once."""
        calls, now_s = self.calls, trio.current_time()
        if calls.rng.random() < _BY_THE_CLOCK_SHARE:
            with trio.move_on_at(math.floor(now_s) + 1.0):
                await calls.quiet.wait()
        else:
            await calls.rest(calls.knobs.rest_s_max)

    async def _append_by_proxy(self, process: Process, log: geolog.Log) -> None:
        calls = self.calls
        least = calls.history.partitions[0]
        calls.begin(process, "open a session")
        async with log.open_writer(STREAM, writer_id=WRITER_ID) as writer:
            session = writer.session
            assert session is not None
            opened = self._note(process, session.epoch, session.partitions)
            await self._append_runs(process, writer, opened, least)

    async def _append_some(self, process: Process, log: geolog.Log) -> None:
        calls, catalog = self.calls, log._catalog
        least = calls.history.partitions[0]
        calls.begin(process, "open a session")
        stream = await catalog.read_latest(StreamName.parse(STREAM))
        transport = self.transport_of(process.host)
        async with open_background() as nursery:
            links: list[OwnerLink] = []

            def link(names: Sequence[PartitionName]) -> None:
                links.extend(
                    OwnerLink(name, self.places, transport, nursery, calls.rng)
                    for name in names
                )

            async def count_partitions() -> int:
                latest = await catalog.read_same_latest(stream)
                link(latest.partition_names()[len(links) :])
                return latest.partitions

            link(stream.partition_names())
            with trio.fail_after(_OPENED_WITHIN_S) as opening:
                nursery.start_soon(self._give_up_when_quiet, opening)
                session = await open_session(
                    WRITER_ID,
                    links,
                    home=SessionHome(stream.life, stream.session_epoch),
                    is_whole=True,
                    count_partitions=count_partitions,
                    rng=log._rng,
                )
            opened = self._note(process, session.epoch, session.partitions)
            writer = Writer(
                links,
                WriterConfig(),
                session=session,
                home_epoch=stream.home_epoch,
                now_us=log._now_us,
            )
            for one in links:
                one.begin()
            async with open_linger(writer):
                await self._append_runs(process, writer, opened, least)

    async def _give_up_when_quiet(self, opening: trio.CancelScope) -> None:
        """Once all is calm, nothing owns partitions apart any more."""
        await self.calls.quiet.wait()
        opening.cancel(reason="no more sessions are to open")

    def _note(self, process: Process, epoch: int, partitions: int) -> OpenedSession:
        self.calls.done(process, f"session {epoch} of {partitions} partitions")
        history = self.calls.history
        opened = OpenedSession(epoch, partitions, self.calls.trace.events_count)
        if self.calls.is_heard(process):
            history.sessions.append(opened)
        if len(history.sessions) > 1:
            history.happened.add("session-succeeded")
        return opened

    async def _append_runs(
        self, process: Process, writer: Writer, opened: OpenedSession, least: int
    ) -> None:
        calls, knobs = self.calls, self.calls.knobs
        seq = self._seq_unsettled()
        for _ in range(knobs.appends_per_tenure):
            if calls.quiet.is_set():
                return
            count = calls.rng.randint(1, knobs.pipelined_max)
            sent: list[tuple[int, Append, geolog.Pending]] = []
            for one in range(seq, seq + count):
                append = self._next(process, one, least)
                try:
                    pending = writer.append_nowait(
                        append.value, key=append.key, seq=one, expect_sequence=self._wish()
                    )
                except trio.WouldBlock:
                    break
                except geolog.ConflictError as error:
                    if not self._is_refusal(error):
                        raise
                    self._end(process, append, error)
                    break
                sent.append((calls.trace.events_count, append, pending))
                seq += 1
                if calls.stream.unmet_share:  # So that each is in a batch of its own.
                    await trio.sleep(calls.rng.random() * knobs.spread_s_max)
            for sent_at, append, pending in sent:
                try:
                    if await self._hear(process, append, pending):
                        opened.appended.append((sent_at, append))
                except geolog.ConflictError as error:
                    if not self._is_refusal(error):
                        raise
                    opened.refused.append((sent_at, calls.trace.events_count, append))
                    seq = self._seq_unsettled()
            await calls.rest(knobs.pause_s_max)

    def _seq_unsettled(self) -> int:
        """The first record that is not known to be in the log."""
        seq = 0
        while seq in self._settled:
            seq += 1
        return seq

    def _wish(self) -> int | None:
        """Now and then, a sequence that the record cannot get."""
        share = self.calls.stream.unmet_share
        return _NEVER_REACHED if share and self.calls.rng.random() < share else None

    def _is_refusal(self, error: geolog.ConflictError) -> bool:
        """Whether it refuses a record that cannot be met, or one behind it."""
        is_told = bool(self.calls.stream.unmet_share) and error.outcome == "refused"
        if is_told:
            self.calls.history.happened.add("unmet-refused")
        return is_told

    def _next(self, process: Process, seq: int, least: int) -> Append:
        """The record of this seq: one that was sent before, or a new one."""
        calls = self.calls
        at = calls.begin(process, f"append {seq}")
        most = calls.history.partitions[1]
        if seq < len(self._source):
            append = self._source[seq]
            append.partitions_known = min(append.partitions_known[0], least), most
            calls.history.on_repeated(append)
            return append
        filling = calls.rng.randbytes(calls.rng.randrange(calls.knobs.value_bytes_max))
        append = Append(
            value=f"{WRITER_ID}#{seq}".encode() + b"|" + filling,
            writer=WRITER_ID,
            sent_at=at,
            sent_s=trio.current_time(),
            partitions_known=(least, most),
            key=b"key-%d" % calls.rng.randrange(_KEYS_COUNT),
            seq=seq,
        )
        self._source.append(append)
        return calls.history.on_sent(append)

    async def _hear(self, process: Process, append: Append, pending: geolog.Pending) -> bool:
        """Whether the answer says that the record is new; raise what ends the session."""
        calls, seq = self.calls, append.seq
        assert seq is not None
        try:
            receipt = await pending.wait()
        except geolog.ForgottenSeqError as error:
            # The other copy is far ahead. Its answers say where the record is.
            self._settled.add(seq)
            self._end(process, append, error)
            return False
        except geolog.GeologError as error:
            self._end(process, append, error)
            raise
        if not calls.is_heard(process):
            return False
        self._settled.add(seq)
        if append.outcome == "acknowledged":
            calls.history.repeats.append((append, receipt.partition, receipt.dlsn))
            return not receipt.duplicate
        append.partition, append.sequence = receipt.partition, receipt.sequence
        append.dlsn, append.is_duplicate = receipt.dlsn, receipt.duplicate
        calls.done(process, f"append {seq} {receipt.partition} {receipt.dlsn}")
        calls.history.on_answered(append, "acknowledged", calls.trace.events_count)
        if receipt.duplicate:
            calls.history.happened.add("append-repeated")
        return not receipt.duplicate

    def _end(self, process: Process, append: Append, error: geolog.GeologError) -> None:
        """The copy knows no more than before: the other may have appended the record."""
        self.calls.failed(process, f"append {append.seq} {error!r}")
        if append.outcome == "pending":
            append.outcome = "unknown"
