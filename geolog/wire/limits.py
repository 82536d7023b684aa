"""The one table of limits. A sender checks before sending, a receiver before allocating."""

from typing import Final

RECORD_BYTES_MAX: Final = 1 << 20
"""Value, key and headers of one record together."""

BATCH_BYTES_MAX: Final = 4 << 20
"""The columns of one batch, before compression."""

ENTRY_BYTES_MAX: Final = 8 << 20
"""One entry: its header and its sealed batches, as stored."""

FRAME_BYTES_MAX: Final = 12 << 20
"""One frame on a connection: header, fields and body."""

BATCHES_PER_ENTRY_MAX: Final = 4096
"""Limit for the header of an entry."""

WRITER_ID_BYTES_MAX: Final = 255
"""A writer's name, in UTF-8."""

ENTRIES_PER_ANSWER_MAX: Final = 8192
"""Entries that one read or probe may request; their answers fit the fields of one frame."""

TEXT_BYTES_MAX: Final = 1024
"""A text in the fields of a frame (a cluster's name, a location, a message), in UTF-8."""

DOCUMENT_BYTES_MAX: Final = 1 << 20
"""A node's status as JSON, and other bodies that are not entries."""

INT64_MAX: Final = (1 << 63) - 1
"""The highest sequence, entry, epoch or id: elsewhere they are 64-bit signed columns."""
