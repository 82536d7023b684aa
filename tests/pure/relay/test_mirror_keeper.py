"""Mirrors stay open from one bridge to the next, and one bridge at a time feeds each."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import cast

import attrs
import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.partition.mirror_writer import MirrorWriter
from geolog.protocol.stream_state import OwnerRecord
from geolog.protocol.watermark import Watermark
from relay.bridge.mirror_keeper import MirrorUser, open_mirrors
from sim.in_process import open_in_process_cluster
from tests.pure.relay.test_bridges import address_of, open_ends, open_home, wait_equal
from tests.pure.whole.clusters import append_each
from tests.pure.whole.mirroring import (
    HOME,
    REGIONS,
    STREAM,
    TARGET,
    create,
    entries_of,
    home_of,
    mirror_of,
    record_of,
    relayed,
)
from topology.errors import (
    FencedError,
    GeologError,
    NoSuchStreamError,
    UnavailableError,
)


@attrs.define(eq=False)
class Channel:
    """A channel that feeds a mirror, and hears what happens to it."""

    marks: list[Watermark] = attrs.field(factory=list)
    taken: list[GeologError] = attrs.field(factory=list)

    def on_durable(self, watermark: Watermark) -> None:
        self.marks.append(watermark)

    @property
    def user(self) -> MirrorUser:
        return MirrorUser(self, self.taken.append)


async def owner_of(log: geolog.Log) -> OwnerRecord:
    name = await mirror_of(log)
    return (await log.access.partitions.owners.read_latest(name)).record


async def test_a_mirror_stays_owned_while_the_homes_coordinator_changes(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_ends(cluster, TARGET, 1) as ends,
        ends.open_mirrors() as mirrors,
    ):
        await create(log)
        async with log.open_writer(STREAM, writer_id="till") as writer:
            epochs = []
            for relay_epoch in (1, 2, 3):
                async with (
                    open_home(cluster, relay_epoch),
                    trio.open_nursery() as nursery,
                ):
                    await append_each(writer, [b"%d" % number for number in range(20)])
                    nursery.start_soon(ends.mirror, HOME, address_of(relay_epoch), mirrors)
                    await wait_equal(log)
                    epochs.append((await owner_of(log)).epoch)
                    nursery.cancel_scope.cancel()

        assert epochs == [epochs[0]] * 3
        assert mirrors.opened_count == 1


async def test_a_mirror_that_another_channel_takes_is_told_with_all_that_it_has(
    autojump_clock: MockClock,
) -> None:
    first, second = Channel(), Channel()
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        cluster.open_client(TARGET) as far,
        open_mirrors(far) as mirrors,
    ):
        await create(log)
        async with log.open_writer(STREAM, writer_id="till") as writer:
            await append_each(writer, [b"%d" % number for number in range(20)])
        entries = relayed(await entries_of(log, await home_of(log)), behind=None)
        record, name = await record_of(log), await mirror_of(log)
        async with mirrors.use(record, name, first.user) as mirror:
            for entry in entries[:10]:
                mirror.push(entry)
            async with mirrors.use(record, name, second.user) as same:
                told = same.watermark
                same.push(entries[10])
                await same.wait_durable()

    assert same is mirror
    assert told == entries[9].mark
    assert [type(one) for one in first.taken] == [UnavailableError]
    assert second.marks[-1] == entries[10].mark
    assert entries[10].mark not in first.marks
    assert second.taken == []


async def test_a_mirror_that_no_bridge_feeds_is_closed_after_a_while(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        cluster.open_client(TARGET) as far,
        open_mirrors(far) as mirrors,
    ):
        await create(log)
        record, name = await record_of(log), await mirror_of(log)
        async with mirrors.use(record, name, Channel().user):
            await trio.sleep(100)
            is_used = (await owner_of(log)).presence != ""
        await trio.sleep(20)
        is_kept = (await owner_of(log)).presence != ""
        await trio.sleep(20)
        is_left = (await owner_of(log)).presence == ""
        async with mirrors.use(record, name, Channel().user):
            pass

    assert (is_used, is_kept, is_left) == (True, True, True)
    assert mirrors.opened_count == 2


async def test_a_mirror_whose_stream_is_deleted_fails_and_can_be_opened_no_more(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        cluster.open_client(TARGET) as far,
        open_mirrors(far) as mirrors,
    ):
        await create(log)
        record, name = await record_of(log), await mirror_of(log)
        async with mirrors.use(record, name, Channel().user) as mirror:
            await log.delete_stream(STREAM)
            failure = await mirror.wait_failed()
        again: GeologError | None = None
        try:
            async with mirrors.use(record, name, Channel().user):
                pass
        except geolog.NoSuchStreamError as error:
            again = error

    assert isinstance(failure, geolog.NoSuchStreamError)
    assert again is not None


async def use(opening: AbstractAsyncContextManager[MirrorWriter]) -> None:
    async with opening:
        pass


async def _fail(error: Exception) -> None:
    raise error


class _Buggy:
    """A log whose mirrors fail, in two of their tasks at once."""

    def __init__(self, *errors: Exception) -> None:
        self.partition_opener = self
        self._errors = errors

    @asynccontextmanager
    async def open_mirror(self, *given: object) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            for error in self._errors:
                nursery.start_soon(_fail, error)
        yield


@pytest.mark.parametrize(
    ("errors", "why", "bugs_count"),
    [
        # Either of two tasks may fail first: the scheduler decides.
        (
            (NoSuchStreamError("gone"), FencedError("taken")),
            (NoSuchStreamError, FencedError),
            0,
        ),
        ((NoSuchStreamError("gone"), IndexError()), (UnavailableError,), 1),
        ((IndexError(),), (UnavailableError,), 1),
    ],
    ids=["two at once", "a bug among them", "a bug"],
)
async def test_a_mirror_that_fails_in_several_tasks_ends_alone(
    autojump_clock: MockClock,
    errors: tuple[Exception, ...],
    why: tuple[type[GeologError], ...],
    bugs_count: int,
) -> None:
    async with open_in_process_cluster(REGIONS) as cluster, cluster.open_client(HOME) as log:
        await create(log)
        record, name = await record_of(log), await mirror_of(log)
        async with open_mirrors(cast("geolog.Log", _Buggy(*errors))) as mirrors:
            with pytest.raises(why):
                await use(mirrors.use(record, name, Channel().user))

    assert mirrors.bugs_count == bugs_count
