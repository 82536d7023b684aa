"""The table of a journal file that a crash ended, in a file of its own (`<id>.table`).

Such a journal file has no table at its end, and is never written again. Without a table file,
every start would walk it record by record. A damaged or missing table file costs that walk, and
nothing else. If the journal file has a table at its end that may not be synced, the table file
makes that table durable.
"""

import struct

import attrs
from crc32c import crc32c

from geolog.protocol.ids import InstanceId
from regions.storage.protocol.tables import FOOTER_BYTES, Footer

_MAGIC = b"geologTF"
_HEADER = struct.Struct("<8s16s8sQ")

_SUFFIX = ".table"
_UNFINISHED_SUFFIX = ".table.new"


def table_file_name(file_id: int) -> str:
    """Name of a journal file's table file."""
    return f"{file_id:016x}{_SUFFIX}"


def unfinished_table_file_name(file_id: int) -> str:
    """Name of an unfinished table file; a restart removes it."""
    return f"{file_id:016x}{_UNFINISHED_SUFFIX}"


def is_table_file(name: str) -> bool:
    """Whether the name is that of a table file, finished or not."""
    return name.endswith((_SUFFIX, _UNFINISHED_SUFFIX))


@attrs.frozen
class TableFile:
    """The content of a table file."""

    instance: InstanceId
    salt: bytes
    """Salt of the journal file: tells it from any other file with the same id."""
    proven_bytes: int
    """The table covers all records of the journal file that begin before this offset."""
    body: bytes
    """As in a TABLE record."""

    def encode(self, file_id: int) -> bytes:
        """The whole file."""
        header = _HEADER.pack(
            _MAGIC, bytes.fromhex(self.instance), self.salt, self.proven_bytes
        )
        content = header + self.body
        return content + Footer(file_id, 0, len(content), crc32c(content)).encode()

    @classmethod
    def decode(cls, found: bytes, file_id: int) -> "TableFile | None":
        """Decode it; None if it is damaged, or belongs to another journal file."""
        content = found[:-FOOTER_BYTES]
        footer = Footer.decode(found[len(content) :], file_id)
        if footer is None or footer.table_offset or footer.table_length != len(content):
            return None
        if crc32c(content) != footer.table_crc or not content.startswith(_MAGIC):
            return None
        _, instance, salt, proven_bytes = _HEADER.unpack_from(content)
        return cls(InstanceId(instance.hex()), salt, proven_bytes, content[_HEADER.size :])
