"""The traced metadata answers like the memory store, and traces every request."""

from collections.abc import Awaitable
from random import Random

import pytest
import trio
from trio.testing import MockClock

from geolog.metadata.seam import (
    Check,
    Create,
    Delete,
    Freshness,
    Metadata,
    Operation,
    Put,
    SessionState,
)
from sim.fakes.memory_metadata import open_memory_store
from sim.world.metadata import WorldMetadata
from topology.errors import GeologError, OutcomeUnknownError

_PATHS = ("/a", "/b", "/a/c", "/a/c/d", "/b/e")


def an_operation(rng: Random) -> Operation:
    path, version = rng.choice(_PATHS), rng.randrange(3)
    kinds: tuple[Operation, ...] = (
        Create(path, rng.randbytes(3), is_sequential=rng.random() < 0.2),
        Create(path, is_ephemeral=rng.random() < 0.5),
        Put(path, rng.randbytes(3), version),
        Delete(path, rng.choice((None, version))),
        Check(path, rng.choice((None, version))),
    )
    return rng.choice(kinds)


async def outcome_of(asked: Awaitable[object]) -> object:
    try:
        return await asked
    except GeologError as error:
        return type(error)


async def ask(metadata: Metadata, rng: Random) -> object:
    """Make one operation, drawn from the source; equal sources make equal operations."""
    path, number, freshness = rng.choice(_PATHS), rng.randrange(7), rng.choice([*Freshness])
    operations = [an_operation(rng) for _ in range(rng.choice((1, 1, 3)))]
    match number:
        case 0:
            return await outcome_of(metadata.get(path, freshness=freshness))
        case 1:
            return await outcome_of(metadata.find(path, freshness=freshness))
        case 2:
            return await outcome_of(metadata.children(path, freshness=freshness))
        case 3:
            return await outcome_of(metadata.ensure_path(path))
        case 4:
            return await outcome_of(metadata.put(path, b"x", rng.randrange(3)))
        case _:
            return await outcome_of(metadata.multi(operations))


@pytest.mark.parametrize("seed", range(10))
async def test_it_answers_like_the_memory_store(seed: int, autojump_clock: MockClock) -> None:
    events: list[str] = []
    async with (
        open_memory_store() as plain_store,
        plain_store.open_session() as plain,
        open_memory_store() as store,
        store.open_session() as session,
    ):
        traced = WorldMetadata(session, lambda event, _details: events.append(event))
        one, other = Random(seed), Random(seed)

        for _ in range(60):
            assert await ask(traced, one) == await ask(plain, other)
        assert store.tree == plain_store.tree
    answered = events.count("meta-answer") + events.count("meta-fail")
    assert events.count("meta-ask") == answered >= 60


async def test_watches_and_the_session_come_from_the_store(
    autojump_clock: MockClock,
) -> None:
    async with open_memory_store() as store, store.open_session() as session:
        traced = WorldMetadata(session, lambda _event, _details: None)
        changed = trio.Event()
        assert await traced.find("/a", changed=changed) is None
        await traced.create("/a")
        assert changed.is_set()

        session.lose_next_answer()
        with pytest.raises(OutcomeUnknownError):
            await traced.put("/a", b"x", 0)
        assert (await traced.get("/a")).version == 1
        session.cut_off()
        assert await traced.wait_state_change(SessionState.CONNECTED) is SessionState.SUSPENDED
