"""Byte formats only: the sealed batch, the entry, the frame, the messages in frames."""

from geolog.wire.batch import (
    Batch,
    BatchHeader,
    SealedBatch,
    open_batch,
    peek_batch_header,
    seal_batch,
    verify_batch,
)
from geolog.wire.codec import (
    PROTOCOL_VERSION,
    FrameType,
    decode,
    encode,
    encode_add_front,
    encode_adds_synced,
)
from geolog.wire.entry import (
    EncodedEntry,
    Entry,
    EntryHeader,
    EntryKind,
    WriterStamp,
    decode_entry,
    decode_entry_header,
    encode_entry,
)
from geolog.wire.frame import Frame, FrameReader, FrameTooLargeError, encode_frame_front

__all__ = [
    "PROTOCOL_VERSION",
    "Batch",
    "BatchHeader",
    "EncodedEntry",
    "Entry",
    "EntryHeader",
    "EntryKind",
    "Frame",
    "FrameReader",
    "FrameTooLargeError",
    "FrameType",
    "SealedBatch",
    "WriterStamp",
    "decode",
    "decode_entry",
    "decode_entry_header",
    "encode",
    "encode_add_front",
    "encode_adds_synced",
    "encode_entry",
    "encode_frame_front",
    "open_batch",
    "peek_batch_header",
    "seal_batch",
    "verify_batch",
]
