"""Text frames of sessions: what a person types is understood, and bad frames are explained."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import DLSN
from geolog.wire.session.codes import close_code
from geolog.wire.session.json_frames import BadFrameError, decode, encode, encode_read
from geolog.wire.session.json_records import content_document
from geolog.wire.session.messages import (
    Ack,
    AckPosition,
    AppendRequest,
    Credit,
    ErrorAnswer,
    Goaway,
    ReadEnd,
    RecordContent,
    SessionHello,
)


def position(sequence: int) -> AckPosition:
    return AckPosition(
        dlsn=DLSN(1, sequence, 0), epoch=1, sequence=sequence, partition=0, duplicate=False
    )


def test_a_value_alone_is_an_append() -> None:
    assert decode('{"value": "paid"}') == AppendRequest(
        id=None, records=(RecordContent(b"paid"),)
    )


def test_a_list_of_records_is_one_append() -> None:
    assert decode('{"id": "x", "records": [{"value": "a"}, {"value": "b", "key": "k"}]}') == (
        AppendRequest(
            id="x",
            records=(RecordContent(b"a"), RecordContent(b"b", b"k")),
            is_list=True,
        )
    )


def test_an_append_may_name_its_writer_and_its_conditions() -> None:
    text = (
        '{"type":"append","id":3,"value_base64":"/w==","key":"k","headers":{"h":"1"},'
        '"transaction_id":7,"writer":"till-7","seq":4,"ack":"received","expect_sequence":9}'
    )

    assert decode(text) == AppendRequest(
        id=3,
        records=(RecordContent(b"\xff", b"k", {"h": b"1"}, 7),),
        writer="till-7",
        seq=4,
        ack="received",
        expect_sequence=9,
    )


def test_a_credit_is_a_number_of_records() -> None:
    assert decode('{"type":"credit","records":5}') == Credit(5)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nope", "not valid JSON"),
        ("[1]", "not a JSON object"),
        ('{"id": 4}', 'no "type" and no "value"'),
        ('{"type":"apend","value":"v"}', "did you mean 'append'"),
        ('{"type":7}', "type 7 is not a string"),
        ('{"vlue":1,"value":"v"}', "unknown key 'vlue'; did you mean 'value'"),
        ('{"type":"append"}', 'neither "value" nor "value_base64"'),
        ('{"value":1}', "value 1 is not a string"),
        ('{"value":"v","value_base64":"dg=="}', 'both "value" and "value_base64"'),
        ('{"value_base64":"%"}', "not valid base64"),
        ('{"value":"\\ud800"}', "not valid Unicode"),
        ('{"value":"v","seq":-1}', "seq -1 is out of range"),
        ('{"value":"v","seq":"1"}', "seq '1' is not an integer"),
        ('{"value":"v","transaction_id":9223372036854775808}', "out of range"),
        ('{"value":"v","ack":"none"}', "ack 'none' is neither durable nor received"),
        ('{"value":"v","writer":5}', "writer 5 is not a string"),
        ('{"value":"v","id":1.5}', "id 1.5 is neither an integer nor a string"),
        ('{"records":[]}', "a list of 1 to 10000"),
        ('{"records":[1]}', "record 0 is not a JSON object"),
        ('{"records":[{"value":"v"}],"value":"w"}', "a record of its own"),
        ('{"type":"credit"}', 'needs "records", 1 or more'),
    ],
)
def test_a_bad_frame_is_explained(text: str, told: str) -> None:
    with pytest.raises(BadFrameError, match=told):
        decode(text)


def test_a_bad_append_keeps_its_id() -> None:
    with pytest.raises(BadFrameError) as raised:
        decode('{"type":"append","id":"order-7"}')

    assert raised.value.id == "order-7"


@given(
    st.text(max_size=60)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["type", "value", "records", "id", "seq", "headers", "x"]),
                inner,
            )
        ),
        max_leaves=8,
    ).map(json.dumps)
)
def test_no_frame_does_anything_but_decode_or_be_refused(text: str) -> None:
    with suppress(BadFrameError):
        decode(text)


@given(
    st.builds(
        RecordContent,
        st.binary(max_size=9),
        st.none() | st.binary(max_size=5),
        st.none() | st.dictionaries(st.text(max_size=3), st.binary(max_size=3), min_size=1),
        st.none() | st.integers(0, 2**63 - 1),
    )
)
def test_what_a_read_tells_of_a_record_can_be_appended_again(content: RecordContent) -> None:
    document = content_document(content.value, content.key, content.headers)
    document["transaction_id"] = content.transaction_id

    assert decode(json.dumps(document)) == AppendRequest(id=None, records=(content,))


def test_the_proxys_messages_have_the_documented_form() -> None:
    hello = SessionHello(
        session="s", region="us", owner=None, epoch=None, writer_epoch=3, writer_seq=-1,
        max_frame_bytes=10, credit_bytes=20,
    )  # fmt: skip
    failure = ErrorAnswer(
        id=2, code=302, error="moved", outcome="refused", retriable=True, location="ws://h:1/"
    )

    assert json.loads(encode(hello)) == {
        "type": "hello", "session": "s", "region": "us", "owner": None, "epoch": None,
        "writer_epoch": 3, "writer_seq": -1, "max_frame_bytes": 10, "credit_bytes": 20,
    }  # fmt: skip
    assert json.loads(encode(Ack(id=1, positions=(position(0),)))) == {
        "type": "ack", "id": 1, "dlsn": "1-0-0", "epoch": 1, "sequence": 0, "partition": 0,
        "duplicate": False,
    }  # fmt: skip
    assert json.loads(encode(failure)) == {
        "type": "error", "id": 2, "code": 302, "error": "moved", "outcome": "refused",
        "retriable": True, "location": "ws://h:1/",
    }  # fmt: skip
    assert json.loads(encode(Goaway())) == {"type": "goaway"}
    assert json.loads(encode(ReadEnd())) == {"type": "end"}
    assert json.loads(encode_read("gap", {"to": 3})) == {"type": "gap", "to": 3}


def test_the_answer_to_a_list_has_a_position_for_each_record() -> None:
    answer = Ack(id=None, positions=(position(0), position(1)), is_list=True, provisional=True)

    document = json.loads(encode(answer))

    assert [one["sequence"] for one in document["records"]] == [0, 1]
    assert document["sequence"] == 0
    assert document["provisional"] is True


def test_a_busy_proxy_says_when_to_come_back() -> None:
    busy = ErrorAnswer(
        id=None, code=429, error="full", outcome="refused", retriable=True, retry_after_s=0.5
    )

    assert json.loads(encode(busy))["retry_after_s"] == 0.5


def test_close_codes_follow_the_errors() -> None:
    assert close_code(412) == 4412
