"""The frame: the unit of messages on a byte stream.

A frame is a header, fields (which vary per message) and a body (bytes carried unchanged, such
as an entry). Layout, little-endian:

    0  magic "GLF" and version u8     12 length of the body u32
    4  CRC32C of bytes 8 on,          16 CRC32C of the body u32
       to the end of the fields u32   20 fields
    8  type u16                          body
    10 length of the fields u16

`FrameReader` takes bytes as they come and returns whole frames, whose bodies stay in the
receive buffer: each byte is received once, checked once, and copied only when its frame
straddles two receive buffers. So a large frame gets a buffer of its own, which takes no more
than its last byte and the header after it. A buffer belongs to the frames in it and is never
written again.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from geolog.wire.limits import FRAME_BYTES_MAX
from topology.errors import DamagedBytesError, TooLargeError

MAGIC = b"GLF\x01"
HEADER_BYTES = 20

_HEADER = struct.Struct("<4sIHHII")
_FRONT = struct.Struct("<4sI")
_CHECKED = struct.Struct("<HHII")
_CHECKED_FROM = 8

_BUFFER_BYTES_MIN = 16 << 10
_BUFFER_BYTES_MAX = 1 << 20
_ROOM_BYTES_MIN = 4 << 10
"""With less room left, a new buffer costs less than another call to receive."""
_LARGE_BYTES_MIN = 128 << 10
"""From here on, copying the front of a frame costs more than a call to receive."""
_EMPTY = memoryview(b"")


class FrameTooLargeError(TooLargeError, DamagedBytesError):
    """A frame is over the limit. Nothing was allocated for it; its stream is unusable."""


class Frame(NamedTuple):
    """One frame; `body_crc` was verified."""

    type: int
    fields: memoryview
    body: memoryview
    body_crc: int


def encode_frame_front(
    type_: int, fields: bytes, body_bytes: int = 0, body_crc: int = 0
) -> bytes:
    """Header and fields of a frame; the body follows unchanged."""
    if HEADER_BYTES + len(fields) + body_bytes > FRAME_BYTES_MAX:
        raise FrameTooLargeError(
            f"a frame of {HEADER_BYTES + len(fields) + body_bytes} bytes is over the limit of "
            f"{FRAME_BYTES_MAX}"
        )
    checked = _CHECKED.pack(type_, len(fields), body_bytes, body_crc) + fields
    return _FRONT.pack(MAGIC, crc32c(checked)) + checked


class FrameReader:
    """Cuts a byte stream into frames.

    Receive into `buffer()`, report the count with `received(n)`, then take all of `frames()`.
    After a DamagedBytesError or FrameTooLargeError the stream cannot be followed any further.

    Memory: one buffer of 16 KiB to 1 MiB, larger if the stream has filled the previous one, or
    as large as a large frame (in steps, as it arrives); plus the frames that the caller keeps.
    A kept frame keeps its whole buffer: copy a small body to keep it for long.
    """

    def __init__(self, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer_bytes = _BUFFER_BYTES_MIN
        self._view = _EMPTY
        self._start = 0  # Of the first frame not returned yet.
        self._end = 0  # Of the received bytes.
        self._frame_bytes = HEADER_BYTES  # Of the first frame, as far as known.

    def __repr__(self) -> str:
        return (
            f"FrameReader({self._end - self._start} of {self._frame_bytes} bytes of a frame, "
            f"buffer of {len(self._view)})"
        )

    def allow(self, frame_bytes_max: int) -> None:
        """Allow frames of up to this size: a stranger's first words need little room."""
        self._frame_bytes_max = frame_bytes_max

    def buffer(self) -> memoryview:
        """The next buffer to receive into; never empty. Valid until the next call."""
        room_bytes = len(self._view) - self._end
        if self._start + self._frame_bytes <= len(self._view):
            is_known = self._frame_bytes > HEADER_BYTES
            is_good = is_known or room_bytes >= _ROOM_BYTES_MIN
        else:
            is_good = self._start == 0 and room_bytes > 0
        if not is_good:
            self._replace_buffer()
        if self._frame_bytes >= _LARGE_BYTES_MIN:
            return self._view[self._end : self._start + self._frame_bytes + HEADER_BYTES]
        return self._view[self._end :]

    def received(self, count: int) -> None:
        """Note that `count` bytes were received into the front of `buffer()`."""
        room_bytes = len(self._view) - self._end
        assert 0 < count <= room_bytes
        if count == room_bytes >= len(self._view) // 2:  # More is waiting, probably.
            self._buffer_bytes = min(2 * self._buffer_bytes, _BUFFER_BYTES_MAX)
        self._end += count

    def frames(self) -> Iterator[Frame]:
        """Yield the whole frames. Damage is raised after the intact ones before it."""
        view = self._view
        end = self._end
        while end - self._start >= HEADER_BYTES:
            start = self._start
            magic, front_crc, type_, fields_bytes, body_bytes, body_crc = _HEADER.unpack_from(
                view, start
            )
            fields_end = start + HEADER_BYTES + fields_bytes
            frame_end = fields_end + body_bytes
            if magic != MAGIC:
                raise DamagedBytesError(f"a frame begins with {magic!r} instead of {MAGIC!r}")
            if frame_end - start > self._frame_bytes_max:
                raise FrameTooLargeError(
                    f"a frame of {frame_end - start} bytes is over the limit of "
                    f"{self._frame_bytes_max}"
                )
            if fields_end > end:
                # The lengths are not verified yet: `_replace_buffer` believes them in part.
                self._frame_bytes = frame_end - start
                return
            if crc32c(view[start + _CHECKED_FROM : fields_end]) != front_crc:
                raise DamagedBytesError("the header of a frame does not match its checksum")
            if frame_end > end:
                self._frame_bytes = frame_end - start
                return
            body = view[fields_end:frame_end] if body_bytes else _EMPTY
            if crc32c(body) != body_crc:
                raise DamagedBytesError("the body of a frame does not match its checksum")
            self._start = frame_end
            self._frame_bytes = HEADER_BYTES
            if frame_end - start > self._buffer_bytes:  # So are the next ones, probably.
                self._buffer_bytes = min(frame_end - start, _BUFFER_BYTES_MAX)
            yield Frame(type_, view[start + HEADER_BYTES : fields_end], body, body_crc)

    def end(self) -> None:
        """The stream has ended. DamagedBytesError if that was in the middle of a frame."""
        left_bytes = self._end - self._start
        if left_bytes:
            raise DamagedBytesError(f"the stream ended {left_bytes} bytes into a frame")

    def _replace_buffer(self) -> None:
        """Leave the old buffer to the frames in it, except for a partial frame at its end."""
        left = self._view[self._start : self._end]
        # A length is trusted in proportion to the bytes received: a header alone pins little.
        believed_bytes = 4 * max(self._buffer_bytes, len(left))
        frame_bytes = min(max(self._frame_bytes, len(left) + 1), believed_bytes)
        if frame_bytes < _LARGE_BYTES_MIN:
            frame_bytes = max(self._buffer_bytes, frame_bytes)
        else:
            frame_bytes += HEADER_BYTES
        self._view = memoryview(bytearray(frame_bytes))
        self._view[: len(left)] = left
        self._start = 0
        self._end = len(left)
