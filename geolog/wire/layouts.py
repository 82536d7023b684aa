"""The layout of each message in a frame: its type number, and the struct of its fixed fields.

Fields are in the order of the message's class. A text, if any, follows them.
"""

import enum
import struct

PROTOCOL_VERSION = 4
"""Changes when the meaning of a message does; the format layouts have versions of their own."""


class FrameType(enum.IntEnum):
    """The type number of each message. A number is never reused for another message."""

    HELLO = 1
    HELLO_ANSWER = 2
    REFUSED = 3
    ADD = 4
    ADDS_SYNCED = 5
    ADD_REFUSED = 6
    OPEN_LEDGER = 7
    LEDGER_OPENED = 8
    FENCE = 9
    FENCED = 10
    READ = 11
    READ_ANSWER = 12
    PROBE = 13
    PROBE_ANSWER = 14
    PUSH_LAC = 15
    STATUS_REQUEST = 16
    STATUS = 17
    ADDS_RECEIVED = 18
    FOLLOW = 19
    SETTLE_DOUBT = 20
    DOUBT_SETTLED = 21
    CANCEL = 22


REQUEST = struct.Struct("<Q")
HELLO = struct.Struct("<QI")
HELLO_ANSWER = struct.Struct("<QI16sQ")
REFUSED = struct.Struct("<QBQ")
ADD = struct.Struct("<QQQQqBB16s")
ADDS_SYNCED = struct.Struct("<Q")
ADDS_RECEIVED = struct.Struct("<Q")
ADD_REFUSED = struct.Struct("<QBQ")
OPEN_LEDGER = struct.Struct("<QQQ16s")
FENCE = struct.Struct("<QQQ16s")
FENCED = struct.Struct("<Qqq")
READ = struct.Struct("<QQQIIIQ16sB")
READ_ANSWER = struct.Struct("<QqQBBI")
ENTRY_ANSWER = struct.Struct("<BI")
FOLLOW = struct.Struct("<QQQIII16s")
PROBE = struct.Struct("<QQQI16s")
PROBE_ANSWER = struct.Struct("<QqqBQ")
PUSH_LAC = struct.Struct("<QQq16s")
SETTLE_DOUBT = struct.Struct("<QQQ16s")
