"""Many appends in flight: answers come in order, those of one batch together."""

import pytest
import trio
from trio.testing import MockClock

from geolog.client.writing.pipeline import AnsweredRun, Pipeline
from geolog.client.writing.writer_pending import Receipt
from geolog.protocol.ids import DLSN
from tests.pure.client.fake_sink import FakeSink, a_writer
from topology.errors import FencedError, OutcomeUnknownError


def places(answers: list[AnsweredRun]) -> list[tuple[int, int, int]]:
    """Entry, slot and sequence of each record."""
    receipts = [receipt for some in answers for receipt in some.receipts()]
    return [(one.dlsn.entry, one.dlsn.slot, one.sequence) for one in receipts if one]


async def test_records_of_a_batch_are_answered_together_with_a_place_each(
    autojump_clock: MockClock,
) -> None:
    sink = FakeSink()
    writer = a_writer(sink, linger_s=0)
    pipeline = Pipeline(writer)
    for value in (b"0", b"1", b"2"):
        await pipeline.push(value)
        await trio.sleep(1)
    writer.lanes[0].seal()
    await pipeline.push(b"333", is_answered=False)
    await pipeline.push(b"4")
    writer.lanes[0].seal()
    sink.answer(2)

    answers = await pipeline.next_answers()

    assert [len(some) for some in answers] == [3, 1, 1]
    assert places(answers) == [(0, 0, 0), (0, 1, 1), (0, 2, 2), (1, 1, 4)]
    assert answers[0].receipt(2) == Receipt(0, DLSN(1, 0, 2), 2, 1)
    assert list(answers[0].started_s) == [0, 1, 2]
    assert answers[1].first is None
    assert answers[1].size_bytes == 3
    assert pipeline.unanswered_count == 0


async def test_records_of_others_in_the_same_batch_are_not_answered_here(
    autojump_clock: MockClock,
) -> None:
    sink = FakeSink()
    writer = a_writer(sink, linger_s=0)
    pipeline = Pipeline(writer)
    await pipeline.push(b"mine")
    writer.append_nowait(b"another's")
    await pipeline.push(b"mine too")
    writer.lanes[0].seal()
    sink.answer()

    assert places(await pipeline.next_answers()) == [(0, 0, 0), (0, 2, 2)]


async def test_answers_before_a_failure_are_returned_before_it(
    autojump_clock: MockClock,
) -> None:
    sink = FakeSink()
    writer = a_writer(sink, linger_s=0)
    pipeline = Pipeline(writer)
    for value in (b"0", b"1"):
        await pipeline.push(value)
        writer.lanes[0].seal()
    sink.answer()
    sink.fail(FencedError("another owns it"))

    assert places(await pipeline.next_answers()) == [(0, 0, 0)]
    with pytest.raises(OutcomeUnknownError):
        await pipeline.next_answers()
    assert pipeline.unanswered_count == 1
