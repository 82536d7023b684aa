"""Records that take the short way make the same batches as those that take the long one."""

from collections.abc import Sequence
from contextlib import suppress

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from geolog.client.writing import partitioner
from geolog.client.writing.partition_batcher import WriterConfig
from geolog.client.writing.record_fields import RecordFields, size_of
from geolog.client.writing.writer import Writer, open_linger
from geolog.client.writing.writer_pending import Pending
from tests.pure.client.fake_sink import FakeSink, a_writer
from topology.errors import InvalidArgumentError, TooLargeError

BATCH_BYTES, WINDOW_BYTES = 400, 1200

RECORDS = st.builds(
    RecordFields,
    value=st.integers(0, 500).map(bytes),
    key=st.sampled_from([None, None, b"", b"key"]),
    headers=st.sampled_from([None, None, None, {"a": b"b"}]),
    transaction_id=st.sampled_from([None, None, None, 7]),
)
ANSWERS = st.integers(1, 3)


@attrs.define
class Side:
    """A writer, and what came of its records."""

    is_short: bool
    lanes_count: int
    sinks: list[FakeSink] = attrs.field(init=False)
    pending: list[Pending | None] = attrs.field(factory=list)
    writer: Writer = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.sinks = [FakeSink() for _ in range(self.lanes_count)]
        self.writer = Writer(
            self.sinks,
            WriterConfig(batch_bytes=BATCH_BYTES, in_flight_bytes=WINDOW_BYTES),
            home_epoch=1,
            now_us=lambda: int(trio.current_time() * 1e6),
        )

    def answer(self) -> None:
        for sink in self.sinks:
            if not sink.is_idle:
                sink.answer()

    def append(self, fields: RecordFields) -> None:
        one = None  # There was no room.
        with suppress(trio.WouldBlock):
            if self.is_short:
                one = self.writer.append_nowait(
                    fields.value,
                    key=fields.key,
                    headers=fields.headers,
                    transaction_id=fields.transaction_id,
                )
            else:
                one = self.writer.append_fields_nowait(attrs.evolve(fields))
        self.pending.append(one)

    async def outcome(self) -> list[object]:
        async with open_linger(self.writer):
            await trio.sleep(1)
            for sink in self.sinks:
                sink.answer(len(sink.taken))
                sink.answer(0)
        receipts = [None if one is None else await one.wait() for one in self.pending]
        batches = [[(one.sealed.data, one.terms) for one in sink.taken] for sink in self.sinks]
        return [batches, receipts, self.writer.statistics()]


@given(lanes_count=st.sampled_from([1, 1, 3]), steps=st.lists(RECORDS | ANSWERS, max_size=40))
def test_both_ways_make_the_same_batches_receipts_and_figures(
    lanes_count: int, steps: Sequence[RecordFields | int]
) -> None:
    async def run() -> None:
        short = Side(is_short=True, lanes_count=lanes_count)
        long = Side(is_short=False, lanes_count=lanes_count)
        for step in steps:
            for side in (short, long):
                if isinstance(step, int):
                    for _ in range(step):
                        side.answer()
                else:
                    side.append(step)
            assert short.writer.statistics() == long.writer.statistics()
        assert await short.outcome() == await long.outcome()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitioner, "STICK_BYTES", BATCH_BYTES // 2)
        trio.run(run, clock=MockClock(autojump_threshold=0))


async def test_many_records_at_once_are_checked_before_any_is_sent(
    autojump_clock: MockClock,
) -> None:
    sink = FakeSink()
    writer = a_writer(sink)
    wrong: list[tuple[object, type[Exception]]] = [
        ("text", InvalidArgumentError),
        (bytes(17 << 20), TooLargeError),
    ]
    for value, kind in wrong:
        with pytest.raises(kind, match="record 1 of append_many"):
            await writer.append_many([b"right", value])  # type: ignore[list-item] # Wrong.
    async with open_linger(writer):
        pass

    assert sink.taken == []


async def test_many_records_fill_batches_and_are_answered_in_order(
    autojump_clock: MockClock,
) -> None:
    sink = FakeSink()
    values = [b"%03d" % number for number in range(100)]
    async with (
        open_linger(
            a_writer(sink, batch_bytes=BATCH_BYTES, in_flight_bytes=WINDOW_BYTES)
        ) as writer,
        trio.open_nursery() as nursery,
    ):

        async def answer() -> None:
            while True:
                await trio.sleep(0.1)
                sink.answer(len(sink.taken))

        nursery.start_soon(answer)
        receipts = await writer.append_many(values)
        nursery.cancel_scope.cancel(reason="all are answered")

    assert [receipt.sequence for receipt in receipts] == list(range(100))
    assert [value for batch in sink.values() for value in batch] == values
    assert len(sink.taken) == -(-100 // (BATCH_BYTES // size_of(RecordFields(value=b"000"))))
