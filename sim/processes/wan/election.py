"""The first message of a ZooKeeper server that connects to another for an election.

It says who connects, and the address where it can be reached: the other side, if its number is
the higher one, closes the connection and connects to that address itself. That would lead past
the emulator. So the address is replaced on the way by the port that leads back through it, as a
router that translates addresses does with protocols that carry them.

The message is version (int64, below 0), server id (int64), length (int32), address. In the
older form there is the server id alone, and nothing to replace.
"""

import struct

_HEAD = struct.Struct(">qqi")
_VERSION = struct.Struct(">q")
ADDRESS_BYTES_MAX = 512


def rewritten(message: bytes, answer_at: str) -> bytes | None:
    """The same bytes with that address in place of theirs; None while some are missing."""
    if len(message) < _VERSION.size:
        return None
    if _VERSION.unpack_from(message)[0] >= 0:
        return message
    if len(message) < _HEAD.size:
        return None
    version, server_id, length = _HEAD.unpack_from(message)
    end = _HEAD.size + length
    if not 0 <= length <= ADDRESS_BYTES_MAX:
        return message  # Not a message of ZooKeeper; the receiver will refuse it.
    if len(message) < end:
        return None
    address = answer_at.encode()
    return _HEAD.pack(version, server_id, len(address)) + address + message[end:]
