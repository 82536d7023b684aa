"""The messages in frames: each comes back as it was, and nothing else comes back as one."""

from typing import get_args

import attrs
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.messages import (
    Add,
    AddRefused,
    AddsSynced,
    Answer,
    EntryAnswer,
    Fence,
    Fenced,
    Hello,
    HelloAnswer,
    LedgerOpened,
    Message,
    OpenLedger,
    Probe,
    ProbeAnswer,
    PushLac,
    Read,
    ReadAnswer,
    Reason,
    Refused,
    Status,
    StatusRequest,
)
from geolog.wire.codec import FrameType, decode, encode, encode_add_front
from geolog.wire.frame import Frame, FrameReader
from geolog.wire.limits import (
    ENTRIES_PER_ANSWER_MAX,
    ENTRY_BYTES_MAX,
    INT64_MAX,
    TEXT_BYTES_MAX,
)
from tests.pure.wire.samples import (
    INSTANCE,
    add_of,
    batch_of_values,
    entry_of,
    frame_bytes,
    one_of_each_message,
)
from topology.errors import DamagedBytesError, InvalidArgumentError, TooLargeError

naturals = st.integers(0, INT64_MAX)
u32 = st.integers(0, 0xFFFF_FFFF)
positions = st.integers(-1, INT64_MAX).map(EntryId)
ledgers = naturals.map(LedgerId)
entries = naturals.map(EntryId)
epochs = naturals.map(Epoch)
counts = st.integers(0, ENTRIES_PER_ANSWER_MAX)
instances = st.binary(min_size=16, max_size=16).map(lambda data: InstanceId(data.hex()))
texts = st.text(max_size=TEXT_BYTES_MAX // 4)
reasons = st.sampled_from(Reason)
answers = st.sampled_from(Answer)
entry_answers = st.binary(min_size=1, max_size=50).map(
    lambda body: EntryAnswer(Answer.HAVE, body)
) | answers.filter(lambda answer: answer is not Answer.HAVE).map(EntryAnswer)
adds = st.builds(
    lambda body, **fields: Add(body=body, body_crc=crc32c(body), **fields),
    body=st.binary(min_size=1, max_size=100),
    ordinal=naturals,
    ledger=ledgers,
    entry=entries,
    epoch=epochs,
    lac=positions,
    is_recovery=st.booleans(),
    instance=instances,
)

messages: st.SearchStrategy[Message] = st.one_of(
    adds,
    st.builds(Hello, naturals, u32, texts),
    st.builds(HelloAnswer, naturals, u32, instances, texts, naturals),
    st.builds(Refused, naturals, reasons, epochs, texts),
    st.builds(AddsSynced, naturals),
    st.builds(AddRefused, naturals, reasons, epochs),
    st.builds(OpenLedger, naturals, ledgers, epochs, instances),
    st.builds(LedgerOpened, naturals),
    st.builds(Fence, naturals, ledgers, epochs, instances),
    st.builds(Fenced, naturals, positions, positions),
    st.builds(Read, naturals, ledgers, entries, counts, u32, epochs, instances),
    st.builds(
        ReadAnswer,
        naturals,
        positions,
        entries,
        st.lists(entry_answers, min_size=1, max_size=10).map(tuple),
    ),
    st.builds(Probe, naturals, ledgers, entries, counts, instances),
    st.builds(
        ProbeAnswer,
        naturals,
        positions,
        positions,
        st.booleans(),
        epochs,
        st.lists(answers, max_size=20).map(tuple),
    ),
    st.builds(PushLac, ledgers, epochs, positions, instances),
    st.builds(StatusRequest, naturals),
    st.builds(Status, naturals, st.text(max_size=100)),
)


def frame_of(message: Message) -> Frame:
    data = frame_bytes(message)
    reader = FrameReader()
    reader.buffer()[: len(data)] = data
    reader.received(len(data))
    (frame,) = reader.frames()
    return frame


@given(messages)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    assert decode(frame_of(message)) == message


def test_every_message_has_a_type_and_a_sample() -> None:
    samples = one_of_each_message()

    assert {type(sample) for sample in samples} == set(get_args(Message))
    assert [frame_of(sample).type for sample in samples] == [int(one) for one in FrameType]
    assert [decode(frame_of(sample)) for sample in samples] == samples


def test_the_same_entry_serves_every_node() -> None:
    entry = entry_of(batch_of_values(b"a"))
    other_node = InstanceId("f" * 32)

    front = encode_add_front(
        ordinal=9,
        ledger=LedgerId(12),
        entry=EntryId(4),
        epoch=Epoch(2),
        lac=EntryId(3),
        is_recovery=True,
        instance=other_node,
        body_bytes=entry.length_bytes,
        body_crc=entry.crc,
    )

    whole = attrs.evolve(add_of(entry), ordinal=9, is_recovery=True, instance=other_node)
    assert b"".join([front, *entry.buffers]) == frame_bytes(whole)


def test_bodies_are_not_copied() -> None:
    body = b"the bytes of an entry"

    buffers = encode(ReadAnswer(1, EntryId(0), EntryId(0), (EntryAnswer(Answer.HAVE, body),)))

    assert buffers[1] is body


@pytest.mark.parametrize("sample", one_of_each_message(), ids=lambda one: type(one).__name__)
def test_fields_of_another_length_are_no_message(sample: Message) -> None:
    frame = frame_of(sample)
    whole = bytes(frame.fields)

    for length in range(len(whole)):
        with pytest.raises(DamagedBytesError):
            decode(frame._replace(fields=memoryview(whole[:length])))
    for tail in (b"\x00", b"\x01", b"\xff" * 5):
        with pytest.raises(DamagedBytesError):
            decode(frame._replace(fields=memoryview(whole + tail)))


@pytest.mark.parametrize("sample", one_of_each_message(), ids=lambda one: type(one).__name__)
def test_a_body_where_none_belongs_is_no_message(sample: Message) -> None:
    frame = frame_of(sample)
    longer = frame._replace(body=memoryview(bytes(frame.body) + b"\x01"))

    if isinstance(sample, Add | Status | ProbeAnswer):  # Of any length.
        assert decode(longer) != sample
    else:
        with pytest.raises(DamagedBytesError):
            decode(longer)


@given(
    st.integers(0, 20),
    st.binary(max_size=80),
    st.binary(max_size=40),
)
def test_arbitrary_bytes_are_a_message_or_damage(
    type_: int, fields: bytes, body: bytes
) -> None:
    frame = Frame(type_, memoryview(fields), memoryview(body), crc32c(body))

    try:
        message = decode(frame)
    except DamagedBytesError:
        return
    assert frame_bytes(message)[20:] == fields + body


@given(st.data())
def test_fields_of_the_right_length_are_a_message_or_damage(data: st.DataObject) -> None:
    frame = frame_of(data.draw(st.sampled_from(one_of_each_message())))
    fields = bytearray(frame.fields)
    for _ in range(data.draw(st.integers(1, 4))):
        fields[data.draw(st.integers(0, len(fields) - 1))] = data.draw(st.integers(0, 255))

    try:
        message = decode(frame._replace(fields=memoryview(fields)))
    except DamagedBytesError:
        return
    assert frame_bytes(message)[20 : 20 + len(fields)] == fields


READ_ANSWER = ReadAnswer(1, EntryId(0), EntryId(0), (EntryAnswer(Answer.HAVE, b"body"),))
READ = Read(1, LedgerId(1), EntryId(0), 1, 1, Epoch(0), INSTANCE)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (attrs.evolve(READ, ledger=LedgerId(-1)), InvalidArgumentError),
        (attrs.evolve(READ, request=1 << 64), InvalidArgumentError),
        (attrs.evolve(READ, bytes_max=1 << 32), InvalidArgumentError),
        (attrs.evolve(READ, count_max=ENTRIES_PER_ANSWER_MAX + 1), InvalidArgumentError),
        (attrs.evolve(READ, instance=InstanceId("n1")), InvalidArgumentError),
        (attrs.evolve(READ, instance=InstanceId("F" * 32)), InvalidArgumentError),
        (Hello(1, 1, "\ud800"), InvalidArgumentError),
        (Hello(1, 1, "ä" * TEXT_BYTES_MAX), TooLargeError),
        (Status(1, " " * (1 << 21)), TooLargeError),
        (attrs.evolve(READ_ANSWER, entries=()), InvalidArgumentError),
        (
            attrs.evolve(
                READ_ANSWER,
                entries=(EntryAnswer(Answer.ABSENT),) * (ENTRIES_PER_ANSWER_MAX + 1),
            ),
            InvalidArgumentError,
        ),
        (
            attrs.evolve(
                READ_ANSWER,
                entries=(EntryAnswer(Answer.HAVE, bytes(ENTRY_BYTES_MAX)),) * 2,
            ),
            TooLargeError,
        ),
    ],
)
def test_what_cannot_be_sent_is_refused(
    message: Message, error: type[InvalidArgumentError | TooLargeError]
) -> None:
    with pytest.raises(error):
        encode(message)


def test_an_add_of_too_large_an_entry_is_refused_on_both_sides() -> None:
    body = bytes(ENTRY_BYTES_MAX + 1)
    add = attrs.evolve(add_of(entry_of(batch_of_values(b"a"))), body=body, body_crc=0)
    frame = frame_of(attrs.evolve(add, body=b"a", body_crc=crc32c(b"a")))

    with pytest.raises(TooLargeError):
        encode(add)
    with pytest.raises(DamagedBytesError):
        decode(frame._replace(body=memoryview(body)))


def test_the_message_of_a_refusal_is_cut_to_fit() -> None:
    refused = Refused(1, Reason.BUSY, Epoch(0), "ä" * TEXT_BYTES_MAX)

    decoded = decode(frame_of(refused))

    assert decoded == attrs.evolve(refused, message="ä" * (TEXT_BYTES_MAX // 2))
