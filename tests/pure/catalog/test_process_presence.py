"""A process's node: made in each session, whatever an earlier one or a lost answer left."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.background import all_of
from geolog.catalog.process_presence import ProcessPresence, ask_time
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.rules import parent_of
from geolog.metadata.seam import Create, Delete, Stored
from geolog.protocol.ids import ProcessId
from sim.fakes.forwarded_metadata import ForwardedMetadata
from sim.fakes.memory_metadata import MemoryMetadata, MemoryStore, open_memory_store
from topology.errors import OutcomeUnknownError

PATHS = ClusterPaths("test")
PROCESS = ProcessId("0123456789abcdef")

T = TypeVar("T")


@attrs.frozen
class Place:
    store: MemoryStore
    session: MemoryMetadata
    presence: ProcessPresence

    @property
    def node(self) -> Stored | None:
        return self.store.tree.find(self.presence.path)

    @property
    def is_shown(self) -> bool:
        return self.node is not None and self.node.session_id == self.session.session_id

    async def show_again(self) -> None:
        """Show the process, however many answers are lost."""
        with trio.fail_after(60):
            while True:
                try:
                    await self.presence.show()
                    return
                except OutcomeUnknownError:
                    pass


@asynccontextmanager
async def open_place() -> AsyncIterator[Place]:
    async with open_memory_store() as store, store.open_session() as session:
        yield Place(store, session, ProcessPresence(session, PATHS, PROCESS))


def test_processes_share_folders_by_their_first_digits() -> None:
    assert PATHS.presence(PROCESS) == "/geolog/test/processes/012/0123456789abcdef"


@pytest.mark.parametrize("is_there", ["", PATHS.presences, parent_of(PATHS.presence(PROCESS))])
@pytest.mark.parametrize("answers_lost_count", range(4))
async def test_a_process_is_shown_whatever_exists_and_gets_lost(
    is_there: str, answers_lost_count: int, autojump_clock: MockClock
) -> None:
    async with open_place() as place:
        await place.session.ensure_path(is_there or "/")
        for _ in range(answers_lost_count):
            place.session.lose_next_answer()
        await place.show_again()

        assert place.is_shown


@pytest.mark.parametrize("answers_lost_count", range(3))
async def test_a_process_is_shown_in_the_next_session_and_counted_by_its_folder(
    answers_lost_count: int, autojump_clock: MockClock
) -> None:
    async with open_place() as place:
        await place.presence.show()
        folder = parent_of(place.presence.path)
        changes = [place.store.tree.get(folder).children_changes]
        for _ in range(2):
            place.session.expire()
            changes.append(place.store.tree.get(folder).children_changes)
            for _ in range(answers_lost_count):
                place.session.lose_next_answer()
            await place.show_again()
            assert place.is_shown
            changes.append(place.store.tree.get(folder).children_changes)

        assert changes == [1, 2, 3, 4, 5]


async def test_a_process_that_is_shown_keeps_its_node(autojump_clock: MockClock) -> None:
    async with open_place() as place:
        await place.presence.show()
        before = place.store.tree
        await place.presence.show()
        await ProcessPresence(place.session, PATHS, PROCESS).show()

        assert dict(place.store.tree.nodes) == dict(before.nodes)


async def test_a_folder_that_was_removed_is_made_again(autojump_clock: MockClock) -> None:
    async with open_place() as place:
        await place.presence.show()
        await place.session.delete(place.presence.path)
        await place.session.delete(parent_of(place.presence.path))
        await place.presence.show()

        assert place.is_shown


async def test_all_owners_of_a_process_may_ask_for_the_time_at_once(
    autojump_clock: MockClock,
) -> None:
    async with open_place() as place:
        await place.presence.show()
        place.store.round_trip_s = lambda: 0.1
        for _ in range(10):
            await trio.sleep(5)
            begun_us = place.store.now_us()

            async def ask(begun_us: int = begun_us) -> bool:
                is_told = await ask_time(place.session, place.presence.path)
                heard = place.session.time_heard
                return is_told and heard is not None and heard.store_us > begun_us

            assert all(await all_of([ask] * 100)), "each has heard the time once it goes on"


async def test_no_time_is_told_to_a_process_that_is_not_shown(
    autojump_clock: MockClock,
) -> None:
    async with open_place() as place:
        assert not await ask_time(place.session, place.presence.path)


@attrs.define(eq=False)
class Replacing(ForwardedMetadata[MemoryMetadata]):
    """A session in which the process's node is made again after the first look at it."""

    is_made_again: bool = False

    async def _forward(self, request: str, send: Callable[[], Awaitable[T]]) -> T:
        answer = await send()
        if request.startswith("find ") and not self.is_made_again:
            self.is_made_again = True
            path = request.removeprefix("find ")
            await self.behind.multi([Delete(path), Create(path, is_ephemeral=True)])
        return answer


async def test_the_time_is_told_although_the_node_is_made_again_meanwhile(
    autojump_clock: MockClock,
) -> None:
    """Making a node tells no time, so the question is repeated."""
    async with open_place() as place:
        await place.presence.show()
        assert await ask_time(place.session, place.presence.path)
        await trio.sleep(5)
        metadata = Replacing(place.session)

        assert await ask_time(metadata, place.presence.path)
        assert metadata.is_made_again
        assert place.session.time_heard is not None
        assert place.session.time_heard.store_us == place.store.now_us()
