"""Keeps one reader's lease on a cursor, its partitions and its commits: one task.

It performs what the core `CursorLease` asks for. It goes on without metadata: records are read
meanwhile, and commits follow when metadata is back.

Rules: PROTOCOL K3 and K5.
"""

import logging
import random
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol, assert_never

import attrs
import trio

from geolog.background import open_background
from geolog.catalog.cursors import CursorCatalog, CursorHeldError, CursorLostError
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.metadata.seam import Metadata, SessionState
from geolog.protocol.cursor_lease import (
    BeginReading,
    ClaimPartitions,
    CommitPositions,
    CursorLease,
    Effect,
    EndReading,
    JoinCursor,
    LookAtCursor,
    PartitionCommit,
    Request,
)
from geolog.protocol.cursor_state import NO_READER, CursorName
from geolog.protocol.ids import Position
from geolog.protocol.stream_state import StreamRecord
from topology.errors import GeologError

_log = logging.getLogger("geolog.client")

_LEAVE_PAUSE_S = 0.2


class PartitionReading(Protocol):
    """Reads the partitions that the keeper gains."""

    def begin(self, order: BeginReading) -> None:
        """Read a partition."""
        ...

    def end(self, partition: int) -> None:
        """Read a partition no more."""
        ...

    def settle(self) -> None:
        """Nothing more is to be begun, as far as is known."""
        ...

    def fail(self, error: GeologError) -> None:
        """The cursor is lost."""
        ...


@attrs.frozen(kw_only=True)
class CursorTerms:
    """How a reader uses a cursor."""

    name: CursorName
    cursor_id: str
    who: str
    is_shared: bool
    is_taking: bool
    """Whether to take the cursor from readers that have it."""
    only: int | None = None
    """The one partition to read; None for all."""


class CursorKeeper:
    """One reader of a cursor. `run` serves it."""

    def __init__(
        self,
        terms: CursorTerms,
        *,
        stream: StreamRecord,
        streams: StreamCatalog,
        cursors: CursorCatalog,
        metadata: Metadata,
        rng: random.Random,
    ) -> None:
        self._terms = terms
        self._stream = stream
        self._streams = streams
        self._cursors = cursors
        self._metadata = metadata
        self._lease = CursorLease(f"{rng.getrandbits(64):016x}", rng, only=terms.only)
        self._reading: PartitionReading | None = None
        self._wake = trio.Event()
        self._stored = trio.Event()
        self._changed: trio.Event | None = None
        """Set when another look is due; None before the first."""
        self._is_spare_told = False
        self._partitions_count = stream.partitions
        self._is_in_doubt = False
        """Whether a request is under way, or had no answer: what it changed is not known."""
        self.failure: GeologError | None = None
        """Why the cursor is lost."""

    def __repr__(self) -> str:
        return f"CursorKeeper({self._terms.name}, {self._lease})"

    # For the reader.

    def on_done(self, partition: int, hold: int, position: Position) -> None:
        """The application is done with everything before this position."""
        self._lease.commits.on_done(partition, hold, position)
        self._wake.set()

    async def wait_stored(self, holds: Mapping[int, int]) -> None:
        """Wait until all that is done in these holds is stored.

        CursorLostError if some of it will never be; then all the rest is stored.
        """
        lease = self._lease
        while True:
            if self.failure is not None:
                raise self.failure
            left = [
                one
                for one, hold in sorted(holds.items())
                if not lease.commits.is_stored(one, hold)
            ]
            if all(lease.is_lost(one, holds[one]) for one in left):
                break
            await self._stored.wait()
        if left:
            raise CursorLostError(
                f"{self._terms.name}: partition {left[0]} is another reader's now, or its"
                " position was set; what was not committed is read again from there"
            )

    # The task.

    async def join(self, reading: PartitionReading) -> None:
        """Join the cursor for the first time. CursorHeldError."""
        self._reading = reading
        session = self._metadata.session_id
        request = self._lease.due(session, trio.current_time())
        assert isinstance(request, JoinCursor)
        await self._join(request, session, is_taking=self._terms.is_taking)

    async def run(self) -> None:
        """Serve until the cursor is lost."""
        async with open_background() as nursery:
            nursery.start_soon(self._watch_session, name="session of a cursor")
            while self.failure is None:
                session = self._metadata.session_id
                request = self._lease.due(session, trio.current_time())
                if request is None:
                    await self._wait_due()
                else:
                    await self._perform(request, session, nursery)

    async def _wait_due(self) -> None:
        due_s = self._lease.next_due_s(self._metadata.session_id)
        with trio.move_on_at(due_s):
            await self._wake.wait()
        self._wake = trio.Event()

    async def _watch_session(self) -> None:
        state = self._metadata.session_state
        while True:
            state = await self._metadata.wait_state_change(state)
            if state is SessionState.CONNECTED:
                self._lease.on_back(trio.current_time())
                self._wake.set()

    async def _perform(self, request: Request, session: int, nursery: trio.Nursery) -> None:
        self._is_in_doubt = True
        try:
            match request:
                case JoinCursor():
                    await self._join(request, session, is_taking=False)
                case LookAtCursor():
                    await self._look(nursery)
                case ClaimPartitions(standings):
                    found = await self._cursors.claim(
                        self._terms.name, self._lease.reader, standings
                    )
                    for partition, standing in found.items():
                        if standing is None:
                            self._lease.on_claim_refused(partition)
                        else:
                            self._do(self._lease.on_claimed(partition, standing))
                case CommitPositions(commits):
                    await self._commit(commits)
                case _:
                    assert_never(request)
            self._is_in_doubt = False
        except GeologError as error:
            if not error.retriable or isinstance(error, CursorHeldError):
                self._fail(error)
            else:
                self._lease.on_failed(trio.current_time())
        self._tell_stored()

    async def _commit(self, commits: Iterable[PartitionCommit]) -> None:
        stored = await self._cursors.commit(self._terms.name, self._lease.reader, commits)
        for partition, standing in stored.items():
            if standing is None:
                self._lease.on_commit_refused(partition)
            else:
                self._lease.on_committed(partition, standing)

    async def _join(self, request: JoinCursor, session: int, *, is_taking: bool) -> None:
        await self._cursors.join(
            self._terms.name,
            request.reader,
            cursor_id=self._terms.cursor_id,
            who=self._terms.who,
            is_shared=self._terms.is_shared,
            is_again=request.is_again,
            is_taking=is_taking,
        )
        self._lease.on_joined(request.reader, session)

    async def _look(self, nursery: trio.Nursery) -> None:
        changed = None
        if self._changed is None or self._changed.is_set():
            changed = self._changed = trio.Event()
        count = (await self._streams.read_same(self._stream)).partitions
        self._partitions_count = count
        try:
            view = await self._cursors.look(self._terms.name, count, changed=changed)
        except GeologError:
            if changed is not None:
                changed.set()  # It may not be watched: watch with the next look.
            raise
        if changed is not None:
            nursery.start_soon(self._watch, changed, name="watch of a cursor")
        self._do(self._lease.on_view(view, trio.current_time()))
        if self._lease.is_settled:
            assert self._reading is not None
            self._reading.settle()
            self._tell_spare(count)

    async def _watch(self, changed: trio.Event) -> None:
        await changed.wait()
        self._lease.on_news()
        self._wake.set()

    def _do(self, effects: list[Effect]) -> None:
        reading = self._reading
        assert reading is not None
        for effect in effects:
            match effect:
                case BeginReading():
                    reading.begin(effect)
                case EndReading(partition):
                    reading.end(partition)
                case _:
                    assert_never(effect)

    def _fail(self, error: GeologError) -> None:
        assert self._reading is not None
        self.failure = error
        self._reading.fail(error)

    def _tell_stored(self) -> None:
        self._stored.set()
        self._stored = trio.Event()

    def _tell_spare(self, partitions_count: int) -> None:
        is_spare = not self._lease.commits.partitions
        if is_spare and not self._is_spare_told:
            _log.warning(
                "%s: %d readers share %d partition%s; this reader is a spare, and reads when"
                " another leaves",
                self._terms.name,
                self._lease.readers_count,
                partitions_count,
                "" if partitions_count == 1 else "s",
            )
        self._is_spare_told = is_spare

    # The end.

    async def leave(self) -> None:
        """Store what is done, give the partitions up, and leave.

        Retries until metadata answers, or until the session ends, which ends the lease as well.
        """
        deadline_s = trio.current_time() + self._metadata.session_timeout_s
        with trio.CancelScope(shield=True, deadline=deadline_s):
            session = self._metadata.session_id
            while self._metadata.session_id == session:
                try:
                    if self.failure is None:
                        await self._store_last()
                    for reader in self._lease.ids:
                        await self._cursors.leave(self._terms.name, reader)
                except GeologError as error:
                    if not error.retriable:
                        return
                    self._is_in_doubt = True
                    await trio.sleep(_LEAVE_PAUSE_S)
                    continue
                return

    async def _store_last(self) -> None:
        """Commit what is done, in the versions that a request under way may have left."""
        if self._is_in_doubt and self._lease.reader != NO_READER:
            view = await self._cursors.look(
                self._terms.name, self._partitions_count, changed=None
            )
            self._lease.on_view(view, trio.current_time())  # Nothing is read any more.
            self._is_in_doubt = False
        commits = self._lease.last_commits()
        if commits:
            await self._commit(commits)
            self._tell_stored()


@asynccontextmanager
async def open_keeper(
    keeper: CursorKeeper, reading: PartitionReading
) -> AsyncIterator[CursorKeeper]:
    """Join, serve while the block lasts, then leave."""
    try:
        await keeper.join(reading)
        async with open_background() as nursery:
            nursery.start_soon(keeper.run, name="cursor")
            yield keeper
    finally:
        await keeper.leave()
