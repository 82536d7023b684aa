"""An audit finds each kind of difference, and nothing where there is none."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.admin.verification import PROBLEMS_MAX, VerifyReport
from geolog.partition.mirror_entry import MirrorEntry
from geolog.protocol.ids import SegmentEntry
from geolog.spark.audit_part import AuditFinding, audit_part, findings_in, untold_in
from geolog.wire.entry import decode_entry, encode_entry
from sim.in_process import open_in_process_cluster
from tests.pure.whole.clusters import STREAM as GLOBAL
from tests.pure.whole.clusters import open_world
from tests.pure.whole.mirroring import (
    HOME,
    REGIONS,
    STREAM,
    TARGET,
    create,
    entries_of,
    home_of,
    open_mirror,
    relay,
)
from tests.pure.whole.test_damaged_copies import filled, rot
from tests.pure.wire.samples import batch_of_values


async def findings(log: geolog.Log, stream: str) -> list[AuditFinding]:
    return list((await audit_part(log, stream, 0, mirror_patience_s=2)).findings)


async def test_a_healthy_stream_has_no_findings_and_a_flipped_byte_is_found(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        values, ensemble = await filled(world)
        healthy = await audit_part(world.log, GLOBAL, 0, mirror_patience_s=2)
        await rot(world, ensemble[1], values[7])
        found = await findings(world.log, GLOBAL)

    assert (healthy.findings, healthy.entries, healthy.copies) == ((), 20, 60)
    [finding] = found
    assert f"1 copy is damaged at {ensemble[1]}" in finding.detail


@asynccontextmanager
async def open_mirrored(entries_count: int) -> AsyncIterator[tuple[geolog.Log, geolog.Log]]:
    """Clients in the home and in the target of a stream with so many entries."""
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as home,
        cluster.open_client(TARGET) as target,
    ):
        await create(home)
        async with home.open_writer(STREAM) as writer:
            for number in range(entries_count):
                await writer.append(b"%d" % number)
        yield home, target


async def test_a_mirror_that_lacks_a_record_is_found_until_it_has_it(
    autojump_clock: MockClock,
) -> None:
    async with open_mirrored(5) as (home, target):
        await relay(target, count=4)
        lacking = await findings(home, STREAM)
        await relay(target)
        healthy = await audit_part(home, STREAM, 0, mirror_patience_s=2)

    [finding] = lacking
    assert finding.kind == "mirror"
    assert "lacks 1 records: it ends before sequence 4, its home before 5" in finding.detail
    assert (healthy.findings, healthy.entries, healthy.mirrored) == ((), 10, 5)


@pytest.mark.parametrize(("segments_more", "place"), [(0, "entry 5"), (1, "entry 0")])
async def test_a_mirror_with_a_record_too_many_is_found(
    segments_more: int, place: str, autojump_clock: MockClock
) -> None:
    """In the last segment of its home, or in one that its home does not have."""
    async with open_mirrored(5) as (home, target):
        await relay(target)
        stored = await entries_of(target, await home_of(target))
        header = decode_entry(stored[-1].data).header
        extra = encode_entry(
            [batch_of_values(b"extra")],
            home_epoch=header.home_epoch,
            segment=header.segment + segments_more,
            entry=SegmentEntry(0 if segments_more else header.entry + 1),
            first_sequence=header.next_sequence,
            append_time_us=header.append_time_us,
        )
        async with open_mirror(target) as mirror:
            mirror.push(MirrorEntry.of(extra.join(), previous=stored[-1].mark))
            await mirror.wait_durable()
        found = await findings(home, STREAM)

    [finding] = found
    assert finding.kind == "mirror"
    where = f"segment {header.segment + segments_more} {place}"
    assert f"{where}: the home does not have it" in finding.detail


async def test_a_mirror_whose_nodes_do_not_answer_is_told_of_and_its_home_is_audited(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as home,
        cluster.open_client(TARGET) as target,
    ):
        await create(home)
        async with home.open_writer(STREAM) as writer:
            await writer.append(b"0")
        await relay(target)
        for node in cluster.nodes_of(TARGET):
            await cluster.kill(node.node_id)
        audited = await audit_part(home, STREAM, 0, mirror_patience_s=2)
        verified = await home.verify_stream(STREAM)

    told = [one.detail for one in audited.findings if one.kind == "silent"]
    assert f"{STREAM}#0@{TARGET} was not compared: no node gave entry 0" in told[-1]
    assert audited.copies > 0
    assert not verified.is_good


async def test_findings_of_copies_do_not_hide_those_of_mirrors(
    autojump_clock: MockClock,
) -> None:
    report = VerifyReport("shop/carts")
    for number in range(PROBLEMS_MAX + 5):
        report.tell(f"shop/carts#0@eu-west entry {number}: 1 copy is damaged at disk-1")
    report.tell_mirror([f"entry {number} differs" for number in range(PROBLEMS_MAX + 3)])
    kinds = Counter(kind for kind, _ in findings_in(report))

    assert kinds == {"copy": PROBLEMS_MAX, "mirror": PROBLEMS_MAX}
    assert untold_in(report) == 8


async def test_copies_on_their_way_to_a_slow_node_are_no_findings(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.log.open_writer(GLOBAL) as writer:
        await writer.append(b"everywhere")
        (segment,) = await world.log.list_segments(GLOBAL)
        await world.cluster.kill(segment.ensemble[0])
        await writer.append(b"at two")
        await world.cluster.start(segment.ensemble[0])
        await trio.sleep(0.2)
        report = await world.log.verify_stream(GLOBAL)
        found = await findings(world.log, GLOBAL)

    assert found == []
    assert report.nodes[segment.ensemble[0]].copies_under_way == 1


async def test_a_missing_copy_and_a_node_that_does_not_answer_are_found(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(GLOBAL) as writer:
            await writer.append(b"everywhere")
            (segment,) = await world.log.list_segments(GLOBAL)
            lacking = segment.ensemble[0]
            await world.cluster.kill(lacking)
            await writer.append(b"at two")
        silent = await findings(world.log, GLOBAL)
        await world.cluster.start(lacking)
        await trio.sleep(5)
        found = await findings(world.log, GLOBAL)

    assert [finding.kind for finding in silent] == ["silent"]
    assert [(one.kind, one.detail) for one in found] == [("copy", f"{lacking} lacks 1 copies")]
