"""Record formats in files and pipes: incremental parsing, and errors with line numbers."""

import json
from collections.abc import Iterable

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.cli.choices import FORMATS, Format
from geolog.cli.terminal.record_formats import (
    LINE_BYTES_MAX,
    parser_of,
    value_formatter,
)
from geolog.client.reading.record import Record, RecordBatch
from geolog.client.reading.record_documents import record_document
from geolog.wire.batch import open_batch, seal_batch
from geolog.wire.session.messages import RecordContent
from topology.errors import InvalidArgumentError, TooLargeError


def parsed(
    format_: Format,
    *pieces: bytes,
    key_separator: str | None = None,
    is_keyless_ok: bool = False,
    name: str | None = None,
) -> list[RecordContent]:
    parser = parser_of(
        format_, key_separator=key_separator, is_keyless_ok=is_keyless_ok, name=name
    )
    found = [outgoing for piece in pieces for outgoing in parser.feed(piece)]
    return found + list(parser.end())


def values(records: Iterable[RecordContent]) -> list[bytes]:
    return [record.value for record in records]


def record_of(outgoing: RecordContent) -> Record:
    """Return the record as a reader would deliver it."""
    sealed = seal_batch(
        [outgoing.value],
        created_us=[0],
        keys=[outgoing.key],
        transaction_ids=[outgoing.transaction_id],
        headers=[outgoing.headers or {}],
    )
    batch = RecordBatch(
        stream="shop/orders",
        partition=0,
        epoch=1,
        segment=3,
        entry=7,
        first_slot=0,
        first_sequence=41,
        timestamp_us=1_767_225_600_000_001,
        served_region="eu-west",
        batch=open_batch(sealed.data),
        end_row=1,
    )
    (record,) = batch
    return record


def test_each_line_is_a_record_even_the_last_without_a_newline() -> None:
    assert values(parsed("lines", b"a\nbc\n\nd")) == [b"a", b"bc", b"", b"d"]


def test_a_key_precedes_the_first_separator() -> None:
    assert parsed("lines", b"k=v=w\n=v\n", key_separator="=") == [
        RecordContent(b"v=w", b"k"),
        RecordContent(b"v", b""),
    ]


def test_a_line_without_the_separator_is_refused_unless_that_is_allowed() -> None:
    with pytest.raises(InvalidArgumentError, match=r"line 2 has no key: '=' .* --keyless-ok"):
        parsed("lines", b"k=v\nplain\n", key_separator="=")

    allowed = parsed("lines", b"k=v\nplain\n", key_separator="=", is_keyless_ok=True)
    assert allowed == [RecordContent(b"v", b"k"), RecordContent(b"plain")]


@pytest.mark.parametrize(
    ("format_", "data", "place"),
    [
        ("lines", b"fine\n\xff\n", r"^orders\.txt:2 is not UTF-8"),
        ("jsonl", b'{"value":"a"}\n\n{]\n', r"^orders\.txt:3 is not valid JSON"),
        ("length-prefixed", b"\0\0\0\x01a\0", r"^orders\.txt ends inside a record"),
    ],
)
def test_an_error_in_a_file_names_the_file(format_: Format, data: bytes, place: str) -> None:
    with pytest.raises(InvalidArgumentError, match=place):
        parsed(format_, data, name="orders.txt")


def test_the_place_of_a_record_is_known_as_it_is_yielded() -> None:
    lines = parser_of("jsonl", key_separator=None)
    values = parser_of("length-prefixed", key_separator=None, name="values")

    given = b'{"value":"a"}\n\n{"value":"b"}\n'
    assert [lines.place for _ in lines.feed(given)] == ["line 1", "line 3"]
    given = b"\0\0\0\x01a\0\0\0\x01b"
    assert [values.place for _ in values.feed(given)] == [
        "values, record 1",
        "values, record 2",
    ]


def test_a_json_line_can_hold_every_field_of_a_record() -> None:
    line = (
        b'{"value_base64":"//8=","key":"k","headers":{"a":"1","b":{"base64":"/w=="}},'
        b'"transaction_id":9}'
    )

    assert parsed("jsonl", line) == [
        RecordContent(b"\xff\xff", b"k", {"a": b"1", "b": b"\xff"}, 9)
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "line 1 is not valid JSON"),
        pytest.param(b"[" * 200_000, "line 1 is nested too deeply", id="nested too deep"),
        (b"[1]", "line 1 is not a JSON object"),
        (b"{}", 'line 1 has neither "value" nor "value_base64"'),
        (b'{"value":1}', "line 1: value 1 is not a string"),
        (b'{"value":"a","value_base64":"YQ=="}', "line 1 has both"),
        (b'{"value_base64":"?"}', "line 1: value_base64 is not valid base64"),
        (b'{"value":"\\ud800"}', "line 1: value is not valid Unicode"),
        (b'{"value":"a","transaction_id":"9"}', "line 1: transaction_id '9' is not an integer"),
        (b'{"value":"a","headers":[]  ,"kay":"b"}', "unknown key 'kay'; did you mean 'key'"),
        (b'{"value":"a","headers":{"h":1}}', "line 1: header h: 1 is neither a string"),
        (b'{"value":"a","headers":[]}', r"line 1: headers \[\] is not an object"),
        (b'{"value":"a","transaction_id":-1}', "line 1: transaction_id -1 is out of range"),
        (b'{"gap":"trimmed","from":"1-0-0","to":"1-5-0"}', "line 1 is a gap"),
    ],
)
def test_an_error_in_a_json_line_names_the_line(line: bytes, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        parsed("jsonl", line)


def test_a_record_cut_off_by_the_end_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="ends inside a record: 5 bytes left over"):
        parsed("length-prefixed", b"\0\0\0\x02ab\0\0\0\x09c")


def test_a_length_is_checked_before_memory_is_used_for_it() -> None:
    with pytest.raises(TooLargeError, match="4294967295"):
        parsed("length-prefixed", b"\xff\xff\xff\xff")


def test_binary_values_are_refused_as_lines() -> None:
    with pytest.raises(InvalidArgumentError, match=r"line 2 is not UTF-8 .*length-prefixed"):
        parsed("lines", b"fine\n\xff\xfe\n")


def test_a_value_with_a_newline_is_not_printed_as_a_line() -> None:
    form = value_formatter("lines", key_separator=None)
    with pytest.raises(InvalidArgumentError, match="contains a newline"):
        form(record_of(RecordContent(b"two\nlines")))


def test_a_line_that_is_too_long_is_refused() -> None:
    with pytest.raises(TooLargeError, match="line 2 exceeds"):
        parsed("lines", b"a\n" + b"b" * (LINE_BYTES_MAX + 1))


OUTGOING = st.builds(
    RecordContent,
    value=st.binary(max_size=20).map(lambda value: value.replace(b"\n", b"")),
    key=st.none() | st.binary(max_size=5),
    headers=st.none() | st.dictionaries(st.text(max_size=3), st.binary(max_size=3), min_size=1),
    transaction_id=st.none() | st.integers(0, 1 << 40),
)


@given(OUTGOING)
def test_append_accepts_the_json_that_read_prints(outgoing: RecordContent) -> None:
    printed = json.dumps(record_document(record_of(outgoing))).encode()

    assert parsed("jsonl", printed) == [outgoing]


@given(st.sampled_from(FORMATS), st.lists(OUTGOING, max_size=4), st.data())
def test_bytes_may_arrive_in_any_pieces(
    format_: Format, outgoing: list[RecordContent], data: st.DataObject
) -> None:
    if format_ == "lines":
        outgoing = [attrs.evolve(one, value=one.value.hex().encode()) for one in outgoing]
    form = value_formatter(format_, key_separator=None)
    whole = b"".join(form(record_of(record)) for record in outgoing)
    cut = data.draw(st.integers(0, len(whole)))

    assert values(parsed(format_, whole[:cut], whole[cut:])) == values(outgoing)


def test_a_record_as_json_has_all_its_fields() -> None:
    record = record_of(RecordContent(b"v", key=b"\xff", headers={"h": b"1"}, transaction_id=5))

    assert record_document(record) == {
        "stream": "shop/orders",
        "partition": 0,
        "epoch": 1,
        "dlsn": "3-7-0",
        "sequence": 41,
        "transaction_id": 5,
        "timestamp": "2026-01-01T00:00:00.000001Z",
        "key_base64": "/w==",
        "value": "v",
        "headers": {"h": "1"},
        "origin": None,
        "served_region": "eu-west",
        "hedged": False,
    }
