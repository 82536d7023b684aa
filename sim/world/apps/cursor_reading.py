"""Applications that read by a cursor: each of them takes up where another was."""

import attrs
import trio

import geolog
from sim.world.calls import STREAM, Calls
from sim.world.process import Process
from sim.world.world import ClientMain, World

CURSOR = "bills"

_RETRY_S = 0.25
_TENURE_S_MAX = 8.0
_DAWDLING_SHARE = 0.2
_DAWDLED_S_MAX = 0.5
_TAKING_SHARE = 0.2
_FAILING_SHARE = 0.4


class GaveUpError(geolog.GeologError):
    """An application failed while it had a record in hand."""


@attrs.define(eq=False)
class CursorReading:
    """The main functions of these readers."""

    calls: Calls

    def by_proxies(self, world: World) -> ClientMain:
        """The same as `read_for_ever`, by a client that knows the write proxies alone."""

        async def read_for_ever(process: Process, _log: geolog.Log) -> None:
            async with world.open_proxied_log(process) as proxied:
                await self.read_for_ever(process, proxied)

        return read_for_ever

    async def read_for_ever(self, process: Process, log: geolog.Log) -> None:
        """Read by the cursor for a while; leave it, or fail with a record in hand; repeat."""
        while not self.calls.quiet.is_set():
            self.calls.begin(process, "cursor")
            try:
                with trio.move_on_after(self.calls.rng.random() * _TENURE_S_MAX):
                    await self._read(log, is_last=False)
            except GaveUpError:
                pass
            except geolog.GeologError as error:
                self._on_failed(process, error)
            else:
                self.calls.done(process, "cursor")
            await self.calls.rest(1.0)

    async def seek_for_ever(self, process: Process, log: geolog.Log) -> None:
        """Set the position of a partition back while it is read; repeat."""
        rest_s_max = self.calls.stream.cursor_seek_rest_s_max
        assert rest_s_max is not None
        while not self.calls.quiet.is_set():
            await self.calls.rest(rest_s_max)
            number = self.calls.rng.randrange(self.calls.history.partitions[0])
            self.calls.begin(process, f"seek {number}")
            try:
                await log.seek_cursor(
                    f"{STREAM}#{number}", CURSOR, to=geolog.EARLIEST, force=True
                )
            except geolog.GeologError as error:  # A lost answer may look like a conflict.
                self.calls.failed(process, f"seek {error!r}")
            else:
                self.calls.done(process, f"seek {number}")
                self.calls.history.happened.add("cursor-sought")

    async def read_rest(self, process: Process, log: geolog.Log) -> None:
        """Read by the cursor until nothing is left."""
        while True:
            self.calls.begin(process, "cursor rest")
            try:
                await self._read(log, is_last=True)
                if not (await log.describe_cursor(STREAM, CURSOR)).lag_records:
                    return
            except geolog.GeologError as error:
                self._on_failed(process, error)
            await trio.sleep(_RETRY_S)

    async def _read(self, log: geolog.Log, *, is_last: bool) -> None:
        rng, is_shared = self.calls.rng, self.calls.stream.is_cursor_shared
        is_taking = not is_shared and (is_last or rng.random() < _TAKING_SHARE)
        async with log.open_reader(
            STREAM, cursor=CURSOR, shared=is_shared, take=is_taking, follow=not is_last
        ) as reader:
            async for item in reader.items():
                if not is_last and rng.random() < _DAWDLING_SHARE:
                    await trio.sleep(rng.random() * _DAWDLED_S_MAX)
                is_over = self.calls.quiet.is_set() and not is_last
                if is_over and rng.random() < _FAILING_SHARE:
                    raise GaveUpError(f"gave up at {item}")
                self.calls.history.cursor.on_done(item)
                if is_over:
                    return

    def _on_failed(self, process: Process, error: geolog.GeologError) -> None:
        self.calls.failed(process, f"cursor {error!r}")
        happened = self.calls.history.happened
        if isinstance(error, geolog.CursorLostError):
            happened.add("cursor-lost")
        elif isinstance(error, geolog.CursorHeldError):
            happened.add("cursor-held")
        elif self.calls.is_begun_again(error):
            happened.add("reader-begun-again")
        elif not error.retriable and self.calls.is_heard(process):
            self.calls.history.harsh_errors.append(
                f"a read by cursor of {process.key} failed: {error!r}"
            )
