"""Messages of the ledger protocol as frames, and back.

Payloads carried unchanged are in the body of a frame: the entry of an add, or the entries in
the answer to a read. When an entry goes to several nodes, `encode_add_front` rebuilds only the
front of its frame; the buffers of the entry follow.
"""

from geolog.wire.decoding import decode
from geolog.wire.encoding import Buffers, encode, encode_add_front, encode_adds_synced
from geolog.wire.layouts import PROTOCOL_VERSION, FrameType

__all__ = [
    "PROTOCOL_VERSION",
    "Buffers",
    "FrameType",
    "decode",
    "encode",
    "encode_add_front",
    "encode_adds_synced",
]
