"""Applications that read: everything, from a position on, or new records as they come."""

import math

import attrs
import trio

import geolog
from geolog.client.reading.bounds import Bound
from sim.world.calls import STREAM, Calls
from sim.world.history import Found, Missing, ReaderWalk
from sim.world.process import Process

_RETRY_S = 0.25
_FOLLOWED_S_MAX = 5.0
_RECORDS_BACK_MAX = 20
_DAWDLING_SHARE = 0.1

_WALK_S_MAX = 5.0
"""Once all is calm, a walk that has taken this long stops at its next record. Over long links a
node with little room may take a minute to serve everything, and law 24 only asks that nobody
waits, not that a walk is short."""


@attrs.define(eq=False)
class Reading:
    """The main functions of readers."""

    calls: Calls

    async def read_for_ever(self, process: Process, log: geolog.Log) -> None:
        """Read everything, read from a position, or follow for a while; repeat."""
        calls = self.calls
        while not calls.quiet.is_set():
            placed_share = calls.stream.placed_share
            if placed_share and calls.rng.random() < placed_share and calls.history.shown:
                await self._noting(process, log, self._begin_placed(process))
            else:
                is_of_all = calls.rng.random() < 0.5
                await self._noting(process, log, self._begin(process, is_of_all=is_of_all))
            await trio.sleep(calls.rng.random())

    async def read_once(self, process: Process, log: geolog.Log) -> None:
        """Read everything; retry until it succeeds."""
        while True:
            read = self._begin(process, is_of_all=True)
            try:
                await self.read_to_end(log, read)
            except geolog.GeologError as error:
                self._on_failed(process, read, error)
            else:
                self.calls.done(process, f"read {read.count}")
                return
            await trio.sleep(_RETRY_S)

    def _begin(
        self,
        process: Process,
        *,
        is_of_all: bool,
        start: Bound | None = None,
        of: int | None = None,
    ) -> ReaderWalk:
        at = self.calls.begin(process, "read")
        certain, possible = self.calls.history.partitions
        home, home_epoch = self.calls.home_of()
        return self.calls.history.on_read(
            ReaderWalk(
                reader=process.key,
                begun_at=at,
                is_of_all=is_of_all,
                partitions=tuple(range(certain)) if of is None else (of,),
                start=start,
                home_epoch=home_epoch,
                is_of_mirror=bool(self.calls.relay_regions) and process.region != home,
                region=process.region,
                is_abroad=bool(self.calls.relay_regions) and process.region != home,
                trims={one: self.calls.trim_of(one) for one in range(possible)},
            )
        )

    def begin_last(self, region: str) -> ReaderWalk:
        """The last read of everything, in a region."""
        certain, possible = self.calls.history.partitions
        return ReaderWalk(
            reader="last",
            begun_at=self.calls.trace.events_count,
            is_of_all=True,
            partitions=tuple(range(certain)),
            region=region,
            home_epoch=self.calls.home_of()[1],
            trims={one: self.calls.trim_of(one) for one in range(possible)},
        )

    def _begin_placed(self, process: Process) -> ReaderWalk:
        """A walk over one partition, from the position of a known record."""
        rng, shown = self.calls.rng, self.calls.history.shown
        known = shown[rng.choice(list(shown))]
        bounds: list[Bound] = [
            self._at_sequence_of(known),
            geolog.AtDlsn(known.dlsn),
            geolog.AtTime(known.timestamp_us),
            geolog.LastRecords(rng.randrange(_RECORDS_BACK_MAX)),
        ]
        if known.transaction_id is not None:
            bounds.append(geolog.AtTransaction(known.transaction_id))
        bound = rng.choice(bounds)
        self.calls.history.happened.add(f"opened-{type(bound).__name__}")
        return self._begin(process, is_of_all=False, start=bound, of=known.partition)

    def _at_sequence_of(self, known: Found) -> geolog.AtSequence:
        """Its sequence; where homes are lost, that of its own home."""
        is_lost = self.calls.knobs.failovers_rest_s_max is not None
        return geolog.AtSequence(known.sequence, known.home_epoch if is_lost else None)

    async def _noting(self, process: Process, log: geolog.Log, read: ReaderWalk) -> None:
        try:
            if read.is_of_all or read.start is not None:
                await self.read_to_end(log, read, is_left_when_calm=True)
            else:
                await self._follow(log, read)
        except geolog.GeologError as error:
            self._on_failed(process, read, error)
        else:
            self.calls.done(process, f"read {read.count}")

    async def read_to_end(
        self,
        log: geolog.Log,
        read: ReaderWalk,
        *,
        follow: bool = False,
        is_left_when_calm: bool = False,
    ) -> None:
        """Read from the given start to the current end, or to the end of a sealed stream."""
        left_from_s = trio.current_time() + (_WALK_S_MAX if is_left_when_calm else math.inf)
        name = STREAM if read.start is None else f"{STREAM}#{read.partitions[0]}"
        start = geolog.EARLIEST if read.start is None else read.start
        async with log.open_reader(name, start=start, follow=follow) as reader:
            async for item in reader.items():
                self._on_item(read, item)
                if self.calls.quiet.is_set() and trio.current_time() >= left_from_s:
                    return
                await self._dawdle()
        self._on_end(read)

    async def _dawdle(self) -> None:
        """Now and then rest in the middle of a walk."""
        rest_s_max = self.calls.stream.reader_rest_s_max
        if rest_s_max and self.calls.rng.random() < _DAWDLING_SHARE:
            await self.calls.rest(rest_s_max)

    async def _follow(self, log: geolog.Log, read: ReaderWalk) -> None:
        rng = self.calls.rng
        start = rng.choice((geolog.EARLIEST, geolog.LATEST, geolog.LastRecords(3)))
        with trio.move_on_after(rng.random() * _FOLLOWED_S_MAX):
            async with log.open_reader(STREAM, start=start, follow=True) as reader:
                async for item in reader.items():
                    self._on_item(read, item)
                    await self._dawdle()
            self._on_end(read)
            self._on_followed_to_end(read)

    def _on_item(self, read: ReaderWalk, item: geolog.Record | geolog.Gap) -> None:
        trim = self.calls.trim_of(item.partition)
        read.trims_first.setdefault(item.partition, trim)
        self._note_home(read)
        if isinstance(item, geolog.Gap):
            is_overtaken = any(one.partition == item.partition for one in read.items)
            if item.reason is geolog.GapReason.LOCAL_ONLY:
                self.calls.history.happened.add("reader-abroad")
            elif item.reason is geolog.GapReason.DIVERGED:
                self.calls.history.happened.add("reader-diverged")
            else:
                words = "overtaken" if is_overtaken else "gap-at-start"
                self.calls.history.happened.add(words)
            read.items.append(
                Missing(
                    partition=item.partition,
                    from_sequence=item.from_sequence,
                    to_sequence=item.to_sequence,
                    trim=self.calls.kept_from(item.partition, item.reason),
                    has_diverged=item.reason is geolog.GapReason.DIVERGED,
                    is_local_only=item.reason is geolog.GapReason.LOCAL_ONLY,
                    home_epoch=item.epoch or 0,
                )
            )
        else:
            if item.origin is not None:
                self.calls.history.happened.add("mirror-read")
                # Metadata that lags may not know yet that the mirror has become the home.
                has_moved = not self.calls.knobs.has_one_home
                read.is_of_mirror = read.is_of_mirror or has_moved
            self.calls.history.on_shown(read, found(item))

    def _note_home(self, read: ReaderWalk) -> None:
        """A read that goes on over a move may be of what is a mirror by now."""
        read.is_of_mirror = read.is_of_mirror or self.calls.home_of()[1] != read.home_epoch

    def _on_end(self, read: ReaderWalk) -> None:
        self._note_home(read)
        read.trims_ended = {one: self.calls.trim_of(one) for one in read.trims}
        read.has_reached_end = True

    def _on_followed_to_end(self, read: ReaderWalk) -> None:
        history = self.calls.history
        history.happened.add("followed-to-end")
        if not history.is_seal_asked:
            history.harsh_errors.append(
                f"{read.reader} followed to an end, but nobody sealed the stream"
            )

    def _on_failed(self, process: Process, read: ReaderWalk, error: geolog.GeologError) -> None:
        self.calls.failed(process, f"read {read.count} {error!r}")
        if self.calls.is_begun_again(error):
            self.calls.history.happened.add("reader-begun-again")
        elif not error.retriable and self.calls.is_heard(process):
            self.calls.history.harsh_errors.append(
                f"a read by {read.reader} from {read.start or 'the earliest'} failed: {error!r}"
            )


def found(record: geolog.Record) -> Found:
    """A record in the form that the history keeps."""
    return Found(
        partition=record.partition,
        sequence=record.sequence,
        dlsn=record.dlsn,
        timestamp_us=record.timestamp_us,
        value=record.value,
        key=record.key,
        headers=tuple(sorted(record.headers.items())),
        transaction_id=record.transaction_id,
        home_epoch=record.epoch,
    )
