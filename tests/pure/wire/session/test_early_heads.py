"""A head that is found early is that of the whole frame."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.wire.session.documents import AppendHead, head_of
from geolog.wire.session.early_heads import early_head
from geolog.wire.session.frames import JSON_FRAMES

TEXTS = st.text(alphabet='ab"\\{},: idseqwriter\u00e9\n', max_size=12)
VALUES = st.one_of(TEXTS, st.integers(-5, 2**64), st.none(), st.booleans(), st.floats(0, 1))
NAMES = st.sampled_from(["type", "id", "writer", "seq", "ack", "value", "key", "timeout_s"])
MEMBERS = st.dictionaries(NAMES, st.one_of(VALUES, st.dictionaries(TEXTS, TEXTS, max_size=2)))


@given(
    MEMBERS,
    st.lists(MEMBERS, max_size=3),
    st.booleans(),
    st.sampled_from([(",", ":"), (", ", ": ")]),
)
def test_a_head_that_is_found_early_is_that_of_the_whole_document(
    members: dict[str, object],
    records: list[dict[str, object]],
    is_ascii: bool,  # noqa: FBT001 - drawn.
    separators: tuple[str, str],
) -> None:
    document = {**members, "records": records}
    frame = json.dumps(document, ensure_ascii=is_ascii, separators=separators)

    early = early_head(frame)

    assert early is None or early == head_of(JSON_FRAMES.parse(frame))


@pytest.mark.parametrize(
    ("frame", "head"),
    [
        ('{"value":"x"}', AppendHead(None, None, None)),
        ('{"id":7,"value":"x"}', AppendHead(7, None, None)),
        (
            '{"type":"append","id":"a","seq":3,"records":[{"value":"x"}]}',
            AppendHead("a", None, 3),
        ),
        ('{"type": "append", "writer": "w", "seq": 3}', AppendHead(None, "w", 3)),
        ('{"id":7,"value":"a \\"seq\\": 5"}', AppendHead(7, None, None)),
        ('{"id":7,"records":[', AppendHead(7, None, None)),
    ],
)
def test_the_front_of_a_frame_is_enough(frame: str, head: AppendHead) -> None:
    assert early_head(frame) == head


@pytest.mark.parametrize(
    "frame",
    [
        '{"value":"x","id":7}',
        '{"id":7,"value":"x","id":8}',
        '{"id":7,"id":8}',
        '{"value":"x","\\u0069d":7}',
        '{"id":"\\u0061","value":"x"}',
        '{"id":7.5,"value":"x"}',
        '{"id":[7],"value":"x"}',
        '{"value":"x","headers":{"seq":"1"}}',
        '{"id":7',
        '["id"]',
        "",
    ],
)
def test_other_frames_are_parsed(frame: str) -> None:
    assert early_head(frame) is None
