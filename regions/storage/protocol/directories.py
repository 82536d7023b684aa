"""Which data directory of a node a ledger lives in: frozen, since nothing else finds it.

Rules: PROTOCOL D6.
"""

import struct

from crc32c import crc32c

from geolog.protocol.ids import LedgerId

_LEDGER = struct.Struct("<q")


def directory_of(ledger: LedgerId, directories_count: int) -> int:
    """The index of the ledger's directory: CRC32C of its id as an int64, modulo the count.

    The id is taken little-endian. Ids come from one counter; a hash sends those of one stream
    to all directories alike, in whatever pattern it takes them.
    """
    if directories_count == 1:
        return 0
    return crc32c(_LEDGER.pack(ledger)) % directories_count
