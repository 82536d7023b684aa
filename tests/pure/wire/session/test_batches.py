"""Binary messages of `/v1/session`: each comes back as it was, and damage is found."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.batch_seqs import BatchSeqs, RisingSeqs
from geolog.protocol.generations import Generation
from geolog.protocol.ids import DLSN
from geolog.protocol.writer_standing import WriterFence, WriterStanding
from geolog.wire.batch import SealedBatch, seal_batch
from geolog.wire.batch_terms import BatchTerms
from geolog.wire.entry import WriterStamp
from geolog.wire.session.batches import (
    BadBatchError,
    BatchesMessage,
    decode_from_client,
    decode_from_proxy,
    encode_batches,
)
from geolog.wire.session.channel_messages import (
    AskStanding,
    BatchCompared,
    BatchPlaced,
    BatchRefused,
    ChannelClosed,
    ChannelOpened,
    CloseChannel,
    DescribeRequest,
    FirstPlaceTold,
    OpenChannel,
    RequestRefused,
    SendBatch,
    SessionGoaway,
    StandingTold,
    StreamTold,
    ToldError,
)
from geolog.wire.session.told_errors import error_of, told
from topology.errors import (
    ConflictError,
    DamagedBytesError,
    FencedError,
    GeologError,
    NoSuchStreamError,
    SealedError,
)

ERROR = ToldError(code=409, error="no", outcome="unknown", kind="ConflictError")


def seqs(*numbers: int) -> BatchSeqs:
    rising = RisingSeqs(numbers[0])
    for number in numbers[1:]:
        rising.add(number)
    return rising.gathered()


def a_batch(count: int = 1) -> SealedBatch:
    return seal_batch([b"v"] * count, created_us=1)


STANDING = WriterStanding(
    home_epoch=1,
    epoch=3,
    seq_highest=9,
    generations=(Generation(1, 4),),
    remembered=(seqs(1, 2, 5), seqs(9)),
)

FROM_CLIENT = [
    DescribeRequest(1, "shop/orders"),
    OpenChannel(2, "shop/orders", "life.1", 3),
    OpenChannel(2, "shop/orders", "life.1", 3, ("h:1", "[::1]:2")),
    AskStanding(2, 7, "tillé".encode(), WriterFence(4, 1 << 127)),
    AskStanding(2, 7, b"till", None),
    CloseChannel(2),
]
FROM_PROXY = [
    StreamTold(request=1, life="life.1", partitions=4, home_epoch=1),
    ChannelOpened(channel=2, epoch=5, home_epoch=1, transaction_id=None, credit_bytes=10),
    StandingTold(2, 7, STANDING),
    RequestRefused(2, 7, ERROR, 6),
    BatchPlaced(2, 0, 3, 4, 5, 6),
    BatchCompared(2, 1, (FirstPlaceTold(DLSN(1, 2, 3), 4), ERROR)),
    BatchRefused(2, 2, ERROR),
    ChannelClosed(channel=2, error=ERROR, location="h:1", answered_count=1, taken_count=2),
    SessionGoaway(),
]


@pytest.mark.parametrize("message", FROM_CLIENT, ids=lambda one: type(one).__name__)
def test_a_clients_message_comes_back_as_it_was(message: BatchesMessage) -> None:
    assert decode_from_client(encode_batches(message)) == message


@pytest.mark.parametrize("message", FROM_PROXY, ids=lambda one: type(one).__name__)
def test_a_proxys_message_comes_back_as_it_was(message: BatchesMessage) -> None:
    assert decode_from_proxy(encode_batches(message)) == message


@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**40),
    st.none() | st.integers(0, 2**40),
    st.none() | st.integers(0, 2**40),
    st.none() | st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)),
    st.none() | st.lists(st.integers(0, 2**40), min_size=1, max_size=5, unique=True),
    st.booleans(),
)
def test_a_batch_comes_back_with_its_terms(
    channel: int,
    number: int,
    seq_before: int | None,
    expected: int | None,
    transactions: tuple[int, int] | None,
    numbers: list[int] | None,
    is_local_only: bool,  # noqa: FBT001 - drawn.
) -> None:
    stamp = None
    if numbers is not None:
        stamp = WriterStamp(b"till-7", 3, seqs(*sorted(numbers)), 4)
    terms = BatchTerms(
        writer=stamp,
        seq_before=seq_before,
        is_local_only=is_local_only,
        expect_sequence=expected,
        transaction_first=None if transactions is None else transactions[0],
        transaction_last=None if transactions is None else transactions[1],
    )
    sent = SendBatch(channel, number, terms, a_batch(len(numbers or [0])))

    found = decode_from_client(encode_batches(sent))

    assert isinstance(found, SendBatch)
    assert (found.channel, found.number, found.terms) == (channel, number, terms)
    assert bytes(found.sealed.data) == bytes(sent.sealed.data)


def test_any_flipped_bit_of_a_message_is_found() -> None:
    stamp = WriterStamp(b"till-7", 3, seqs(4), 1)
    whole = encode_batches(SendBatch(1, 0, BatchTerms(writer=stamp), a_batch()))

    for at in range(len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << at % 8
        with pytest.raises((DamagedBytesError, BadBatchError)):
            decode_from_client(bytes(flipped))


def test_a_message_cut_anywhere_is_refused() -> None:
    whole = encode_batches(SendBatch(1, 0, BatchTerms(), a_batch()))

    for length in range(len(whole)):
        with pytest.raises((DamagedBytesError, BadBatchError)):
            decode_from_client(whole[:length])


@given(st.binary(max_size=80))
def test_no_bytes_do_anything_but_decode_or_be_refused(data: bytes) -> None:
    with suppress(DamagedBytesError, BadBatchError):
        decode_from_client(data)


def test_seqs_must_be_as_many_as_the_records() -> None:
    terms = BatchTerms(writer=WriterStamp(b"till-7", 3, seqs(1, 2), 1))

    with pytest.raises(BadBatchError, match="2 seqs for 1 records"):
        decode_from_client(encode_batches(SendBatch(1, 0, terms, a_batch())))


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (OpenChannel(-1, "shop/orders", "life.1", 3), "out of range"),
        (OpenChannel(1 << 32, "shop/orders", "life.1", 3), "out of range"),
        (DescribeRequest(1 << 63, "shop/orders"), "out of range"),
        (AskStanding(1, 1, b"", None), "a writer id has 0 bytes"),
        (AskStanding(1, 1, b"x" * 256, None), "a writer id has 256 bytes"),
        (AskStanding(1, 1, b"\xff", None), "is not UTF-8"),
        (AskStanding(1, 1, b"till", WriterFence(0, 1)), "is impossible"),
        (AskStanding(1, 1, b"till", WriterFence(1 << 32, 1)), "is impossible"),
        (AskStanding(1, 1, b"till", WriterFence(1, 0)), "is impossible"),
        (AskStanding(1, 1, b"till", WriterFence(1, 1 << 128)), "is impossible"),
        (OpenChannel("1", "shop/orders", "life.1", 3), "not of type int"),  # type: ignore[arg-type]
        (OpenChannel(1, 2, "life.1", 3), "not of type str"),  # type: ignore[arg-type]
    ],
)
def test_impossible_fields_are_refused(message: BatchesMessage, told: str) -> None:
    with pytest.raises(DamagedBytesError, match=told):
        decode_from_client(encode_batches(message))


def test_a_message_of_the_other_side_is_refused() -> None:
    with pytest.raises(DamagedBytesError, match="a proxy's message"):
        decode_from_client(encode_batches(SessionGoaway()))
    with pytest.raises(DamagedBytesError, match="a client's message"):
        decode_from_proxy(encode_batches(CloseChannel(1)))


@pytest.mark.parametrize(
    "error", [ConflictError("a"), FencedError("b"), NoSuchStreamError("c"), SealedError("d")]
)
def test_an_error_arrives_as_the_same_kind(error: GeologError) -> None:
    error.outcome = "unknown"

    found = error_of(told(error))

    assert type(found) is type(error)
    assert (str(found), found.outcome) == (str(error), "unknown")
