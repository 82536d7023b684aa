"""The messages in frames: each decodes to itself, and nothing else decodes to one."""

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
    AddsReceived,
    AddsSynced,
    Answer,
    Cancel,
    DoubtSettled,
    EntryAnswer,
    Fence,
    Fenced,
    Follow,
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
    SettleDoubt,
    Status,
    StatusRequest,
)
from geolog.wire import layouts
from geolog.wire.codec import FrameType, decode, encode, encode_add_front, encode_adds_synced
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
    wants_received=st.booleans(),
    instance=instances,
)

messages: st.SearchStrategy[Message] = st.one_of(
    adds,
    st.builds(Hello, naturals, u32, texts),
    st.builds(HelloAnswer, naturals, u32, instances, texts, naturals),
    st.builds(Refused, naturals, reasons, epochs, texts),
    st.builds(AddsSynced, naturals),
    st.builds(AddsReceived, naturals),
    st.builds(AddRefused, naturals, reasons, epochs),
    st.builds(OpenLedger, naturals, ledgers, epochs, instances),
    st.builds(LedgerOpened, naturals),
    st.builds(Fence, naturals, ledgers, epochs, instances),
    st.builds(Fenced, naturals, positions, positions),
    st.builds(Read, naturals, ledgers, entries, counts, u32, u32, epochs, instances),
    st.builds(Follow, naturals, ledgers, entries, counts, u32, u32, instances),
    st.builds(
        ReadAnswer,
        naturals,
        positions,
        entries,
        st.lists(entry_answers, max_size=10).map(tuple),
        is_last=st.booleans(),
        is_fenced=st.booleans(),
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
    st.builds(SettleDoubt, naturals, ledgers, naturals, instances),
    st.builds(DoubtSettled, naturals),
    st.builds(Cancel, naturals),
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
        wants_received=False,
        instance=other_node,
        body_bytes=entry.length_bytes,
        body_crc=entry.crc,
    )

    whole = attrs.evolve(add_of(entry), ordinal=9, is_recovery=True, instance=other_node)
    assert b"".join([front, *entry.buffers]) == frame_bytes(whole)


def test_an_add_of_an_impossible_entry_is_refused() -> None:
    add = add_of(entry_of(batch_of_values(b"a")))

    with pytest.raises(InvalidArgumentError, match="cannot add entry -1 of ledger 12"):
        encode(attrs.evolve(add, entry=EntryId(-1)))


def test_the_fast_path_of_an_acknowledgement_gives_the_same_bytes() -> None:
    assert encode_adds_synced(17) == frame_bytes(AddsSynced(17))


def test_bodies_are_not_copied() -> None:
    body = b"the bytes of an entry"

    buffers = encode(ReadAnswer(1, EntryId(0), EntryId(0), (EntryAnswer(Answer.HAVE, body),)))

    assert buffers[1] is body


@pytest.mark.parametrize("sample", one_of_each_message(), ids=lambda one: type(one).__name__)
def test_fields_of_another_length_are_not_a_message(sample: Message) -> None:
    frame = frame_of(sample)
    whole = bytes(frame.fields)

    for length in range(len(whole)):
        with pytest.raises(DamagedBytesError):
            decode(frame._replace(fields=memoryview(whole[:length])))
    for tail in (b"\x00", b"\x01", b"\xff" * 5):
        with pytest.raises(DamagedBytesError):
            decode(frame._replace(fields=memoryview(whole + tail)))


@pytest.mark.parametrize("sample", one_of_each_message(), ids=lambda one: type(one).__name__)
def test_an_unexpected_body_is_not_a_message(sample: Message) -> None:
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


ID = bytes(16)
OVER = 1 << 63


def answer_fields(*lines: tuple[int, int], count: int | None = None) -> bytes:
    fixed = layouts.READ_ANSWER.pack(1, 0, 0, 1, 0, len(lines) if count is None else count)
    return fixed + b"".join(layouts.ENTRY_ANSWER.pack(*line) for line in lines)


@pytest.mark.parametrize(
    ("type_", "fields", "body", "message"),
    [
        (FrameType.ADD, layouts.ADD.pack(OVER, 0, 0, 0, 0, 0, 0, ID), b"e", "is over"),
        (FrameType.ADD, layouts.ADD.pack(0, 0, 0, 0, -2, 0, 0, ID), b"e", "below -1"),
        (FrameType.ADD, layouts.ADD.pack(0, 0, 0, 0, 0, 2, 0, ID), b"e", "neither true"),
        (FrameType.ADD, layouts.ADD.pack(0, 0, 0, 0, 0, 0, 2, ID), b"e", "neither true"),
        (
            FrameType.ADD,
            layouts.ADD.pack(0, 0, 0, 0, 0, 0, 0, ID),
            b"",
            "size out of range: 0 bytes",
        ),
        (FrameType.ADDS_SYNCED, layouts.ADDS_SYNCED.pack(OVER), b"", "is over"),
        (FrameType.ADD_REFUSED, layouts.ADD_REFUSED.pack(1, 0, 1), b"", "0 is not one of"),
        (FrameType.ADD_REFUSED, layouts.ADD_REFUSED.pack(1, 13, 1), b"", "13 is not one of"),
        (FrameType.FENCED, layouts.FENCED.pack(1, 0, -2), b"", "below -1"),
        (FrameType.PUSH_LAC, layouts.PUSH_LAC.pack(1, OVER, 0, ID), b"", "is over"),
        (FrameType.READ, layouts.READ.pack(1, 1, 0, 8193, 1, 1, 0, ID, 0), b"", "8193 entries"),
        (FrameType.PROBE, layouts.PROBE.pack(1, 1, 0, 8193, ID), b"", "8193 entries"),
        (FrameType.PROBE_ANSWER, layouts.PROBE_ANSWER.pack(1, 0, 0, 0, 1), bytes([5]), "5 is"),
        (
            FrameType.PROBE_ANSWER,
            layouts.PROBE_ANSWER.pack(1, 0, 0, 0, 1),
            bytes([1]) * 8193,
            "8193 entries",
        ),
        (FrameType.READ_ANSWER, answer_fields((2, 0), count=1 << 31), b"", "do not fit"),
        (FrameType.READ_ANSWER, answer_fields(*[(2, 0)] * 8193), b"", "8193 entries"),
        (FrameType.READ_ANSWER, answer_fields((1, 0)), b"", "HAVE must not have 0 bytes"),
        (FrameType.READ_ANSWER, answer_fields((2, 1)), b"e", "ABSENT must not have 1 bytes"),
        (FrameType.READ_ANSWER, answer_fields((1, 2)), b"e", "exceeds its body"),
        (FrameType.READ_ANSWER, answer_fields((1, 1)), b"ee", "2 bytes instead of 1"),
        (
            FrameType.READ_ANSWER,
            answer_fields((1, ENTRY_BYTES_MAX + 1)),
            bytes(ENTRY_BYTES_MAX + 1),
            "exceeds its body",
        ),
        (FrameType.HELLO, layouts.HELLO.pack(1, 1) + b"\x02\x00\xff\xfe", b"", "not UTF-8"),
        (
            FrameType.HELLO,
            layouts.HELLO.pack(1, 1) + b"\x01\x04" + b"c" * 1025,
            b"",
            "text of 1025 bytes",
        ),
        (FrameType.HELLO, layouts.HELLO.pack(1, 1) + b"\x05\x00c", b"", "text of 5 bytes"),
        (FrameType.STATUS, layouts.REQUEST.pack(1), b"\xff", "not UTF-8"),
        (FrameType.STATUS, layouts.REQUEST.pack(1), b" " * (1 << 21), "over the limit"),
        (0, b"", b"", "unknown message type 0"),
        (23, layouts.REQUEST.pack(1), b"", "unknown message type 23"),
        (FrameType.FOLLOW, layouts.FOLLOW.pack(1, 1, 0, 8193, 1, 1, ID), b"", "8193 entries"),
    ],
    ids=lambda parameter: parameter if isinstance(parameter, str) else "",
)
def test_a_message_that_breaks_a_rule_is_refused(
    type_: int, fields: bytes, body: bytes, message: str
) -> None:
    frame = Frame(type_, memoryview(fields), memoryview(body), crc32c(body))

    with pytest.raises(DamagedBytesError, match=message):
        decode(frame)


READ_ANSWER = ReadAnswer(1, EntryId(0), EntryId(0), (EntryAnswer(Answer.HAVE, b"body"),))
READ = Read(1, LedgerId(1), EntryId(0), 1, 1, 1, Epoch(0), INSTANCE)


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
def test_unsendable_messages_are_refused(
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
