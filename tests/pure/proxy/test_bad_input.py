"""Bad input, item by item: each gets its code and text, and nothing of it reaches the log.

Sessions of `geolog.v1.json` and `geolog.v1.msgpack` run the same list; `geolog.v1.batches` has
its own, in which batches are sealed wrongly. After each item a good append is still taken,
unless the item says that the session ends.
"""

import json
from urllib.parse import quote

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.protocol.batch_seqs import BatchSeqs
from geolog.transport.seam import ConnectionFailedError
from geolog.transport.websocket import HANDSHAKE_S
from geolog.wire.batch import SealedBatch, seal_batch
from geolog.wire.batch_terms import NO_TERMS, BatchTerms
from geolog.wire.entry import WriterStamp
from geolog.wire.limits import BATCH_BYTES_MAX, RECORD_BYTES_MAX
from geolog.wire.session.batches import SUBPROTOCOL_BATCHES, encode_batches
from geolog.wire.session.channel_messages import (
    BatchPlaced,
    BatchRefused,
    ChannelClosed,
    DescribeRequest,
    OpenChannel,
    RequestRefused,
    SendBatch,
)
from geolog.wire.session.frames import FRAME_CODECS, MSGPACK_FRAMES
from geolog.wire.session.paths import SESSION_PATH
from tests.pure.proxy import proxies
from tests.pure.proxy.batches_client import (
    CHANNEL,
    body_of,
    compressed,
    open_batches,
    sealed_as,
)
from tests.pure.proxy.proxies import Frame, OpenSession, SessionClient, open_proxy
from tests.pure.whole.clusters import STREAM, open_world, values_of

APPEND = f"/v1/streams/{STREAM}/append"
READ = f"/v1/streams/{STREAM}/read"

GOOD = seal_batch([b"good"], created_us=1)


def check_error(name: str, told: Frame, code: int, text: str) -> None:
    """The frame tells this error, and does not repeat all of what was sent."""
    assert (told["type"], told["code"]) == ("error", code), (name, told)
    assert text in str(told["error"]), (name, told)
    assert len(str(told["error"])) < 1000, name


def check_refusal(name: str, told: object, code: int, text: str) -> None:
    """The batch was refused: nothing of it is in the log."""
    assert isinstance(told, BatchRefused), (name, told)
    assert told.error.code == code, (name, told)
    assert text in told.error.error, (name, told)


def closed_with(client: SessionClient) -> int | None:
    """The code with which the proxy closed the session."""
    assert client.closed is not None
    return client.closed.close_code


# Unknown streams, and bad names.

BAD_STREAMS = {
    "unknown": ("shop/orders2", 404, "did you mean 'shop/orders'?"),
    "unknown, and like none": ("shop/zzz", 404, "stream 'shop/zzz' does not exist"),
    "in an unknown namespace": ("stop/orders", 404, "stream 'stop/orders' does not exist"),
    "a path": ("shop/../x", 400, "is not named NAMESPACE/NAME"),
    "two dots": ("shop/..", 400, "'..' is not a name"),
    "NUL": ("shop/ord\0ers", 400, r"'ord\x00ers' is not a name"),
    "10 kB": (f"shop/{'x' * 10_000}", 400, "(10000 characters) is not a name"),
    "a homoglyph": ("shop/\u043erders", 400, "is not a name"),
    "capitals": ("shop/Orders", 400, "did you mean 'orders'?"),
    "no name": ("shop/", 400, ""),
}


async def test_a_bad_stream_in_a_path_ends_the_session(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
    ):
        for name, (stream, code, text) in BAD_STREAMS.items():
            namespace, _, rest = stream.partition("/")
            for path in ("append", "read"):
                target = f"/v1/streams/{namespace}/{quote(rest, safe='')}/{path}"
                async with open_session(world.cluster, proxy, target) as client:
                    (told,) = await client.receive_all()
                check_error(name, told, code, text)
                assert closed_with(client) == 4000 + code, name
        assert await world.log.list_streams() == [STREAM]


async def test_a_bad_stream_of_a_channel_leaves_the_session_open(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_batches(world.cluster, proxy, STREAM) as client,
    ):
        for name, (stream, code, text) in BAD_STREAMS.items():
            described = await client.ask(DescribeRequest(7, stream))
            opened = await client.ask(OpenChannel(7, stream, "life", 0))

            assert isinstance(described, RequestRefused), name
            assert isinstance(opened, ChannelClosed), name
            for error in (described.error, opened.error):
                assert (error.code, text in error.error) == (code, True), (name, error)
        await client.send_batch(GOOD)
        assert isinstance(await client.receive(), BatchPlaced)
        assert await values_of(world.log) == [b"good"]


# Paths and subprotocols.


BAD_TARGETS = {
    "/elsewhere": (400, "no such path"),
    f"/{'x' * 10_000}": (400, "no such path"),
    f"{APPEND}?partition=5": (400, "has no partition 5"),
    f"{APPEND}?partition=-1": (400, "partition='-1' is not a whole number"),
    f"{APPEND}?partitoin=1": (400, "did you mean 'partition'?"),
    f"{APPEND}?writer=": (400, "must have 1 to 255 bytes"),
    f"{APPEND}?writer={'w' * 10_000}": (400, "must have 1 to 255 bytes"),
    f"{APPEND}?redirect=never": (400, "neither follow nor forward"),
    f"{READ}?credit=-1": (400, "credit='-1' is not a whole number"),
    f"{READ}?credit=many": (400, "credit='many' is not a whole number"),
    f"{READ}?count=1e3": (400, "count='1e3' is not a whole number"),
    f"{READ}?from=never": (400, "never"),
    f"{READ}?from=9-9-9%00": (400, "9-9-9"),
    SESSION_PATH: (400, "/v1/session needs subprotocol geolog.v1.batches"),
}


async def test_an_impossible_path_is_told_in_a_frame_before_the_close(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
    ):
        for target, (code, text) in BAD_TARGETS.items():
            async with open_session(world.cluster, proxy, target) as client:
                *_, told = await client.receive_all()
            check_error(target[:60], told, code, text)
            assert closed_with(client) == 4000 + code, target[:60]


async def test_a_subprotocol_that_nobody_knows_is_refused_with_those_that_there_are(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
    ):
        with pytest.raises(ConnectionFailedError) as refused:
            async with proxies.open_session(
                world.cluster, proxy, APPEND, subprotocols=("mqtt", "geolog.v2.json")
            ):
                pass

    assert "status 400" in str(refused.value)
    for one in (*FRAME_CODECS, SUBPROTOCOL_BATCHES):
        assert one in str(refused.value)


async def test_batches_have_a_path_of_their_own(autojump_clock: MockClock) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        proxies.open_session(
            world.cluster, proxy, APPEND, subprotocols=(SUBPROTOCOL_BATCHES,)
        ) as client,
    ):
        told = json.loads(str(await client.socket.receive()))

    assert (told["code"], told["outcome"]) == (400, "refused")
    assert "/v1/session needs subprotocol geolog.v1.batches" in told["error"]


NO_HANDSHAKES = {
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    "no upgrade": b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "bytes in the path": b"GET /v1/streams/\xff/x/append HTTP/1.1\r\nHost: h\r\n\r\n",
    "POST": b"POST /v1/session HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
    "zeros": bytes(100_000),
}


async def test_what_is_no_handshake_ends_its_connection_alone(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, APPEND) as client,
    ):
        await client.receive()
        for sent in NO_HANDSHAKES.values():
            stream = await world.cluster.network.transport("stranger").connect(proxy.address)
            await stream.send([sent])
            await trio.sleep(2 * HANDSHAKE_S)
            stream.close()
        assert proxy.endpoint.sessions_count == 1
        assert (await client.ask(value="still served"))["sequence"] == 0


# Frames of JSON and MessagePack.


@attrs.frozen
class BadFrame:
    """A frame that is refused, and the answer to it."""

    document: dict[str, object]
    code: int
    text: str
    id: object = "bad"


BAD_FRAMES = {
    "no value": BadFrame({"id": "bad"}, 400, 'no "type" and no "value"'),
    "an unknown type": BadFrame({"id": "bad", "type": "apend"}, 400, "did you mean 'append'?"),
    "an unknown key": BadFrame(
        {"id": "bad", "value": "v", "hedaers": {}}, 400, "did you mean 'headers'?"
    ),
    "an id of 10 kB": BadFrame(
        {"id": "i" * 10_000, "value": "v"}, 400, "id has 10000 characters", id=None
    ),
    "a value that is a number": BadFrame({"id": "bad", "value": 1}, 400, "is not a string"),
    "a value over the limit": BadFrame(
        {"id": "bad", "value": "v" * (RECORD_BYTES_MAX + 1)}, 413, "the limit is 1048576"
    ),
    "a list with one bad record": BadFrame(
        {"id": "bad", "records": [{"value": "a"}, {"key": "b"}]}, 400, "record 1 has neither"
    ),
    "a list over the limit": BadFrame(
        {"id": "bad", "records": [{"value": ""}] * 10_001}, 400, "a list of 1 to 10000"
    ),
    "a list with one record over the limit": BadFrame(
        {"id": "bad", "records": [{"value": "a"}, {"value": "v" * (RECORD_BYTES_MAX + 1)}]},
        413,
        "the limit is 1048576",
    ),
    "a negative transaction id": BadFrame(
        {"id": "bad", "value": "v", "transaction_id": -1}, 400, "out of range"
    ),
    "a transaction id that goes back": BadFrame(
        {"id": "bad", "value": "v", "transaction_id": 4}, 409, "transaction id 4 is too low"
    ),
    "a seq without a writer": BadFrame({"id": "bad", "value": "v", "seq": 1}, 400, "a writer"),
    "a seq of 64 bits": BadFrame(
        {"id": "bad", "value": "v", "seq": 1 << 63, "writer": "w"}, 400, "out of range"
    ),
    "seqs beyond 63 bits": BadFrame(
        {
            "id": "bad",
            "records": [{"value": "v"}] * 2,
            "seq": (1 << 63) - 1,
            "writer": "w",
        },
        400,
        "out of range",
    ),
    "a writer without a name": BadFrame(
        {"id": "bad", "value": "v", "writer": ""}, 400, "must have 1 to 255 bytes"
    ),
    "a writer of 10 kB": BadFrame(
        {"id": "bad", "value": "v", "writer": "w" * 10_000}, 400, "must have 1 to 255 bytes"
    ),
    "an unexpected sequence": BadFrame(
        {"id": "bad", "value": "v", "expect_sequence": 7}, 409, "expects sequence 7"
    ),
    "an unknown ack level": BadFrame(
        {"id": "bad", "value": "v", "ack": "never"}, 400, "neither durable nor received"
    ),
    "a credit on an append session": BadFrame(
        {"type": "credit", "records": 1}, 400, "credits and commits are for reads", id=None
    ),
    "a credit of nothing": BadFrame(
        {"type": "credit", "records": 0}, 400, 'needs "records", 1 or more', id=None
    ),
    "a negative credit": BadFrame(
        {"type": "credit", "records": -5}, 400, "out of range", id=None
    ),
}


async def test_a_bad_frame_is_refused_and_the_session_goes_on(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, APPEND) as client,
    ):
        await client.receive()
        await client.ask(value="before", transaction_id=5)
        for name, bad in BAD_FRAMES.items():
            told = await client.ask(**bad.document)
            check_error(name, told, bad.code, bad.text)
            assert (told["outcome"], told.get("id")) == ("refused", bad.id), name
        after = await client.ask(value="after")
        assert after["sequence"] == 1
        assert await values_of(world.log) == [b"before", b"after"]


async def test_a_list_that_is_refused_in_part_says_how_much_of_it_is_in_the_log(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, APPEND) as client,
    ):
        await client.receive()
        told = await client.ask(
            records=[{"value": "a", "transaction_id": 9}, {"value": "b", "transaction_id": 8}]
        )
        read = await values_of(world.log)

    assert (told["code"], told["outcome"]) == (409, "unknown")
    assert "transaction id 8 is too low" in str(told["error"])
    assert "1 of 2 records were appended" in str(told["error"])
    assert read == [b"a"]


@pytest.mark.parametrize("document", [{"type": "credit", "records": 0}, {"value": "v"}])
async def test_a_bad_frame_ends_a_session_that_reads(
    autojump_clock: MockClock, open_session: OpenSession, document: dict[str, object]
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, f"{READ}?follow=1") as client,
    ):
        await client.receive()
        await client.send(**document)
        (told,) = await client.receive_all()

    check_error("a bad frame", told, 400, "")
    assert closed_with(client) == 4400


async def test_an_oversized_frame_ends_the_session(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(
            world.cluster, "proxy-1", "us-east", frame_bytes_max=RECORD_BYTES_MAX
        ) as proxy,
        open_session(world.cluster, proxy, APPEND) as client,
    ):
        await client.receive()
        await client.send(id=1, records=[{"value": "v" * 600_000}] * 2)
        told = await client.receive_all()
        read = await values_of(world.log)

    assert (told, read, closed_with(client)) == ([], [], 1009)


# Batches that are sealed wrongly.

BODY = body_of(b"bad", b"bad")
FAR_TOO_LONG = body_of(*[bytes(RECORD_BYTES_MAX)] * 5)

BAD_BATCHES: dict[str, tuple[SealedBatch, int, str]] = {
    "no batch": (SealedBatch(b"", 0, 0, 0), 400, "truncated to 0 bytes"),
    "cut in its header": (SealedBatch(b"GLBA", 0, 0, 0), 400, "truncated to 4 bytes"),
    "header checksum": (sealed_as(BODY, count=2, header_crc=1), 400, "does not match"),
    "body checksum": (sealed_as(BODY, count=2, body_crc=1), 400, "does not match"),
    "unknown version": (sealed_as(BODY, count=2, version=9), 400, "unknown version 9"),
    "unknown codec": (sealed_as(BODY, count=2, codec=9), 400, "unknown codec 9"),
    "unknown columns": (sealed_as(BODY, count=2, columns=0x80), 400, "flags 0x80"),
    "columns that are not there": (sealed_as(BODY, count=2, columns=1), 400, "a column ends"),
    "reserved bytes": (sealed_as(BODY, count=2, reserved=1), 400, "unknown codec"),
    "too few records": (sealed_as(BODY, count=1), 400, "column"),
    "too many records": (sealed_as(BODY, count=3), 400, "column"),
    "no records": (sealed_as(BODY, count=0), 400, "0 records do not fit"),
    "2**32 records": (sealed_as(BODY, count=(1 << 32) - 1), 400, "records do not fit"),
    "a shorter body": (sealed_as(BODY[:-1], count=2, stored=len(BODY)), 400, "bytes"),
    "a longer body": (sealed_as(BODY + b"x", count=2, stored=len(BODY)), 400, "bytes"),
    "random columns": (sealed_as(b"\xff" * 200, count=2), 400, "of a body"),
    "not an LZ4 block": (
        sealed_as(b"\xff" * 90, count=2, codec=1, raw=len(BODY) + 100),
        400,
        "not an LZ4 block",
    ),
    "an LZ4 bomb that says so": (
        sealed_as(compressed(bytes(BATCH_BYTES_MAX + 1)), count=2, codec=1, raw=1 << 31),
        400,
        "is over the limit of 4194304",
    ),
    "an LZ4 bomb that does not say so": (
        sealed_as(compressed(FAR_TOO_LONG), count=5, codec=1, raw=BATCH_BYTES_MAX),
        400,
        "LZ4 block",
    ),
    "an LZ4 bomb over the ratio": (
        sealed_as(compressed(bytes(1000)), count=2, codec=1, raw=BATCH_BYTES_MAX),
        400,
        "cannot hold a batch of",
    ),
    "a value over the limit": (
        sealed_as(body_of(bytes(RECORD_BYTES_MAX + 1)), count=1),
        400,
        "of 1048577 bytes is over the limit of 1048576",
    ),
    "a value and a key over the limit": (
        sealed_as(body_of(bytes(RECORD_BYTES_MAX), keys=[b"key"]), count=1, columns=1),
        413,
        "1048579 bytes",
    ),
}


async def test_a_batch_that_is_sealed_wrongly_is_refused_and_the_session_goes_on(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_batches(world.cluster, proxy, STREAM) as client,
    ):
        for name, (sealed, code, text) in BAD_BATCHES.items():
            await client.send_batch(sealed)
            check_refusal(name, await client.receive(), code, text)
        await client.send_batch(GOOD)
        assert isinstance(await client.receive(), BatchPlaced)
        assert await values_of(world.log) == [b"good"]


async def test_message_pack_refuses_the_same_batches(autojump_clock: MockClock) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        proxies.open_session(
            world.cluster, proxy, APPEND, subprotocols=(MSGPACK_FRAMES.subprotocol,)
        ) as client,
    ):
        await client.receive()
        for name, (sealed, code, text) in BAD_BATCHES.items():
            told = await client.ask(id=name, batch=bytes(sealed.data))
            check_error(name, told, code, text)
            assert (told["id"], told["outcome"]) == (name, "refused")
        good = await client.ask(id="good", batch=bytes(GOOD.data))
        assert good["sequence"] == 0
        assert await values_of(world.log) == [b"good"]


def stamped(*, count: int, writer_id: bytes = b"w", epoch: int = 1) -> BatchTerms:
    return BatchTerms(writer=WriterStamp(writer_id, epoch, BatchSeqs(0, count), 1))


def with_ids(*ids: int | None) -> SealedBatch:
    return seal_batch([b"bad"] * len(ids), created_us=1, transaction_ids=ids)


BAD_TERMS: dict[str, tuple[SealedBatch, BatchTerms, int, str]] = {
    "more seqs than records": (GOOD, stamped(count=2), 400, "2 seqs for 1 records"),
    "a writer without a name": (
        GOOD,
        stamped(count=1, writer_id=b""),
        400,
        "a writer id has 0 bytes",
    ),
    "a writer that is not text": (
        GOOD,
        stamped(count=1, writer_id=b"\xff"),
        400,
        "is not UTF-8",
    ),
    "a session that never began": (
        GOOD,
        stamped(count=1),
        412,
        "does not know this session of writer 'w'",
    ),
    "an unexpected sequence": (GOOD, BatchTerms(expect_sequence=9), 409, "expects sequence 9"),
    "a transaction id that goes back": (
        with_ids(4),
        BatchTerms(transaction_first=4, transaction_last=4),
        409,
        "transaction id 4 is too low",
    ),
    "transaction ids that go back within": (
        with_ids(9, None, 8),
        BatchTerms(transaction_first=9, transaction_last=8),
        409,
        "transaction id 8 is too low: it follows 9",
    ),
    "transaction ids that the terms do not tell": (
        with_ids(4),
        NO_TERMS,
        400,
        "transaction ids 4 to 4; its terms tell None to None",
    ),
    "transaction ids that the terms make up": (
        GOOD,
        BatchTerms(transaction_first=8, transaction_last=9),
        400,
        "transaction ids None to None; its terms tell 8 to 9",
    ),
}


async def test_a_batch_with_impossible_terms_is_refused_and_the_session_goes_on(
    autojump_clock: MockClock,
) -> None:
    five = BatchTerms(transaction_first=5, transaction_last=5)
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_batches(world.cluster, proxy, STREAM) as client,
    ):
        await client.send_batch(seal_batch([b"5"], created_us=1, transaction_ids=[5]), five)
        assert isinstance(await client.receive(), BatchPlaced)
        for name, (sealed, terms, code, text) in BAD_TERMS.items():
            await client.send_batch(sealed, terms)
            check_refusal(name, await client.receive(), code, text)
        await client.send_batch(GOOD)
        assert isinstance(await client.receive(), BatchPlaced)
        assert await values_of(world.log) == [b"5", b"good"]


# Messages of batches.


def flipped(message: bytes, at: int) -> bytes:
    damaged = bytearray(message)
    damaged[at] ^= 1
    return bytes(damaged)


SEND_GOOD = encode_batches(SendBatch(CHANNEL, 0, NO_TERMS, GOOD))


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"", "cut within its header"),
        (SEND_GOOD[:10], "cut within its header"),
        (SEND_GOOD[:30], "fields up to byte"),
        (flipped(SEND_GOOD, 20), "does not match its checksum"),
        (flipped(SEND_GOOD, 0), "checksum"),
        (b"\xff" * 100, "fields up to byte"),
        ("text", "text frames are not part of geolog.v1.batches"),
    ],
)
async def test_a_message_that_cannot_be_read_ends_the_session(
    autojump_clock: MockClock, message: bytes | str, text: str
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_batches(world.cluster, proxy, STREAM) as client,
    ):
        await client.socket.send(message)
        told, close_code = await client.told_at_end()
        read = await values_of(world.log)

    assert (json.loads(told)["code"], close_code) == (400, 4400)
    assert text in json.loads(told)["error"]
    assert read == []


async def test_batches_out_of_order_end_their_channel_and_no_other(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_batches(world.cluster, proxy, STREAM) as client,
        open_batches(world.cluster, proxy, STREAM) as other,
    ):
        await client.send(SendBatch(CHANNEL, 7, NO_TERMS, GOOD))
        closed = await client.receive()
        again = await client.ask(DescribeRequest(2, STREAM))
        await other.send_batch(GOOD)
        placed = await other.receive()

    assert isinstance(closed, ChannelClosed)
    assert (closed.error.code, closed.taken_count) == (400, 0)
    assert "batch 7 on channel 1 is out of order" in closed.error.error
    assert not isinstance(again, RequestRefused)
    assert isinstance(placed, BatchPlaced)


async def test_a_channel_over_its_credit_is_closed_and_told_when_to_come_back(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", credit_bytes=1000) as proxy,
        open_batches(world.cluster, proxy, STREAM) as client,
    ):
        for _ in range(20):
            await client.send_batch(seal_batch([bytes(range(200))], created_us=1))
        answer = await client.receive()
        while isinstance(answer, BatchPlaced):
            answer = await client.receive()
        described = await client.ask(DescribeRequest(2, STREAM))

    assert isinstance(answer, ChannelClosed)
    assert (answer.error.code, answer.error.retry_after_s) == (429, 1.0)
    assert "its credit is 1000" in answer.error.error
    assert not isinstance(described, RequestRefused)


async def test_an_oversized_batch_ends_the_session(autojump_clock: MockClock) -> None:
    async with (
        open_world() as world,
        open_proxy(
            world.cluster, "proxy-1", "us-east", frame_bytes_max=RECORD_BYTES_MAX
        ) as proxy,
        open_batches(world.cluster, proxy, STREAM) as client,
    ):
        await client.send_batch(seal_batch([b"v" * 600_000] * 2, created_us=1, compress=False))
        _, close_code = await client.told_at_end()
        read = await values_of(world.log)

    assert (close_code, read) == (1009, [])
