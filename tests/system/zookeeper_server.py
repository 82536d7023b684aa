"""A real ZooKeeper server for a test, which starts and ends with the test's process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from geolog.background import open_background
from geolog.transport.seam import Address
from regions.zookeeper.server import ZooKeeperConfig, serve_zookeeper
from tests.system.addresses import free_addresses

START_TIMEOUT_S = 100.0

SERVE = """\
import sys, trio
from pathlib import Path
from geolog.transport.seam import Address
from regions.zookeeper.server import ZooKeeperConfig, serve_zookeeper

address = Address("127.0.0.1", int(sys.argv[2]))
config = ZooKeeperConfig(data_dir=Path(sys.argv[1]), listen=address)
trio.run(serve_zookeeper, config, lambda: print("ready", flush=True))
"""
"""The same in a separate process: its arguments are data directory and port."""


@asynccontextmanager
async def open_server(data_dir: Path) -> AsyncIterator[Address]:
    """A standalone server that answers."""
    [address] = free_addresses(1)
    config = ZooKeeperConfig(data_dir=data_dir, listen=address)
    is_ready = trio.Event()
    async with open_background() as nursery:
        nursery.start_soon(serve_zookeeper, config, is_ready.set)
        with trio.fail_after(START_TIMEOUT_S):
            await is_ready.wait()
        yield address
