"""The stream of a drill whose home moves: its settings, and whether all regions have it."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs
import trio

from geolog.catalog.stream_catalog import StreamCatalog
from geolog.client.log import Log
from geolog.protocol.relay_report import LinkState
from geolog.protocol.stream_state import StreamName, StreamRecord
from topology.errors import GeologError, UnavailableError

ANSWER_S_MAX = 90.0

Answer = TypeVar("Answer")


@attrs.define(eq=False)
class MovedStream:
    """The stream of one drill."""

    name: str
    log: Log
    """Asks for it; in a region that is not lost just now."""

    async def record(self) -> StreamRecord:
        """Its settings now."""
        access = self.log.access
        catalog = StreamCatalog(access.metadata, access.paths)
        return await insist(lambda: catalog.read_latest(StreamName.parse(self.name)))

    async def wait_whole(self) -> None:
        """Wait until each link is up and its target has nearly everything. UnavailableError."""
        with trio.move_on_after(ANSWER_S_MAX):
            while True:
                record = await self.record()
                if not record.moving_to:
                    links = await insist(lambda: self.log.relay_status(self.name))
                    if all(one.state is LinkState.LIVE for one in links):
                        return
                await trio.sleep(0.2)
        raise UnavailableError(f"the links are not live again within {ANSWER_S_MAX:.0f} s")

    async def wait_equal(self) -> None:
        """Wait until every mirror has all that is acknowledged. UnavailableError."""
        with trio.move_on_after(ANSWER_S_MAX):
            while True:
                links = await insist(lambda: self.log.relay_status(self.name))
                if links and all(one.lag_records == 0 for one in links):
                    return
                await trio.sleep(0.2)
        raise UnavailableError(f"the mirrors did not catch up within {ANSWER_S_MAX:.0f} s")


async def insist(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Ask until there is an answer: ZooKeeper may have just lost its leader."""
    with trio.fail_after(ANSWER_S_MAX):
        while True:
            try:
                return await ask()
            except GeologError as error:
                if not error.retriable:
                    raise
            await trio.sleep(0.2)
