"""geolog for asyncio programs: the names of `geolog`, to be awaited in any event loop.

Cancellation and `asyncio.timeout` work as usual: the call is cancelled before the task goes on.
Several event loops may use geolog at the same time.
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
