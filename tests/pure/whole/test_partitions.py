"""Streams of several partitions: separate logs, written and read together."""

import pytest
from trio.testing import MockClock

import geolog
from tests.pure.whole.clusters import World, numbered, open_world

MANY = "shop/many"


async def make(world: World, partitions: int = 3) -> None:
    await world.log.create_stream(MANY, survive="1 region", partitions=partitions)


async def read(world: World, name: str = MANY, **bounds: geolog.Bound) -> list[geolog.Record]:
    async with world.log.open_reader(name, **bounds) as reader:  # type: ignore[arg-type]
        return [record async for record in reader]


async def test_records_of_one_key_are_in_one_partition_in_order(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await make(world)
        async with world.log.open_writer(MANY) as writer:
            for number in range(60):
                writer.append_nowait(b"%d" % number, key=b"key %d" % (number % 20))
        records = await read(world)

    assert len(records) == 60
    assert {record.partition for record in records} == {0, 1, 2}
    for key in {record.key for record in records}:
        of_key = [record for record in records if record.key == key]
        assert len({record.partition for record in of_key}) == 1
        assert [int(record.value) for record in of_key] == sorted(
            int(record.value) for record in of_key
        )


async def test_each_partition_has_dense_sequences_of_its_own(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await make(world)
        async with world.log.open_writer(MANY) as writer:
            receipts = [await writer.append(value, key=value) for value in numbered(30)]
        records = await read(world)
        alone = {
            number: [record.value for record in await read(world, f"{MANY}#{number}")]
            for number in range(3)
        }

    for number in range(3):
        mine = [record for record in records if record.partition == number]
        assert [record.sequence for record in mine] == list(range(len(mine)))
        assert [record.value for record in mine] == alone[number]
    places = {(record.partition, record.sequence): record.value for record in records}
    assert [places[one.partition, one.sequence] for one in receipts] == numbered(30)


async def test_records_without_keys_fill_one_partition_after_another(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await make(world)
        async with world.log.open_writer(MANY) as writer:
            for _ in range(12):
                await writer.append(bytes(20_000))
        records = await read(world)

    counts = [sum(record.partition == number for record in records) for number in range(3)]
    assert sorted(counts) == [4, 4, 4]


async def test_one_partition_can_have_a_writer_of_its_own(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await make(world)
        async with (
            world.log.open_writer(f"{MANY}#0") as one,
            world.log.open_writer(f"{MANY}#2") as other,
        ):
            await one.append(b"zero", key=b"any")
            await other.append(b"two", key=b"any")
        records = await read(world)
        (verified,) = [await world.log.verify_stream(MANY)]

    assert {(record.partition, record.value) for record in records} == {
        (0, b"zero"), (2, b"two")
    }  # fmt: skip
    assert verified.is_good
    assert verified.records == 2


async def test_a_position_in_one_partition_is_refused_for_several(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await make(world)
        for start in (geolog.AtSequence(3), geolog.AtTransaction(3),
                      geolog.AtDlsn(geolog.DLSN(1, 0, 0))):  # fmt: skip
            with pytest.raises(geolog.InvalidArgumentError, match="shop/many#0"):
                await read(world, start=start)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("shop/many#3", "its partitions are 0 to 2"),
        ("shop/many#x", "'x' is not a partition number"),
        ("shop/many#01", "'01' is not a partition number"),
        ("shop/many#", "'' is not a partition number"),
    ],
)
async def test_an_unknown_partition_is_reported(
    name: str, words: str, autojump_clock: MockClock
) -> None:
    async with open_world() as world:
        await make(world)
        with pytest.raises(geolog.InvalidArgumentError, match=words):
            await read(world, name)


async def test_the_number_of_partitions_can_only_grow(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await make(world, 2)
        async with world.log.open_writer(MANY) as writer:
            await writer.append(b"before", key=b"key")
        described = await world.log.update_stream(MANY, partitions=5)
        async with world.log.open_writer(f"{MANY}#4") as writer:
            await writer.append(b"after")
        with pytest.raises(geolog.InvalidArgumentError, match="can only grow"):
            await world.log.update_stream(MANY, partitions=4)

        assert described.partitions == 5
        assert {record.value for record in await read(world)} == {b"before", b"after"}


async def test_all_partitions_share_one_window(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await make(world)
        async with world.log.open_writer(
            MANY, in_flight_bytes=100_000, batch_bytes=50_000
        ) as writer:
            for number in range(40):
                await writer.post(bytes(9_000), key=b"%d" % number)
                assert writer.statistics().in_flight_bytes <= 100_000

        assert len(await read(world)) == 40


async def test_a_writer_of_many_leaves_nothing_open(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await make(world)
        async with world.log.open_writer(MANY) as writer:
            await writer.append(b"one")
        described = await world.log.describe_stream(MANY)
        segments = await world.log.list_segments(MANY)

    assert not any(one.owner_is_alive for one in described.partition_list)
    assert [(one.partition, one.state) for one in segments] == [
        (0, "closed"), (1, "closed"), (2, "closed")
    ]  # fmt: skip
