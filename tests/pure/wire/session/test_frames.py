"""Frames of sessions: what a person types is understood, and bad frames are explained.

Tests of documents run in both encodings.
"""

import json
import tracemalloc
from contextlib import suppress

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import DLSN
from geolog.wire.batch import seal_batch
from geolog.wire.session.codes import close_code
from geolog.wire.session.documents import (
    ID_CHARACTERS_MAX,
    AppendHead,
    BadFrameError,
    head_of,
    message_of,
)
from geolog.wire.session.frames import (
    JSON_FRAMES,
    MSGPACK_FRAMES,
    FrameCodec,
    commit_frame,
    leave_frame,
)
from geolog.wire.session.json_records import (
    RECORD_KEYS,
    check_keys,
    parse_content,
    plain_content,
)
from geolog.wire.session.messages import (
    Ack,
    AckPosition,
    AppendRequest,
    Credit,
    CursorCommit,
    CursorLeave,
    ErrorAnswer,
    Goaway,
    ReadEnd,
    RecordContent,
    SessionHello,
)
from topology.errors import InvalidArgumentError

both_encodings = pytest.mark.parametrize(
    "codec", [JSON_FRAMES, MSGPACK_FRAMES], ids=lambda one: one.subprotocol
)


def frame_of(codec: FrameCodec, document: object) -> str | bytes:
    """The frame that a client of any language would send."""
    if codec is JSON_FRAMES:
        return json.dumps(document)
    packed: bytes = msgpack.packb(document)
    return packed


def document_in(frame: str | bytes) -> dict[str, object]:
    """The document that a client of any language would find in the frame."""
    found = json.loads(frame) if isinstance(frame, str) else msgpack.unpackb(frame)
    assert isinstance(found, dict)
    return found


def position(sequence: int) -> AckPosition:
    return AckPosition(
        dlsn=DLSN(1, sequence, 0), epoch=1, sequence=sequence, partition=0, duplicate=False
    )


@both_encodings
def test_a_value_alone_is_an_append(codec: FrameCodec) -> None:
    assert codec.decode(frame_of(codec, {"value": "paid"})) == AppendRequest(
        id=None, records=(RecordContent(b"paid"),)
    )


@both_encodings
def test_a_list_of_records_is_one_append(codec: FrameCodec) -> None:
    document = {"id": "x", "records": [{"value": "a"}, {"value": "b", "key": "k"}]}

    assert codec.decode(frame_of(codec, document)) == (
        AppendRequest(
            id="x",
            records=(RecordContent(b"a"), RecordContent(b"b", b"k")),
            is_list=True,
        )
    )


@both_encodings
def test_an_append_may_name_its_writer_and_its_conditions(codec: FrameCodec) -> None:
    document = {
        "type": "append", "id": 3, "value_base64": "/w==", "key": "k", "headers": {"h": "1"},
        "transaction_id": 7, "writer": "till-7", "seq": 4, "ack": "received",
        "expect_sequence": 9, "timeout_s": 2,
    }  # fmt: skip

    assert codec.decode(frame_of(codec, document)) == AppendRequest(
        id=3,
        records=(RecordContent(b"\xff", b"k", {"h": b"1"}, 7),),
        writer="till-7",
        seq=4,
        ack="received",
        expect_sequence=9,
        timeout_s=2.0,
    )


def test_values_keys_and_headers_may_be_bytes_in_message_pack() -> None:
    document = {"value": b"\xff", "key": b"k", "headers": {"h": b"\x00"}}

    assert MSGPACK_FRAMES.decode(frame_of(MSGPACK_FRAMES, document)) == AppendRequest(
        id=None, records=(RecordContent(b"\xff", b"k", {"h": b"\x00"}),)
    )


@both_encodings
def test_each_record_may_be_local_only(codec: FrameCodec) -> None:
    document = {"id": 1, "records": [{"value": "a", "local_only": True}, {"value": "b"}]}

    decoded = codec.decode(frame_of(codec, document))

    assert isinstance(decoded, AppendRequest)
    assert [one.local_only for one in decoded.records] == [True, False]
    with pytest.raises(BadFrameError, match="local_only 1 is neither true nor false"):
        codec.decode(frame_of(codec, {"value": "a", "local_only": 1}))


def test_a_sealed_batch_is_an_append_of_its_records() -> None:
    sealed = seal_batch(
        [b"a", b"b"],
        created_us=1,
        keys=[b"k", None],
        transaction_ids=[None, 7],
        headers=[{}, {"h": b"1"}],
    )
    document = {"id": 1, "batch": bytes(sealed.data), "writer": "till-7", "seq": 3}

    assert MSGPACK_FRAMES.decode(frame_of(MSGPACK_FRAMES, document)) == AppendRequest(
        id=1,
        records=(RecordContent(b"a", b"k"), RecordContent(b"b", None, {"h": b"1"}, 7)),
        is_list=True,
        writer="till-7",
        seq=3,
    )


@both_encodings
def test_a_commit_names_a_sequence_and_perhaps_a_partition(codec: FrameCodec) -> None:
    commit = {"type": "commit", "sequence": 5}

    assert codec.decode(frame_of(codec, commit)) == CursorCommit(5)
    assert codec.decode(frame_of(codec, {**commit, "partition": 2})) == CursorCommit(5, 2)
    assert codec.decode(frame_of(codec, {**commit, "id": 7})) == CursorCommit(5, None, 7)


@both_encodings
def test_a_client_leaves_its_cursor(codec: FrameCodec) -> None:
    assert codec.decode(frame_of(codec, {"type": "leave"})) == CursorLeave()
    with pytest.raises(BadFrameError, match="sequence"):
        codec.decode(frame_of(codec, {"type": "leave", "sequence": 1}))


def test_the_frames_that_a_client_makes_are_understood() -> None:
    assert MSGPACK_FRAMES.decode(commit_frame(5, 2)) == CursorCommit(5, 2)
    assert MSGPACK_FRAMES.decode(commit_frame(5, 2, 9)) == CursorCommit(5, 2, 9)
    assert MSGPACK_FRAMES.decode(leave_frame()) == CursorLeave()


@both_encodings
def test_a_credit_is_a_number_of_records(codec: FrameCodec) -> None:
    assert codec.decode(frame_of(codec, {"type": "credit", "records": 5})) == Credit(5)


@both_encodings
@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"id": 4}, 'no "type" and no "value"'),
        ({"type": "apend", "value": "v"}, "did you mean 'append'"),
        ({"type": "a" * 10_000}, "type 'a{59} is unknown"),
        ({"type": 7}, "type 7 is not a string"),
        ({"vlue": 1, "value": "v"}, "unknown key 'vlue'; did you mean 'value'"),
        ({"type": "append"}, 'neither "value" nor "value_base64"'),
        ({"value": 1}, "value 1 is not a string"),
        ({"value": "v", "value_base64": "dg=="}, 'both "value" and "value_base64"'),
        ({"value_base64": "%"}, "not valid base64"),
        ({"value": "v", "headers": []}, r"headers \[\] is not an object"),
        ({"value": "v", "headers": {"h": 1}}, "header h: 1 is neither a string nor"),
        ({"value": "v", "seq": -1}, "seq -1 is out of range"),
        ({"value": "v", "seq": "1"}, "seq '1' is not an integer"),
        ({"value": "v", "transaction_id": 1 << 63}, "out of range"),
        ({"value": "v", "ack": "none"}, "ack 'none' is neither durable nor received"),
        ({"value": "v", "timeout_s": "5s"}, "timeout_s '5s' is not a number"),
        ({"value": "v", "timeout_s": True}, "timeout_s True is not a number"),
        ({"value": "v", "timeout_s": 0}, "timeout_s 0 is out of range: more than 0"),
        ({"value": "v", "timeout_s": 1e9}, "and up to 86400 seconds"),
        ({"value": "v", "timeout_s": float("nan")}, "timeout_s nan is out of range"),
        ({"value": "v", "writer": 5}, "writer 5 is not a string"),
        ({"value": "v", "id": 1.5}, "id 1.5 is neither an integer nor a string"),
        ({"value": "v", "id": "i" * (ID_CHARACTERS_MAX + 1)}, "id has 1025 characters"),
        ({"records": []}, "a list of 1 to 10000"),
        ({"records": [1]}, "record 0 is not an object"),
        ({"records": [{"value": "v"}], "value": "w"}, "a record of its own"),
        ({"records": [{"value": "v"}], "batch": "b"}, 'both "records" and "batch"'),
        ({"batch": "b"}, "batch 'b' is not binary"),
        ({"type": "credit"}, 'needs "records", 1 or more'),
        ({"type": "commit"}, 'the commit needs "sequence"'),
        ({"type": "commit", "sequence": -1}, "sequence"),
        ([1], r"not a (JSON object|map)"),
    ],
)
def test_a_bad_frame_is_explained(codec: FrameCodec, document: object, told: str) -> None:
    with pytest.raises(BadFrameError, match=told):
        codec.decode(frame_of(codec, document))


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        ("nope", "not valid JSON"),
        ('{"value":"\\ud800"}', "not valid Unicode"),
        ('{"value":"v","id":"\\ud800"}', "not valid Unicode"),
        ('{"value":"v","writer":"\\ud800"}', "not valid Unicode"),
        ("[" * 9_000, "nested too deeply"),
        ("[" * 100_000, "more lists or objects"),
        (f'{{"value":"v","seq":{"9" * 5000}}}', "a number with more than [0-9]+ digits"),
        (b"{}", "binary frames are not part of geolog.v1.json"),
    ],
)
def test_a_frame_that_is_not_json_is_explained(frame: str | bytes, told: str) -> None:
    with pytest.raises(BadFrameError, match=told):
        JSON_FRAMES.decode(frame)


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        ("{}", "text frames are not part of geolog.v1.msgpack"),
        (b"", "not valid MessagePack"),
        (b"\xc1", "not valid MessagePack: a byte that begins no value"),
        (msgpack.packb({"value": b"v"})[:-1], "not valid MessagePack"),
        (msgpack.packb({"value": b"v"}) + b"\x00", "not valid MessagePack"),
        (b"\xdd\xff\xff\xff\xff", "exceeds max_array_len"),
        (b"\xdf\xff\xff\xff\xff", "exceeds max_map_len"),
        (b"\xc6\xff\xff\xff\xff", "not valid MessagePack"),
        (b"\xdb\xff\xff\xff\xff", "not valid MessagePack"),
        (msgpack.packb(msgpack.Timestamp(1)), "exceeds max_ext_len"),
        (b"\x91" * 100_000, "nested too deeply"),
        (b"\x81\xa5value\xa1\xff", "not valid MessagePack"),
        (msgpack.packb({b"value": b"v"}), "is not text"),
        (msgpack.packb({1: b"v"}), "not valid MessagePack"),
        (msgpack.packb({"batch": b"GLBA"}), "batch truncated to 4 bytes"),
    ],
)
def test_a_frame_that_is_not_message_pack_is_explained(frame: str | bytes, told: str) -> None:
    with pytest.raises(BadFrameError, match=told):
        MSGPACK_FRAMES.decode(frame)


@both_encodings
def test_a_bad_append_keeps_its_id(codec: FrameCodec) -> None:
    with pytest.raises(BadFrameError) as raised:
        codec.decode(frame_of(codec, {"type": "append", "id": "order-7"}))

    assert raised.value.id == "order-7"


NAMES = ["type", "value", "records", "batch", "id", "seq", "headers", "writer", "x"]
SCALARS = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats()
TEXTS = st.text(max_size=5) | st.sampled_from(["append", "credit", "received"])


def documents(leaves: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner)
        ),
        max_leaves=8,
    )


@given(st.text(max_size=60) | documents(SCALARS | TEXTS).map(json.dumps))
def test_no_text_does_anything_but_decode_or_be_refused(text: str) -> None:
    with suppress(BadFrameError):
        JSON_FRAMES.decode(text)


@given(
    st.binary(max_size=60)
    | documents(SCALARS | TEXTS | st.binary(max_size=5)).map(msgpack.packb)
)
def test_no_bytes_do_anything_but_decode_or_be_refused(data: bytes) -> None:
    with suppress(BadFrameError):
        MSGPACK_FRAMES.decode(data)


FIELDS = (
    st.none() | st.text(max_size=3) | st.binary(max_size=3) | st.integers() | st.just("\ud800")
)


@given(st.dictionaries(st.sampled_from([*sorted(RECORD_KEYS), "x"]), FIELDS, max_size=3))
def test_a_record_of_value_and_key_means_the_same_by_the_short_way(
    document: dict[str, object],
) -> None:
    plain = plain_content(document)

    if plain is not None:
        check_keys(document, RECORD_KEYS, "it")
        assert plain == parse_content(document, "it")
    elif document.keys() <= {"value", "key"} and None not in document.values():
        with pytest.raises(InvalidArgumentError):
            parse_content(document, "it")


@given(documents(SCALARS | TEXTS))
def test_the_head_of_an_append_is_as_its_message_tells(document: object) -> None:
    if not isinstance(document, dict):
        return
    head, message = head_of(document), None  # The head never fails.
    with suppress(BadFrameError):
        message = message_of(document)
    if isinstance(message, AppendRequest):
        assert head == AppendHead(message.id, message.writer, message.seq)


@given(documents(SCALARS | TEXTS))
def test_a_document_means_the_same_in_both_encodings(document: object) -> None:
    told: list[object] = []
    for codec in (JSON_FRAMES, MSGPACK_FRAMES):
        try:
            told.append(codec.decode(frame_of(codec, document)))
        except BadFrameError as error:
            told.append(error.id)

    assert told[0] == told[1]


@both_encodings
@given(
    st.builds(
        RecordContent,
        st.binary(max_size=9),
        st.none() | st.binary(max_size=5),
        st.none() | st.dictionaries(st.text(max_size=3), st.binary(max_size=3), min_size=1),
        st.none() | st.integers(0, 2**63 - 1),
    )
)
def test_what_a_read_tells_of_a_record_can_be_appended_again(
    codec: FrameCodec, content: RecordContent
) -> None:
    document = codec.content(content.value, content.key, content.headers)
    frame = codec.encode_read("record", {**document, "transaction_id": content.transaction_id})
    told = document_in(frame)

    assert told.pop("type") == "record"
    assert codec.decode(frame_of(codec, told)) == AppendRequest(id=None, records=(content,))


@both_encodings
def test_the_proxys_messages_have_the_documented_form(codec: FrameCodec) -> None:
    hello = SessionHello(
        session="s", region="us", owner=None, epoch=None, writer_epoch=3, writer_seq=-1,
        max_frame_bytes=10, credit_bytes=20,
    )  # fmt: skip
    failure = ErrorAnswer(
        id=2, code=302, error="moved", outcome="refused", retriable=True, location="ws://h:1/"
    )

    assert document_in(codec.encode(hello)) == {
        "type": "hello", "session": "s", "region": "us", "owner": None, "epoch": None,
        "writer_epoch": 3, "writer_seq": -1, "max_frame_bytes": 10, "credit_bytes": 20,
    }  # fmt: skip
    assert document_in(codec.encode(Ack(id=1, positions=(position(0),)))) == {
        "type": "ack", "id": 1, "dlsn": "1-0-0", "epoch": 1, "sequence": 0, "partition": 0,
        "duplicate": False,
    }  # fmt: skip
    assert document_in(codec.encode(failure)) == {
        "type": "error", "id": 2, "code": 302, "error": "moved", "outcome": "refused",
        "retriable": True, "location": "ws://h:1/",
    }  # fmt: skip
    assert document_in(codec.encode(Goaway())) == {"type": "goaway"}
    assert document_in(codec.encode(ReadEnd())) == {"type": "end"}
    assert document_in(codec.encode_read("gap", {"to": 3})) == {"type": "gap", "to": 3}


@both_encodings
def test_the_answer_to_a_list_has_a_position_for_each_record(codec: FrameCodec) -> None:
    answer = Ack(id=None, positions=(position(0), position(1)), is_list=True, provisional=True)

    document = document_in(codec.encode(answer))

    assert isinstance(document["records"], list)
    assert [one["sequence"] for one in document["records"]] == [0, 1]
    assert document["sequence"] == 0
    assert document["provisional"] is True


@both_encodings
def test_a_busy_proxy_says_when_to_come_back(codec: FrameCodec) -> None:
    busy = ErrorAnswer(
        id=None, code=429, error="full", outcome="refused", retriable=True, retry_after_s=0.5
    )

    assert document_in(codec.encode(busy))["retry_after_s"] == 0.5


def test_close_codes_follow_the_errors() -> None:
    assert close_code(412) == 4412


def memory_of(codec: FrameCodec, frame: str | bytes) -> int:
    """The most that reading the frame takes, whether it is refused or not."""
    tracemalloc.start()
    try:
        with suppress(BadFrameError):
            codec.decode(frame)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "inner",
    [[[]] * 15_000, [{}] * 15_000, [{"a": 1, "b": 2, "c": 3}] * 15_000],
    ids=["lists", "empty maps", "maps"],
)
@pytest.mark.parametrize("codec", [JSON_FRAMES, MSGPACK_FRAMES])
def test_a_frame_of_tiny_lists_or_maps_is_refused_before_it_fills_the_memory(
    codec: FrameCodec, inner: list[object]
) -> None:
    document = {"records": [inner] * 10, "id": 7}
    frame: str | bytes = json.dumps(document)
    if codec is MSGPACK_FRAMES:
        frame = msgpack.packb(document)

    with pytest.raises(BadFrameError, match="more lists or objects than 10000 records"):
        codec.decode(frame)
    assert memory_of(codec, frame) < 12 * len(frame) + (8 << 20)


def test_a_value_may_be_text_of_any_form() -> None:
    value = json.dumps([[]] * 30_000 + [{"a": "}"}] * 60_000)
    message = JSON_FRAMES.decode(json.dumps({"value": value}))

    assert isinstance(message, AppendRequest)
    assert message.records[0].value == value.encode()


@pytest.mark.parametrize("end", ["", '"', "\\"], ids=["open", "closed", "ends in a backslash"])
@pytest.mark.parametrize("piece", ['\\"', '"', "\\\\"])
def test_a_frame_of_quotes_is_refused_in_one_pass(piece: str, end: str) -> None:
    # From each quote to the end, again and again, would take hours.
    frame = "[" * 10_001 + '"' + piece * 500_000 + end

    with pytest.raises(BadFrameError):
        JSON_FRAMES.decode(frame)


@pytest.mark.parametrize("codec", [JSON_FRAMES, MSGPACK_FRAMES])
def test_a_list_of_all_records_with_headers_is_understood(codec: FrameCodec) -> None:
    document = {"records": [{"value": "v", "headers": {"a": "b", "c": "d"}}] * 10_000}
    frame: str | bytes = json.dumps(document)
    if codec is MSGPACK_FRAMES:
        frame = msgpack.packb(document)
    message = codec.decode(frame)

    assert isinstance(message, AppendRequest)
    assert len(message.records) == 10_000


def test_a_frame_of_keys_is_refused_before_it_fills_the_memory() -> None:
    keys = ",".join(f'"k{number}":0' for number in range(300_000))
    frame = f"{{{keys}}}"
    value = json.dumps({"value": frame})

    with pytest.raises(BadFrameError, match="has 300000 keys, more than any message"):
        JSON_FRAMES.decode(frame)
    assert memory_of(JSON_FRAMES, frame) < 8 * len(frame)
    assert isinstance(JSON_FRAMES.decode(value), AppendRequest)
