"""Warnings and limits of a replacement, and lost answers."""

import pytest
import trio
from trio.testing import MockClock

from geolog.admin.ledger_description import describe_ledger
from geolog.admin.ledger_entries import ledger_end, read_entries, values_of
from geolog.admin.node_description import describe_node
from geolog.admin.preflight import preflight
from geolog.admin.replacement import NodeReplacer, ReplaceReport, ReplaceTold
from geolog.ledger.copying.fragment_copy import CopyConfig
from geolog.ledger.ledger_metadata import (
    LedgerMetadata,
    NoSuchLedgerError,
    VersionedLedger,
)
from geolog.ledger.reading.ledger_reader import FetchedEntry
from geolog.metadata.nodes import NodeRecord, list_known_nodes
from geolog.metadata.repair_queue import RepairReason
from geolog.metadata.replaced_nodes import UnknownNodeError
from geolog.protocol.ids import EntryId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord
from tests.pure.whole.clusters import STREAM, World, append_each, numbered, open_world
from topology.errors import InvalidArgumentError

SESSION_GONE_S = 10.0


async def written(world: World) -> LedgerRecord:
    """A closed ledger with some values."""
    async with world.log.open_writer(STREAM) as writer:
        await append_each(writer, numbered(10))
    (segment,) = await world.log.list_segments(STREAM)
    return (await world.log.access.ledgers.read(LedgerId(segment.ledger))).record


async def lose(world: World, node_id: str) -> NodeRecord:
    known = await list_known_nodes(world.log.access.metadata, "default")
    await world.cluster.kill(node_id)
    await trio.sleep(SESSION_GONE_S)
    return next(one for one in known if one.node_id == node_id)


async def replace(world: World, node_id: str, successor_id: str) -> ReplaceReport:
    replacer = NodeReplacer(world.log.access, CopyConfig())
    return await replacer.replace(node_id, successor_id=successor_id)


async def test_a_slot_in_another_region_gives_a_warning_and_in_too_few_regions_is_refused(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        ledger = await written(world)
        first, second, third = ledger.fragments[0].ensemble
        for number in (8, 9):
            await world.cluster.add_node(
                f"new-{number}", f"/{third.location.region}/r-{number}"
            )
        await lose(world, first.node_id)
        await lose(world, second.node_id)

        warned = await replace(world, first.node_id, "new-8")
        refused = await replace(world, second.node_id, "new-9")

        assert warned.is_complete
        (warning,) = warned.warnings
        assert "would not keep an ack set after losing any one region" in warning
        (remaining,) = refused.remaining
        assert (remaining.ledger, remaining.may_pass) == (ledger.ledger, False)
        assert "would not span enough regions" in remaining.why


async def test_a_member_does_not_take_a_second_slot(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        ledger = await written(world)
        first, second = ledger.fragments[0].ensemble[:2]
        await lose(world, first.node_id)

        report = await replace(world, first.node_id, second.node_id)

        (remaining,) = report.remaining
        assert f"node {second.node_id} is already a member" in remaining.why
        assert not remaining.may_pass


async def test_a_change_whose_answer_was_lost_is_recognised(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        ledger = await written(world)
        (lost, *_) = ledger.fragments[0].ensemble
        await lose(world, lost.node_id)
        await world.cluster.add_node("new", f"/{lost.location.region}/rack-9")
        access = world.log.access
        await access.metadata.ensure_path(access.paths.nodes_replaced)
        world.session.lose_next_answer()  # The answer to giving up the old disk.

        first = await replace(world, lost.node_id, "new")
        again = await replace(world, lost.node_id, "new")

        assert (first.is_complete, first.fragments_changed) == (True, 1)
        assert (again.is_complete, again.fragments_changed, again.ledgers) == (True, 0, 0)


async def test_a_member_whose_change_is_stored_without_an_answer_is_not_copied_again(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        ledger = await written(world)
        (lost, *_) = ledger.fragments[0].ensemble
        await lose(world, lost.node_id)
        await world.cluster.add_node("new", f"/{lost.location.region}/rack-9")
        lose_answers = iter([world.session.lose_next_answer])

        def on_progress(told: ReplaceTold) -> None:
            if told.copied.copies_stored == 10:
                next(lose_answers, lambda: None)()

        replacer = NodeReplacer(world.log.access, CopyConfig(), on_progress=on_progress)
        report = await replacer.replace(lost.node_id, successor_id="new")

        assert (report.is_complete, report.fragments_changed) == (True, 1)
        assert (report.copies_stored, report.warnings) == (10, [])


async def test_a_deleted_stream_leaves_nothing_to_replace(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        ledger = await written(world)
        (lost, *_) = ledger.fragments[0].ensemble
        await world.log.delete_stream(STREAM)
        await lose(world, lost.node_id)

        report = await NodeReplacer(world.log.access, CopyConfig()).replace(lost.node_id)

        assert report.is_complete
        assert report.successor is None, "nobody is waited for"


async def test_a_stream_deleted_during_the_copy_leaves_nothing_to_replace(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_world() as world:
        ledger = await written(world)
        (lost, *_) = ledger.fragments[0].ensemble
        await lose(world, lost.node_id)
        await world.cluster.add_node("new", f"/{lost.location.region}/rack-9")
        ledgers = world.log.access.ledgers
        replace_record = LedgerMetadata.replace

        async def delete_first(read: VersionedLedger, record: LedgerRecord) -> VersionedLedger:
            await world.log.delete_stream(STREAM)
            return await replace_record(ledgers, read, record)

        monkeypatch.setattr(ledgers, "replace", delete_first)
        report = await replace(world, lost.node_id, "new")

        assert (report.is_complete, report.fragments_changed) == (True, 0)


async def test_a_preflight_reports_what_losing_the_nodes_would_do(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        ledger = await written(world)
        members = [member.node_id for member in ledger.fragments[0].ensemble]
        access = world.log.access

        assert (await preflight(access, members[:1])).is_safe
        assert (await preflight(access, members[:1] * 2)).nodes == members[:1]
        report = await preflight(access, members)
        assert [risk.risk for risk in report.risks] == ["reads"]
        with pytest.raises(UnknownNodeError, match="did you mean 'us-east-1'"):
            await preflight(access, ["us-east-11"])


async def test_the_staying_members_of_a_queued_ledger_are_asked(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3))
            (segment,) = await world.log.list_segments(STREAM)
            first, second, third = segment.ensemble
            await world.cluster.kill(first)
            await append_each(writer, numbered(4))
        await world.cluster.start(first)
        await trio.sleep(5)
        access = world.log.access
        await access.repair_queue.enqueue(LedgerId(segment.ledger), RepairReason.COPIES_MISSING)

        one_goes = await preflight(access, [second])
        two_go = await preflight(access, [second, third])

        assert one_goes.is_safe
        (risk,) = two_go.risks
        assert "4 entries of fragment 0 have no other copy now" in risk.why


async def test_a_ledger_is_described_while_it_is_written_and_when_members_are_away(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.log.open_writer(STREAM) as writer:
        await append_each(writer, numbered(3))
        await trio.sleep(1)  # The members learn the LAC.
        (segment,) = await world.log.list_segments(STREAM)
        access, ledger = world.log.access, LedgerId(segment.ledger)
        at_first = await describe_ledger(access, ledger)
        away = segment.ensemble[0]
        await world.cluster.kill(away)
        silent = await describe_ledger(access, ledger)
        await trio.sleep(SESSION_GONE_S / 2)

        assert (at_first.state, at_first.last_entry, at_first.lac) == ("open", None, 2)
        assert [one.copies for one in at_first.members] == [3] * len(segment.ensemble)
        states = {one.node_id: (one.state, one.copies) for one in silent.members}
        assert states[away] == ("silent", None)


async def test_entries_of_an_open_ledger_are_read_up_to_the_lac(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.log.open_writer(STREAM) as writer:
        await append_each(writer, numbered(3))
        await trio.sleep(1)  # The members learn the LAC.
        (segment,) = await world.log.list_segments(STREAM)
        access = world.log.access
        record = (await access.ledgers.read(LedgerId(segment.ledger))).record
        taken: list[FetchedEntry] = []

        end = await ledger_end(access, record)
        await read_entries(access, record, EntryId(1), end, taken.append)

        found = [value.value for fetched in taken for value in values_of(fetched)]
        assert found == numbered(3)[1:]
        with pytest.raises(InvalidArgumentError, match=r"no entry 9: .* entries 0 to 2"):
            await read_entries(access, record, EntryId(0), EntryId(9), taken.append)
        with pytest.raises(InvalidArgumentError, match=r"no entry -5: .* entries 0 to 2"):
            await read_entries(access, record, EntryId(0), EntryId(-5), taken.append)


async def test_an_unknown_ledger_is_refused_with_the_nearest_id(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        with pytest.raises(NoSuchLedgerError, match="there are no ledgers yet"):
            await describe_ledger(world.log.access, LedgerId(4))
        ledger = await written(world)
        with pytest.raises(NoSuchLedgerError, match="the nearest is"):
            await describe_ledger(world.log.access, LedgerId(ledger.ledger + 5000))


async def test_a_node_that_is_down_is_described_from_metadata(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        ledger = await written(world)
        (lost, *_) = ledger.fragments[0].ensemble
        await lose(world, lost.node_id)

        details = await describe_node(world.log.access, lost.node_id)

        assert (details.state, details.status, details.why_silent) == (
            "down",
            None,
            "it is down",
        )
        assert (details.fragments_closed, details.fragments_open) == (1, 0)
