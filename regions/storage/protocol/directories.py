"""The data directory of each ledger on a node: frozen, since nothing else finds the ledger.

Rules: PROTOCOL D6.
"""

import struct

from crc32c import crc32c

from geolog.protocol.ids import LedgerId

_LEDGER = struct.Struct("<q")


def directory_of(ledger: LedgerId, directories_count: int) -> int:
    """The index of the ledger's directory: CRC32C of its id as an int64, modulo the count.

    The id is little-endian. Ids come from one counter; the hash spreads the ids of one stream
    evenly over all directories, whatever pattern of ids the stream has.
    """
    if directories_count == 1:
        return 0
    return crc32c(_LEDGER.pack(ledger)) % directories_count
