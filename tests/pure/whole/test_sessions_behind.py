"""Writers whose metadata sessions end, and start again at lagging servers."""

import pytest
import trio
from trio.testing import MockClock

from geolog.background import open_background
from geolog.partition.takeover import TakenOver, Takeover
from geolog.protocol.stream_state import PartitionName
from sim.fakes.memory_metadata import MemoryMetadata
from tests.pure.whole.clusters import (
    STREAM,
    World,
    append_each,
    numbered,
    open_world,
    values_of,
)


@pytest.mark.parametrize("is_refused", [True, False], ids=["refused", "taken"])
async def test_a_takeover_continues_in_sessions_at_lagging_metadata_servers(
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    is_refused: bool,  # noqa: FBT001 - whether such a server refuses the session, as it should
) -> None:
    """Each write ends the session, and the next one starts at a server without that write."""
    if not is_refused:
        monkeypatch.setattr(MemoryMetadata, "_admits", lambda _metadata, _tree: True)
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(2))
        with pytest.raises(ZeroDivisionError):
            await die_as_owner(world, numbered(1, 2))
        sessions: list[MemoryMetadata] = []
        async with (
            world.cluster.open_client(
                "us-east", host="next", on_session=sessions.append
            ) as log,
            open_background() as nursery,
        ):
            ended: list[int] = []
            nursery.start_soon(end_each_session, sessions[0], ended)
            async with log.open_writer(STREAM) as writer:
                nursery.cancel_scope.cancel()
                sessions[0].catch_up()
                assert (await writer.append(b"last")).sequence == 3
            assert len(ended) > 3
        assert await values_of(world.log) == [*numbered(3), b"last"]


async def die_as_owner(world: World, values: list[bytes]) -> None:
    """Leave an open ledger that nobody will close."""
    sessions: list[MemoryMetadata] = []
    async with (
        world.cluster.open_client("us-east", host="dies", on_session=sessions.append) as log,
        log.open_writer(STREAM) as writer,
    ):
        await append_each(writer, values)
        for node in world.cluster.nodes:
            world.cluster.network.cut("dies", node)
        sessions[0].cut_off()
        raise ZeroDivisionError


async def end_each_session(session: MemoryMetadata, ended: list[int]) -> None:
    while True:
        known = session.session_id
        session.expire_after_write()
        while session.session_id == known:  # noqa: ASYNC110 - it is CONNECTED before and after.
            await trio.sleep(0.001)
        ended.append(known)


async def test_a_named_writer_sees_all_partitions_in_a_session_at_a_lagging_server(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another number of partitions a repeated record would go to another partition."""
    monkeypatch.setattr(MemoryMetadata, "_admits", lambda _metadata, _tree: True)
    sessions: list[MemoryMetadata] = []
    async with (
        open_world() as world,
        world.cluster.open_client("us-east", host="next", on_session=sessions.append) as log,
    ):
        await log.describe_stream(STREAM)
        sessions[0].lag()
        sessions[0].lag_next()
        await world.log.update_stream(STREAM, partitions=2)
        async with world.log.open_writer(STREAM, writer_id="till") as writer:
            first = [
                await writer.append(b"%d" % seq, key=b"%d" % seq, seq=seq) for seq in range(8)
            ]
        take_over = Takeover.take_over

        async def take_over_in_one_session(
            takeover: Takeover, name: PartitionName, who: str, *, lease_s: float | None
        ) -> TakenOver:
            taken = await take_over(takeover, name, who, lease_s=lease_s)
            sessions[0].expire()
            return taken

        monkeypatch.setattr(Takeover, "take_over", take_over_in_one_session)
        async with log.open_writer(STREAM, writer_id="till") as writer:
            again = [
                await writer.append(b"%d" % seq, key=b"%d" % seq, seq=seq) for seq in range(8)
            ]

        assert all(receipt.duplicate for receipt in again)
        places = [(receipt.partition, receipt.sequence) for receipt in first]
        assert [(receipt.partition, receipt.sequence) for receipt in again] == places
