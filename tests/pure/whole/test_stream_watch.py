"""The streams of a cluster are watched: what has not changed is not read again."""

from trio.testing import MockClock

from geolog.catalog.stream_watch import StreamWatch
from sim.in_process import open_in_process_cluster


async def names_of(watch: StreamWatch) -> list[str]:
    return sorted(str(one.name) for one in await watch.records())


async def test_only_what_has_changed_is_read_again(autojump_clock: MockClock) -> None:
    async with (
        open_in_process_cluster({"a": 1, "b": 1}) as cluster,
        cluster.open_client("a") as log,
    ):
        watch = StreamWatch(log.access.metadata, log.access.paths)
        await watch.records()  # There may be no stream yet, and then nothing to watch.

        async def reads_of(expected: list[str]) -> int:
            before = watch.reads_count
            assert await names_of(watch) == expected
            return watch.reads_count - before

        async def create(name: str) -> None:
            sizes = {"ensemble_size": 1, "write_quorum": 1, "ack_quorum": 1, "min_regions": 1}
            await log.create_stream(name, **sizes)  # type: ignore[arg-type]

        await create("shop/one")
        await create("shop/two")
        assert await reads_of(["shop/one", "shop/two"]) >= 4
        assert await reads_of(["shop/one", "shop/two"]) == 0
        await create("mill/three")
        assert await reads_of(["mill/three", "shop/one", "shop/two"]) == 3
        await log.update_stream("shop/two", retention_s=5.0)
        assert await reads_of(["mill/three", "shop/one", "shop/two"]) == 1
        await log.delete_stream("shop/one")
        assert await reads_of(["mill/three", "shop/two"]) >= 1
        await create("shop/one")
        assert await reads_of(["mill/three", "shop/one", "shop/two"]) >= 2
        lives = {str(one.name): one.life for one in await watch.records()}

    assert len(set(lives.values())) == 3
