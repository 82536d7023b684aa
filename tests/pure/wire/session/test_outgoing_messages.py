"""Messages that wait together share a WebSocket message, and come apart again."""

from hypothesis import given
from hypothesis import strategies as st

from geolog.wire.batch import seal_batch
from geolog.wire.batch_terms import NO_TERMS
from geolog.wire.session.batches import (
    BatchesMessage,
    decode_from_client,
    encode_batches,
    messages_of,
)
from geolog.wire.session.channel_messages import (
    BatchPlaced,
    CloseChannel,
    DescribeRequest,
    SendBatch,
)
from geolog.wire.session.outgoing_messages import JOINED_BYTES_MAX, OutgoingMessages

MESSAGES = st.one_of(
    st.builds(
        SendBatch,
        st.just(1),
        st.integers(0, 9),
        st.just(NO_TERMS),
        st.integers(0, 50).map(lambda size: seal_batch([b"v" * size], created_us=1)),
    ),
    st.builds(CloseChannel, st.integers(0, 9)),
    st.builds(DescribeRequest, st.integers(0, 9), st.just("shop/orders")),
    st.builds(BatchPlaced, st.integers(0, 9), *[st.integers(0, 9)] * 5),
)
SIZES = st.one_of(st.integers(1, 100), st.integers(JOINED_BYTES_MAX // 3, JOINED_BYTES_MAX + 1))


@given(st.lists(MESSAGES, min_size=1, max_size=20))
def test_joined_messages_come_apart_as_they_were(messages: list[BatchesMessage]) -> None:
    encoded = [encode_batches(one) for one in messages]

    assert list(messages_of(b"".join(encoded))) == encoded


@given(st.lists(MESSAGES, min_size=1, max_size=4), st.data())
def test_only_the_last_of_messages_that_were_cut_is_cut(
    messages: list[BatchesMessage], data: st.DataObject
) -> None:
    encoded = [encode_batches(one) for one in messages]
    whole = b"".join(encoded)
    cut = whole[: data.draw(st.integers(0, len(whole)))]

    *before, last = messages_of(cut)
    assert before == encoded[: len(before)]
    assert b"".join((*before, last)) == cut


@given(st.binary(max_size=200))
def test_any_bytes_come_apart_without_loss(data: bytes) -> None:
    assert b"".join(messages_of(data)) == data


@given(st.lists(st.tuples(SIZES, st.booleans()), max_size=20))
def test_messages_leave_in_order_and_together_as_far_as_they_fit(
    steps: list[tuple[int, bool]],
) -> None:
    outgoing, waiting = OutgoingMessages(), list[bytes]()
    for size, is_taken in steps:
        waiting.append(bytes(size))
        outgoing.push(waiting[-1], counted_bytes=size)
        if is_taken:
            taken, counted_bytes = outgoing.take()
            fit = [
                count
                for count in range(1, len(waiting) + 1)
                if count == 1 or sum(map(len, waiting[:count])) <= JOINED_BYTES_MAX
            ]
            assert taken == b"".join(waiting[: fit[-1]])
            assert counted_bytes == len(taken)
            waiting = waiting[fit[-1] :]
        assert len(outgoing) == len(waiting)
        assert outgoing.size_bytes == sum(map(len, waiting))


def test_a_batch_keeps_no_other_message_in_memory() -> None:
    sealed = seal_batch([b"v"], created_us=1)
    small = encode_batches(SendBatch(1, 0, NO_TERMS, sealed))
    first, *_ = messages_of(small * 100)
    found = decode_from_client(first)

    assert isinstance(found, SendBatch)
    assert isinstance(found.sealed.data, memoryview)
    assert found.sealed.data.obj is first
