"""The parsers that read what strangers, or damaged disks, give: each takes any bytes.

A parser may refuse with an error of geolog's own and with nothing else. Where a checksum would
turn away all that a fuzzer makes up, the bytes are also given with the right one.
"""

import collections.abc
import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import trio
from crc32c import crc32c
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.typing import (
    ASGIReceiveCallable,
    ASGISendCallable,
    HTTPResponseBodyEvent,
    HTTPResponseStartEvent,
    Scope,
)

from geolog.protocol.ids import Sequence
from geolog.transport.request_head import read_head
from geolog.wire.batch import MAGIC, open_batch, seal_batch
from geolog.wire.decoding import decode
from geolog.wire.entry import decode_entry, decode_entry_header
from geolog.wire.frame import FrameReader, encode_frame_front
from geolog.wire.multicast import decode_multicast
from geolog.wire.relay_report import decode_heard, decode_report
from geolog.wire.session.batches import decode_from_client, decode_from_proxy, messages_of
from geolog.wire.session.frames import JSON_FRAMES, MSGPACK_FRAMES
from geolog.wire.session.paths import parse_path
from geolog.wire.snapshot import open_snapshot
from geolog.wire.spool_frame import decode_frame, decode_marks
from geolog.wire.writer_fence import open_fence
from regions.proxy.http.connection import HttpConnection
from relay.wire.bridge import decode_from_home, decode_from_target
from sim.processes.drills.mutations import KINDS, corpus_of
from topology.errors import GeologError

Parser = Callable[[bytes], object]

_ENVELOPE = struct.Struct("<BBHIII")
_BATCH_FIELDS = struct.Struct("<BBHIIIII")
_CRC_BYTES = 4


def _json(data: bytes) -> None:
    JSON_FRAMES.decode(data.decode(errors="replace"))


def _msgpack(data: bytes) -> None:
    MSGPACK_FRAMES.decode(data)


def _path(data: bytes) -> None:
    parse_path(data.decode("latin-1"))


def _batches(data: bytes) -> None:
    for decode_one in (decode_from_client, decode_from_proxy):
        for given in (data, _in_envelope(data)):
            with suppress(GeologError):
                for message in messages_of(given):
                    decode_one(message)


def _sealed(data: bytes) -> None:
    for given in (data, _with_batch_checksums(data)):
        with suppress(GeologError):
            batch = open_batch(given)
            batch.values()
            open_fence(batch)
        with suppress(GeologError):
            open_snapshot([open_batch(given)], sequence_next=Sequence(0), append_time_us=0)


def _entry(data: bytes) -> None:
    for parse in (decode_entry, decode_entry_header, decode_frame, decode_marks):
        with suppress(GeologError):
            parse(data)


def _node(data: bytes) -> None:
    fields, body = _in_two(data[2:])
    type_ = int.from_bytes(data[:2], "little")
    front = encode_frame_front(type_, fields, len(body), crc32c(body))
    for given in (data, front + body):
        with suppress(GeologError):
            reader, left = FrameReader(), memoryview(given)
            while left:
                buffer = reader.buffer()
                count = min(len(buffer), len(left))
                buffer[:count] = left[:count]
                reader.received(count)
                left = left[count:]
                for frame in reader.frames():
                    decode(frame)


def _relay(data: bytes) -> None:
    parsers: Iterable[Parser] = (
        decode_from_home,
        decode_from_target,
        lambda given: list(decode_multicast(given)),
        decode_report,
        decode_heard,
    )
    for parse in parsers:
        for given in (data, _in_envelope(data)):
            with suppress(GeologError):
                parse(given)


def _http(data: bytes) -> None:
    stream = _GivenStream(data)
    head = trio.run(read_head, stream)
    if head:
        trio.run(HttpConnection(stream, head, "fuzzer", ASGIWrapper(_echo)).run)
        assert stream.is_closed, "the connection was left open"


PARSERS: Mapping[str, Parser] = {
    "json": _json,
    "msgpack": _msgpack,
    "path": _path,
    "batches": _batches,
    "sealed": _sealed,
    "entry": _entry,
    "node": _node,
    "relay": _relay,
    "http": _http,
}
"""JSON and MessagePack frames, paths, messages of batches, sealed batches with snapshots and
fences in them, entries and spools, frames of nodes, messages of relays, HTTP requests."""


def seeds_of(name: str) -> list[bytes]:
    """Good inputs of a parser to begin with; none if a fuzzer finds them by itself."""
    if name in KINDS:
        return [one.data for one in corpus_of(name, "shop/orders")]
    if name == "sealed":
        return [bytes(seal_batch([b"v", b"w"], created_us=1, keys=[b"k", None]).data)]
    return []


def parse(name: str, data: bytes) -> None:
    """Give bytes to a parser. Any error but geolog's own is a bug."""
    with suppress(GeologError):
        PARSERS[name](data)


def _in_two(data: bytes) -> tuple[bytes, bytes]:
    at = min(len(data), int.from_bytes(data[:2], "little"))
    return data[2 : 2 + at], data[2 + at :]


def _in_envelope(data: bytes) -> bytes:
    """The same message with right lengths and a right checksum."""
    head = data[: _ENVELOPE.size].ljust(_ENVELOPE.size, b"\0")
    type_, _, _, channel, fields_bytes, _ = _ENVELOPE.unpack(head)
    rest = data[_ENVELOPE.size + _CRC_BYTES :]
    fields, body = rest[:fields_bytes], rest[fields_bytes:]
    front = _ENVELOPE.pack(type_, 0, 0, channel, len(fields), len(body))
    crc = crc32c(fields, crc32c(front))
    return b"".join((front, crc.to_bytes(_CRC_BYTES, "little"), fields, body))


def _with_batch_checksums(data: bytes) -> bytes:
    """The same sealed batch with right lengths and checksums."""
    start = len(MAGIC) + _CRC_BYTES
    head = data[start : start + _BATCH_FIELDS.size].ljust(_BATCH_FIELDS.size, b"\0")
    _, codec, columns, count, _, raw, _, _ = _BATCH_FIELDS.unpack(head)
    body = data[start + _BATCH_FIELDS.size :]
    fields = _BATCH_FIELDS.pack(1, codec, columns, count, len(body), raw, crc32c(body), 0)
    return b"".join((MAGIC, crc32c(fields).to_bytes(_CRC_BYTES, "little"), fields, body))


class _GivenStream:
    """A connection that receives these bytes, and then their end."""

    def __init__(self, data: bytes) -> None:
        self._left = data
        self.is_closed = False

    @property
    def peer(self) -> str:
        return "fuzzer:1"

    async def send(
        self, _buffers: collections.abc.Sequence[bytes | bytearray | memoryview]
    ) -> None:
        await trio.lowlevel.checkpoint()

    def send_nowait(
        self, buffers: collections.abc.Sequence[bytes | bytearray | memoryview]
    ) -> int:
        return sum(map(len, buffers))

    async def receive_into(self, buffer: bytearray | memoryview) -> int:
        await trio.lowlevel.checkpoint()
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    def close(self) -> None:
        self.is_closed = True


async def _echo(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    if scope["type"] != "http":
        return
    while True:
        message = await receive()
        if message["type"] != "http.request" or not message["more_body"]:
            break
    start: HTTPResponseStartEvent = {
        "type": "http.response.start",
        "status": 200,
        "headers": [],
        "trailers": False,
    }
    end: HTTPResponseBodyEvent = {
        "type": "http.response.body",
        "body": scope["raw_path"],
        "more_body": False,
    }
    await send(start)
    await send(end)
