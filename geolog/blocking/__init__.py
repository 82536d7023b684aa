"""geolog for synchronous programs: the names of `geolog`, as blocking calls.

Any number of threads may use geolog at the same time. `fail_after` bounds how long calls wait;
Ctrl-C interrupts a call.
"""

from geolog.blocking.deadline import fail_after
from geolog.blocking.log import Log, connect
from geolog.blocking.opening import Opening
from geolog.blocking.reader import Items, Reader
from geolog.blocking.writer import Pending, Writer
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
    "fail_after",
]
