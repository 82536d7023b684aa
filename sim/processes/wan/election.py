"""Rewrites the first message of a ZooKeeper server that connects to another for an election.

The message carries the sender's id and address. A receiver with the higher id closes the
connection and connects to that address itself, which would bypass the emulator. So the emulator
replaces the address with the port that leads back through it, as a NAT router does for
protocols that carry addresses.

The message is version (int64, below 0), server id (int64), length (int32), address. In the
older form there is only the server id, and nothing to replace.
"""

import struct

_HEAD = struct.Struct(">qqi")
_VERSION = struct.Struct(">q")
ADDRESS_BYTES_MAX = 512


def rewritten(message: bytes, answer_at: str) -> bytes | None:
    """The message with its address replaced by `answer_at`; None while it is incomplete."""
    if len(message) < _VERSION.size:
        return None
    if _VERSION.unpack_from(message)[0] >= 0:
        return message
    if len(message) < _HEAD.size:
        return None
    version, server_id, length = _HEAD.unpack_from(message)
    end = _HEAD.size + length
    if not 0 <= length <= ADDRESS_BYTES_MAX:
        return message  # Not a ZooKeeper message; the receiver will refuse it.
    if len(message) < end:
        return None
    address = answer_at.encode()
    return _HEAD.pack(version, server_id, len(address)) + address + message[end:]
