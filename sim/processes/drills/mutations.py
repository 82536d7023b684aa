"""Messages to a proxy that are almost right: a corpus of good ones, and changes to them.

Chance comes from the caller, so a seed gives the same messages again.
"""

import json
import random
import struct
from collections.abc import Callable, Sequence
from typing import Literal

import attrs
import msgpack
from crc32c import crc32c

from geolog.protocol.batch_seqs import BatchSeqs
from geolog.protocol.writer_standing import WriterFence
from geolog.wire.batch import seal_batch
from geolog.wire.batch_terms import BatchTerms
from geolog.wire.entry import WriterStamp
from geolog.wire.session.batches import encode_batches
from geolog.wire.session.channel_messages import (
    AskStanding,
    CloseChannel,
    DescribeRequest,
    OpenChannel,
    SendBatch,
)
from geolog.wire.session.paths import SESSION_PATH

MessageKind = Literal["json", "msgpack", "batches", "http"]

KINDS: tuple[MessageKind, ...] = ("json", "msgpack", "batches", "http")

_FRONT = struct.Struct("<BBHIII")
_CRC_BYTES = 4
_CHANGES_MAX = 4
_PIECE_BYTES_MAX = 64
_MESSAGE_BYTES_MAX = 64 << 10
"""Longer ones are cut: pieces that are repeated would make them grow without end."""
_ODD_BYTES = (
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\r\n",
    b'"',
    b"{",
    b"[",
    b"\xc1",
    b"\xdf\xff\xff\xff\xff",
)
_ODD_VALUES: tuple[object, ...] = (
    None,
    True,
    -1,
    0,
    1 << 31,
    (1 << 63) - 1,
    1e308,
    "",
    "\0",
    "é" * 100,
    [],
    {},
    [[[[]]]],
    {"value": {"value": {}}},
)


@attrs.frozen
class Message:
    """One message, and where it goes: the path of a session; none for HTTP."""

    kind: MessageKind
    target: str
    data: bytes


def corpus_of(kind: MessageKind, stream: str) -> list[Message]:
    """Good messages, and some that are refused."""
    append, read = f"/v1/streams/{stream}/append", f"/v1/streams/{stream}/read?follow=1"
    if kind == "batches":
        return [Message(kind, SESSION_PATH, encode_batches(one)) for one in _messages(stream)]
    if kind == "http":
        return [Message(kind, "", one) for one in _requests(append)]
    pack: Callable[[object], bytes] = msgpack.packb
    packed = [json.dumps(one).encode() if kind == "json" else pack(one) for one in _DOCUMENTS]
    targets = (append, f"{append}?writer=till-7", read)
    return [Message(kind, target, one) for target in targets for one in packed]


def mutated(corpus: Sequence[Message], rng: random.Random) -> Message:
    """One message of the corpus, changed."""
    message = rng.choice(corpus)
    data = message.data
    if message.kind in ("json", "msgpack") and rng.random() < 0.5:
        data = _with_odd_value(message, rng)
    if message.kind == "batches" and rng.random() < 0.7:
        return attrs.evolve(message, data=_with_odd_fields(data, rng))
    others = [one.data for one in corpus]
    for _ in range(rng.randint(0 if data != message.data else 1, _CHANGES_MAX)):
        data = rng.choice(_CHANGES)(data, others, rng)
    return attrs.evolve(message, data=data[:_MESSAGE_BYTES_MAX])


def _with_odd_value(message: Message, rng: random.Random) -> bytes:
    """The document with one of its values changed, or one more."""
    is_json = message.kind == "json"
    document = json.loads(message.data) if is_json else msgpack.unpackb(message.data)
    place = document
    records = document.get("records")
    if isinstance(records, list) and rng.random() < 0.5:
        place = rng.choice(records)
    keys = [*place, "seq", "writer", "headers", "timeout_s", "expect_sequence", "ack"]
    place[rng.choice(keys)] = rng.choice(_ODD_VALUES)
    if is_json:
        return json.dumps(document).encode()
    packed: bytes = msgpack.packb(document)
    return packed


def _with_odd_fields(data: bytes, rng: random.Random) -> bytes:
    """A message of batches with changed bytes, and the right lengths and checksum."""
    type_, flags, rest, channel, fields_bytes, _ = _FRONT.unpack_from(data)
    begin = _FRONT.size + _CRC_BYTES
    fields, body = data[begin : begin + fields_bytes], data[begin + fields_bytes :]
    if rng.random() < 0.5:
        fields = rng.choice(_CHANGES)(fields, [fields, body], rng)
    else:
        body = rng.choice(_CHANGES)(body, [fields, body], rng)
    if rng.random() < 0.1:
        type_ = rng.randrange(40)
    front = _FRONT.pack(type_, flags, rest, channel, len(fields), len(body))
    crc = crc32c(fields, crc32c(front))  # A batch has checksums of its own.
    return b"".join((front, crc.to_bytes(_CRC_BYTES, "little"), fields, body))


# Changes of bytes.

Change = Callable[[bytes, Sequence[bytes], random.Random], bytes]


def _flip(data: bytes, _others: Sequence[bytes], rng: random.Random) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _insert(data: bytes, _others: Sequence[bytes], rng: random.Random) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + rng.choice(_ODD_BYTES) + data[at:]


def _drop(data: bytes, _others: Sequence[bytes], rng: random.Random) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + data[at + rng.randint(1, _PIECE_BYTES_MAX) :]


def _cut(data: bytes, _others: Sequence[bytes], rng: random.Random) -> bytes:
    return data[: rng.randint(0, len(data))]


def _repeat(data: bytes, _others: Sequence[bytes], rng: random.Random) -> bytes:
    at = rng.randint(0, len(data))
    piece = data[at : at + rng.randint(1, _PIECE_BYTES_MAX)]
    return data[:at] + piece * rng.randint(2, 50) + data[at:]


def _splice(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    other = rng.choice(others)
    return data[: rng.randint(0, len(data))] + other[rng.randint(0, len(other)) :]


_CHANGES: tuple[Change, ...] = (_flip, _insert, _drop, _cut, _repeat, _splice)


# The messages that are changed.

_DOCUMENTS: tuple[dict[str, object], ...] = (
    {"type": "append", "id": 1, "value": "a record"},
    {"value": "v", "key": "k", "headers": {"a": "b"}, "transaction_id": 7},
    {"id": "x", "writer": "till-7", "seq": 0, "value": "numbered"},
    {"id": 2, "records": [{"value": "a"}, {"value": "b", "key": "k"}], "ack": "received"},
    {"value": "v", "expect_sequence": 3, "timeout_s": 1},
    {"type": "credit", "records": 10, "bytes": 1000},
    {"type": "commit", "position": "1-0-0"},
)


def _messages(
    stream: str,
) -> list[SendBatch | OpenChannel | CloseChannel | DescribeRequest | AskStanding]:
    sealed = [
        seal_batch([b"v"] * count, created_us=1, transaction_ids=ids)
        for count, ids in ((1, None), (3, None), (2, [1, 2]))
    ]
    stamp = WriterStamp(b"w", 1, BatchSeqs(0, 3), 1)
    terms = [
        BatchTerms(
            writer=writer,
            seq_before=None,
            expect_sequence=expected,
            transaction_first=None,
            transaction_last=None,
        )
        for writer, expected in ((None, None), (None, 3), (stamp, None))
    ]
    return [
        OpenChannel(1, stream, "life", 0),
        DescribeRequest(1, stream),
        AskStanding(1, 2, b"till-7", WriterFence(1, 2)),
        CloseChannel(1),
        *(SendBatch(1, number, terms[number], sealed[number]) for number in range(3)),
    ]


def _requests(append: str) -> list[bytes]:
    lines = b'{"value":"a"}\n{"value":"b","key":"k"}\n'
    head = b"POST %s HTTP/1.1\r\nhost: proxy\r\ncontent-type: application/x-ndjson\r\n"
    post = head % append.encode()
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(lines), lines)
    read = append.replace("/append", "/read?from=last:3").encode()
    return [
        post + b"content-length: %d\r\n\r\n%s" % (len(lines), lines),
        post + b"transfer-encoding: chunked\r\n\r\n" + chunks,
        *(
            b"GET %s HTTP/1.1\r\nhost: proxy\r\n\r\n" % path
            for path in (b"/livez", b"/metrics", b"/v1/latency", b"/openapi.json", read)
        ),
        b"OPTIONS / HTTP/1.1\r\nhost: proxy\r\norigin: http://a\r\n\r\n",
        b"GET /v1/owner/drill/loaded?partition=0 HTTP/1.1\r\nhost: proxy\r\n\r\n",
    ]
