"""geolog for asyncio programs: the surface of `geolog`, awaited in any event loop.

Cancellation and `asyncio.timeout` work as they do elsewhere in asyncio: what is waited for is
cancelled first. Several event loops may use it at once.
"""

from geolog.aio.log import Log, connect
from geolog.aio.opening import Opening
from geolog.aio.reader import Items, Reader
from geolog.aio.writer import Pending, Writer
from geolog.portal.errors import ForkedError
from geolog.portal.would_block import WouldBlock
from topology.errors import ClosedError

__all__ = [
    "ClosedError",
    "ForkedError",
    "Items",
    "Log",
    "Opening",
    "Pending",
    "Reader",
    "WouldBlock",
    "Writer",
    "connect",
]
