"""Two sessions of one named writer: an application hangs while another takes its place."""

import pytest
import trio

import geolog
from geolog.partition.batch_admission import BatchAdmission
from geolog.protocol.partition_state import PartitionState
from geolog.wire.entry import WriterStamp
from sim.world.process import Process
from sim.world.world import World
from tests.sim.calm import REGIONS, STREAM, do, in_a_calm_world

TILL = "till-7"
_APPENDS_COUNT = 20


def test_an_application_that_hangs_appends_nothing_once_another_has_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered: list[tuple[str, int]] = []
    ends: list[geolog.GeologError] = []
    epochs: list[tuple[int, int]] = []
    good = BatchAdmission.is_repeat

    def is_repeat(admission: BatchAdmission, stamp: WriterStamp, sent: PartitionState) -> bool:
        epochs.append((stamp.epoch, admission.session_of(stamp.writer_id, sent).epoch))
        return good(admission, stamp, sent)

    async def append_some(process: Process, log: geolog.Log) -> None:
        async with log.open_writer(STREAM, writer_id=TILL) as writer:
            for _ in range(_APPENDS_COUNT):
                receipt = await writer.append(process.host.encode())
                answered.append((process.host, receipt.sequence))

    async def append_until_it_ends(process: Process, log: geolog.Log) -> None:
        try:
            await append_some(process, log)
        except geolog.GeologError as error:
            ends.append(error)

    async def story(world: World) -> list[tuple[str, int]]:
        old = world.start_client("old", REGIONS[1], append_until_it_ends)
        while len(answered) < _APPENDS_COUNT // 2:  # noqa: ASYNC110 - no event for it.
            await trio.sleep(0.01)
        world.pause("old")
        await do(world, append_some, "new")
        world.resume(old)
        await old.ended.wait()
        found: list[tuple[str, int]] = []

        async def read_all(_process: Process, log: geolog.Log) -> None:
            async with log.open_reader(STREAM) as reader:
                found.extend(
                    [(record.value.decode(), record.sequence) async for record in reader]
                )

        await do(world, read_all, "reader")
        return found

    monkeypatch.setattr(BatchAdmission, "is_repeat", is_repeat)
    found = in_a_calm_world(story)

    [end] = ends
    assert isinstance(end, geolog.FencedError | geolog.OutcomeUnknownError)
    assert found[-_APPENDS_COUNT:] == [one for one in answered if one[0] == "new"]
    assert set(answered) <= set(found)
    # An owner never sees an older session than its log has: that one is fenced before.
    assert {epoch for epoch, _ in epochs} == {1, 2}
    assert all(epoch >= known for epoch, known in epochs)
