"""Random frames and paths meet no bug in a proxy, and never stop it from serving others."""

import json
import struct
from collections.abc import Sequence
from urllib.parse import quote

import msgpack
import trio
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from geolog.protocol.batch_seqs import BatchSeqs
from geolog.protocol.writer_standing import WriterFence
from geolog.transport.message_socket import SocketClosedError
from geolog.wire.batch import seal_batch
from geolog.wire.batch_terms import BatchTerms
from geolog.wire.entry import WriterStamp
from geolog.wire.session.batches import SUBPROTOCOL_BATCHES, encode_batches
from geolog.wire.session.channel_messages import (
    AskStanding,
    CloseChannel,
    DescribeRequest,
    OpenChannel,
    SendBatch,
)
from geolog.wire.session.frames import JSON_FRAMES, MSGPACK_FRAMES
from geolog.wire.session.paths import SESSION_PATH
from tests.pure.proxy.batches_client import open_batches
from tests.pure.proxy.proxies import open_proxy, open_session
from tests.pure.whole.clusters import STREAM, open_world

APPEND = f"/v1/streams/{STREAM}/append"
READ = f"/v1/streams/{STREAM}/read?follow=1"

bounded = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])

# What almost is a message.

NUMBERS = st.sampled_from(
    [-1, 0, 1, 2, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63]
) | st.integers(0, 5)
TEXTS = st.sampled_from(["", "w", "till-7", "append", "credit", "received", "\0", "é", STREAM])
SCALARS = st.none() | st.booleans() | NUMBERS | st.floats() | TEXTS | st.text(max_size=5)
RECORDS = st.fixed_dictionaries(
    {"value": TEXTS},
    optional={
        "key": TEXTS,
        "headers": st.dictionaries(st.text(max_size=2), TEXTS, max_size=2),
        "transaction_id": NUMBERS,
    },
)
APPENDS = st.builds(
    lambda record, terms: {**record, **terms},
    RECORDS,
    st.fixed_dictionaries(
        {},
        optional={
            "id": SCALARS,
            "writer": TEXTS,
            "seq": NUMBERS,
            "ack": st.sampled_from(["durable", "received", "x"]),
            "expect_sequence": NUMBERS,
            "records": st.lists(RECORDS, max_size=3),
        },
    ),
)
ANYTHING = st.dictionaries(
    st.sampled_from(["type", "id", "value", "records", "writer", "seq", "batch", "headers"]),
    st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=2), max_leaves=3),
    max_size=4,
)
DOCUMENTS = APPENDS | ANYTHING


def wide(document: object) -> bytes:
    """The document in MessagePack; numbers that it cannot hold as text."""
    try:
        packed: bytes = msgpack.packb(document)
    except OverflowError:
        packed = msgpack.packb(json.dumps(document))
    return packed


JSON_FUZZ = DOCUMENTS.map(json.dumps) | st.text(max_size=20) | st.binary(max_size=20)
MSGPACK_FUZZ = DOCUMENTS.map(wide) | st.binary(max_size=20) | st.text(max_size=20)


def in_envelope(type_: int, channel: int, fields: bytes, body: bytes) -> bytes:
    """A message of batches whose checksum is right, whatever it holds."""
    front = struct.pack("<BBHIII", type_, 0, 0, channel, len(fields), len(body))
    return b"".join((front, crc32c(fields, crc32c(front)).to_bytes(4, "little"), fields, body))


CHANNELS = st.sampled_from([0, 1, 2])
STAMPS = st.builds(
    lambda writer_id, epoch, first, count: WriterStamp(
        writer_id, epoch, BatchSeqs(first, count), 1
    ),
    st.sampled_from([b"w", b"\xff", b""]),
    st.sampled_from([0, 1, 5]),
    st.integers(0, 3),
    st.integers(0, 3),
)
TERMS = st.builds(
    lambda stamp, before, expected, ids: BatchTerms(
        writer=stamp,
        seq_before=before,
        expect_sequence=expected,
        transaction_first=ids and ids[0],
        transaction_last=ids and ids[1],
    ),
    st.none() | STAMPS,
    st.none() | st.integers(-1, 5),
    st.none() | st.integers(-1, 5),
    st.none() | st.tuples(st.integers(-5, 5), st.integers(-5, 5)),
)
SEALED = st.builds(
    lambda count, ids: seal_batch(
        [b"v"] * count, created_us=1, transaction_ids=[ids] * count if ids else None
    ),
    st.integers(1, 3),
    st.none() | st.integers(-3, 3),
)
MESSAGES = st.one_of(
    st.builds(SendBatch, CHANNELS, st.integers(0, 2), TERMS, SEALED),
    st.builds(OpenChannel, CHANNELS, TEXTS, TEXTS, NUMBERS),
    st.builds(CloseChannel, CHANNELS),
    st.builds(DescribeRequest, st.integers(0, 3), TEXTS),
    st.builds(
        AskStanding,
        CHANNELS,
        st.integers(0, 3),
        st.sampled_from([b"w", b"till-7"]),
        st.none() | st.builds(WriterFence, st.integers(1, 3), st.integers(1, 3)),
    ),
).map(encode_batches)
FIELDS = DOCUMENTS.map(lambda one: json.dumps(one).encode()) | st.binary(max_size=80)
BATCHES_FUZZ = (
    MESSAGES
    | st.builds(
        in_envelope,
        st.sampled_from([0, 1, 2, *range(15, 29)]),
        CHANNELS,
        FIELDS,
        st.binary(max_size=60),
    )
    | st.binary(max_size=40)
)


async def survives(
    target: str, subprotocol: str, sessions: Sequence[Sequence[str | bytes]]
) -> None:
    """Send the frames of each session; then the proxy still serves, and has met no bug."""
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
    ):
        for frames in sessions:
            async with open_session(
                world.cluster, proxy, target, subprotocols=(subprotocol,)
            ) as client:
                try:
                    for frame in frames:
                        await client.socket.send(frame)
                    await trio.sleep(0.5)
                except SocketClosedError:
                    continue
        async with open_session(world.cluster, proxy, APPEND) as client:
            await client.receive()
            assert (await client.ask(value="still served"))["type"] == "ack"


def run_survives(
    target: str, subprotocol: str, sessions: Sequence[Sequence[str | bytes]]
) -> None:
    trio.run(survives, target, subprotocol, sessions, clock=MockClock(autojump_threshold=0))


@bounded
@given(
    st.sampled_from([APPEND, f"{APPEND}?writer=w", READ]),
    st.lists(st.lists(JSON_FUZZ, max_size=12), max_size=3),
)
def test_json_frames(target: str, sessions: list[list[str | bytes]]) -> None:
    run_survives(target, JSON_FRAMES.subprotocol, sessions)


@bounded
@given(
    st.sampled_from([APPEND, f"{APPEND}?writer=w", READ]),
    st.lists(st.lists(MSGPACK_FUZZ, max_size=12), max_size=3),
)
def test_message_pack_frames(target: str, sessions: list[list[str | bytes]]) -> None:
    run_survives(target, MSGPACK_FRAMES.subprotocol, sessions)


@bounded
@given(st.lists(st.lists(BATCHES_FUZZ, max_size=12), max_size=3))
def test_messages_of_batches(sessions: list[list[bytes]]) -> None:
    run_survives(SESSION_PATH, SUBPROTOCOL_BATCHES, sessions)


@bounded
@given(st.lists(BATCHES_FUZZ, max_size=20))
def test_messages_of_batches_to_a_channel_that_is_open(messages: list[bytes]) -> None:
    async def send() -> None:
        async with (
            open_world() as world,
            open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        ):
            async with open_batches(world.cluster, proxy, STREAM) as client:
                try:
                    for message in messages:
                        await client.socket.send(message)
                    await trio.sleep(0.5)
                except SocketClosedError:
                    pass
            async with open_batches(world.cluster, proxy, STREAM):
                pass

    trio.run(send, clock=MockClock(autojump_threshold=0))


NAMES = st.sampled_from(["shop", "orders", "..", "", "%", "#1", "append", "read", "v1", "\0"])
QUERIES = st.dictionaries(
    st.sampled_from(
        ["partition", "writer", "redirect", "from", "to", "count", "follow", "credit", "avoid"]
    ),
    st.sampled_from(
        ["", "0", "1", "-1", "w", "forward", "latest", "last:1", "time:-1h", "1-0-0"]
    )
    | st.text(max_size=5),
    max_size=3,
)


@bounded
@given(
    st.lists(
        st.builds(
            lambda namespace, name, end, query: (
                f"/v1/streams/{quote(namespace, safe='')}/{quote(name, safe='')}/{end}?"
                + "&".join(f"{key}={quote(value)}" for key, value in query.items())
            ),
            NAMES | st.just("shop"),
            NAMES | st.just("orders"),
            st.sampled_from(["append", "read"]),
            QUERIES,
        ),
        max_size=6,
    )
)
def test_paths(targets: list[str]) -> None:
    async def open_all() -> None:
        async with (
            open_world() as world,
            open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        ):
            for target in targets:
                async with open_session(world.cluster, proxy, target) as client:
                    with trio.move_on_after(1):
                        assert (await client.receive())["type"] in ("hello", "error")

    trio.run(open_all, clock=MockClock(autojump_threshold=0))
