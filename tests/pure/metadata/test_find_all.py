import pytest
from trio.testing import MockClock

from geolog.metadata.find_all import find_all
from sim.fakes.memory_metadata import open_memory_store
from topology.errors import UnavailableError


async def test_results_come_in_the_order_of_the_paths(autojump_clock: MockClock) -> None:
    async with open_memory_store(lambda: 0.1) as store, store.open_session() as metadata:
        for number in range(150):
            await metadata.create(f"/{number}", str(number).encode())
        found = await find_all(metadata, ["/149", "/missing", "/0"])

        assert [one and one.data for one in found] == [b"149", None, b"0"]
        everything = await find_all(metadata, [f"/{number}" for number in range(150)])
        assert [one and int(one.data) for one in everything] == list(range(150))


async def test_an_error_comes_out_unwrapped(autojump_clock: MockClock) -> None:
    async with open_memory_store(lambda: 0.1) as store, store.open_session() as metadata:
        metadata.cut_off()
        with pytest.raises(UnavailableError):
            await find_all(metadata, ["/a", "/b"])
