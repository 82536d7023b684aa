"""A writer with a spool: on the local disk first, then in the log, each record once."""

import json
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

import geolog
from geolog.client.spooling.spool_directory import holder_of, read_spool, refused_lines
from geolog.client.spooling.spool_facts import SpoolFacts
from geolog.client.spooling.spool_inlet import SpoolConfig
from geolog.client.spooling.spooled_writer import SpooledWriter, open_spooled_writer
from tests.pure.proxy.proxies import open_proxy
from tests.pure.whole.clusters import (
    STREAM,
    World,
    ended_by,
    move_home,
    numbered,
    open_world,
    records_of,
    values_of,
)

TILL = "till-7"
FIRST_FILE = "000000000000.frames"


def crash() -> None:
    raise ZeroDivisionError


def it_opened() -> None:
    raise AssertionError("it opened")


@attrs.define
class Way:
    """The way from an application to the log, which may be cut."""

    log: geolog.Log
    is_cut: bool = False

    @asynccontextmanager
    async def open_writer(self) -> AsyncIterator[geolog.Writer]:
        if self.is_cut:
            raise geolog.UnavailableError("no proxy answers")
        async with self.log.open_writer(STREAM, writer_id=TILL) as writer:
            yield writer

    @asynccontextmanager
    async def spooled(
        self, path: Path, *, spool_bytes: int = 1 << 26
    ) -> AsyncIterator[SpooledWriter]:
        async with open_spooled_writer(
            path,
            SpoolFacts(cluster="default", stream=STREAM, writer_id=TILL),
            SpoolConfig(spool_bytes=spool_bytes),
            open_writer=self.open_writer,
            rng=random.Random(0),
            now_us=lambda: 1_700_000_000_000_000,
        ) as writer:
            yield writer


@asynccontextmanager
async def opened(
    world: World, path: Path, *, writer_id: str = TILL, spool_bytes: int = 1 << 26
) -> AsyncIterator[geolog.Writer]:
    async with world.log.open_writer(
        STREAM, writer_id=writer_id, spool=path, spool_bytes=spool_bytes
    ) as writer:
        yield writer


async def test_records_are_on_the_local_disk_and_then_in_the_log(tmp_path: Path) -> None:
    async with open_world() as world:
        async with opened(world, tmp_path / "spool") as writer:
            receipt = await writer.append(b"record 0", key=b"k")
            await writer.post(b"record 1")
            pending = writer.append_nowait(b"record 2", transaction_id=7)
            await writer.wait_spooled()
            on_disk = sum(one.count for one in read_spool(tmp_path / "spool").frames)
            await writer.flush()

        assert on_disk == 3
        assert (receipt.sequence, (await pending.wait()).sequence) == (0, 2)
        assert await values_of(world.log) == numbered(3)


async def test_a_direct_writer_that_passes_by_does_not_stop_a_spool_behind_proxies(
    tmp_path: Path,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east"),
        world.cluster.open_client("us-east", host="till", via="proxy") as log,
        log.open_writer(STREAM, writer_id=TILL, spool=tmp_path / "spool") as writer,
    ):
        await writer.append(b"record 0")
        async with (
            world.cluster.open_client("us-east", host="operator") as direct_log,
            direct_log.open_writer(STREAM) as direct,
        ):
            await direct.append(b"record 1")
            await writer.post(b"record 2")
            await trio.sleep(2)
        await writer.post(b"record 3")
        with trio.fail_after(60):
            await writer.flush()
        assert await values_of(world.log) == numbered(4)


async def test_a_spool_waits_until_the_direct_writer_has_left(tmp_path: Path) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east"),
        world.cluster.open_client("us-east", host="till", via="proxy") as log,
    ):
        async with (
            world.cluster.open_client("us-east", host="operator") as direct_log,
            direct_log.open_writer(STREAM) as direct,
        ):
            await direct.append(b"record 0")
            async with log.open_writer(
                STREAM, writer_id=TILL, spool=tmp_path / "spool"
            ) as writer:
                await writer.post(b"record 1")
                await trio.sleep(1)
        async with log.open_writer(STREAM, writer_id=TILL, spool=tmp_path / "spool") as writer:
            await writer.post(b"record 2")
            with trio.fail_after(60):
                await writer.flush()
        assert await values_of(world.log) == numbered(3)


async def test_what_the_log_did_not_answer_is_sent_by_the_next_writer(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    async with open_world() as world:
        way = Way(world.log)
        async with way.spooled(path) as writer:
            await writer.append(b"record 0")
        way.is_cut = True
        with ended_by(ZeroDivisionError):
            async with way.spooled(path) as writer:
                for value in numbered(9, start=1):
                    await writer.post(value)
                figures = writer.spool_statistics()
                crash()
        way.is_cut = False
        crashed = shutil.copytree(path, tmp_path / "crashed")
        async with way.spooled(path) as writer:
            await writer.flush()
            created_us = [one.created_us for one in await records_of(world.log)]
        # A second copy of the same records, as after a crash before the mark was written.
        async with way.spooled(crashed) as writer:
            await writer.append(b"record 10")

        assert figures.unanswered_records == 9
        assert (figures.is_connected, figures.trouble) == (False, "no proxy answers")
        assert await values_of(world.log) == numbered(11)
        assert created_us == [1_700_000_000_000_000] * 10


async def test_a_crash_at_any_byte_loses_nothing_that_was_promised(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    async with open_world() as world:
        promised = [0]
        with ended_by(ZeroDivisionError):
            async with Way(world.log, is_cut=True).spooled(path) as writer:
                for value in numbered(6):
                    await writer.post(value)
                    promised.append((path / FIRST_FILE).stat().st_size)
                crash()
        data = (path / FIRST_FILE).read_bytes()
        for end in [*random.Random(1).sample(range(1, len(data)), 10), *promised[1:]]:
            cut = shutil.copytree(path, tmp_path / f"cut-{end}")
            (cut / FIRST_FILE).write_bytes(data[:end])
            rename_writer(cut, f"till-{end}")
            before_count = len(await values_of(world.log))
            async with opened(world, cut, writer_id=f"till-{end}") as writer:
                await writer.flush()
            whole = sum(one <= end for one in promised[1:])
            assert (await values_of(world.log))[before_count:] == numbered(whole)
            assert bool(list(cut.glob("torn-*"))) == (end not in promised)


def rename_writer(path: Path, writer_id: str) -> None:
    facts = json.loads((path / "spool.json").read_bytes())
    (path / "spool.json").write_text(json.dumps(facts | {"writer_id": writer_id}))


async def test_seqs_of_an_earlier_writer_without_a_spool_are_not_used_again(
    tmp_path: Path,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM, writer_id=TILL) as plain:
            await plain.append(b"record 0")
            await plain.append(b"record 1")
        async with opened(world, tmp_path / "spool") as writer:
            await writer.append(b"record 2")
            highest = writer.seq_highest

        assert highest == 2
        assert await values_of(world.log) == numbered(3)


async def test_a_record_that_the_log_refuses_for_good_is_kept_aside(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    async with open_world() as world:
        async with world.log.open_writer(STREAM, writer_id="other") as plain:
            await plain.append(b"record 0", transaction_id=50)
        async with opened(world, path) as writer:
            good = writer.append_nowait(b"record 1")
            bad = writer.append_nowait(b"goes back", transaction_id=7)
            later = writer.append_nowait(b"record 2", transaction_id=51)
            assert (await good.wait()).sequence == 1
            assert (await later.wait()).sequence == 2
            with pytest.raises(geolog.ConflictError, match="transaction id 7"):
                await bad.wait()
            await writer.post(b"goes back too", transaction_id=8)
            with pytest.raises(geolog.ConflictError, match="transaction id 8"):
                await writer.flush()
        kept = [json.loads(line) for line in refused_lines(path)]

        assert [one["value"] for one in kept] == ["goes back", "goes back too"]
        assert [one["seq"] for one in kept] == [1, 3]
        assert await values_of(world.log) == numbered(3)


async def test_other_bytes_under_a_seq_that_the_log_has_are_kept_aside(tmp_path: Path) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM, writer_id=TILL) as plain:
            await plain.append(b"record 0", seq=0)
        async with opened(world, tmp_path / "spool") as writer:
            other = writer.append_nowait(b"other bytes", seq=0)
            same = writer.append_nowait(b"record 1", seq=4)
            assert (await same.wait()).sequence == 1
            with pytest.raises(geolog.ConflictError):
                await other.wait()

        assert len(list(refused_lines(tmp_path / "spool"))) == 1
        assert await values_of(world.log) == numbered(2)


async def test_a_sealed_stream_stops_the_spool_and_its_records_stay(tmp_path: Path) -> None:
    async with open_world() as world:
        with ended_by(geolog.SealedError):
            async with opened(world, tmp_path / "spool") as writer:
                await writer.append(b"record 0")
                await world.log.seal_stream(STREAM)
                pending = writer.append_nowait(b"too late")
                with pytest.raises(geolog.SealedError, match="stays in") as told:
                    await pending.wait()
                await writer.flush()

        assert told.value.outcome == "unknown"
        found = read_spool(tmp_path / "spool")
        assert sum(one.count for one in found.frames[found.mark.frame :]) == 1


async def test_a_spool_of_a_stream_that_was_made_again_is_refused(tmp_path: Path) -> None:
    async with open_world() as world:
        async with opened(world, tmp_path / "spool") as writer:
            await writer.append(b"record 0")
        await world.log.delete_stream(STREAM)
        await world.log.create_stream(STREAM, survive="1 region")
        with ended_by(geolog.NoSuchStreamError) as ended:
            async with opened(world, tmp_path / "spool"):
                it_opened()

        assert "was deleted and created again" in str(ended.error)


@pytest.mark.parametrize("stolen_count", [1, 3])
async def test_another_session_of_the_writer_ends_the_spool(
    tmp_path: Path, stolen_count: int
) -> None:
    path = tmp_path / "spool"
    async with open_world() as world:
        with ended_by(geolog.FencedError):
            async with opened(world, path) as writer:
                await writer.append(b"record 0")
                async with (
                    world.cluster.open_client("eu-west", host="thief") as log,
                    log.open_writer(STREAM, writer_id=TILL) as thief,
                ):
                    for value in numbered(stolen_count, start=1):
                        await thief.append(value)
                await writer.append(b"ours")
        if stolen_count == 1:  # Its seq has other bytes in the log.
            with ended_by(geolog.ConflictError):
                async with opened(world, path) as writer:
                    await writer.flush()
            assert [json.loads(one)["value"] for one in refused_lines(path)] == ["ours"]
        else:
            with ended_by(geolog.SpoolSeqsTakenError):
                async with opened(world, path):
                    it_opened()

        assert await values_of(world.log) == numbered(stolen_count + 1)


async def test_answered_records_that_a_lost_home_had_are_sent_again(tmp_path: Path) -> None:
    async with open_world() as world:
        async with opened(world, tmp_path / "spool") as writer:
            for value in numbered(3):
                await writer.append(value)
        # As if the new home had nothing of this writer: the stream is another one to it.
        async with opened(world, tmp_path / "spool", writer_id=TILL) as writer:
            await writer.flush()
            await move_home(world, 2)
        facts = json.loads((tmp_path / "spool" / "spool.json").read_bytes())
        rename_writer(tmp_path / "spool", "till-8")
        (tmp_path / "spool" / "spool.json").write_text(
            json.dumps(facts | {"writer_id": "till-8", "home_epoch": 1})
        )
        async with opened(world, tmp_path / "spool", writer_id="till-8") as writer:
            await writer.append(b"record 3")
            home_epoch = writer.home_epoch

        assert home_epoch == 2
        assert await values_of(world.log) == [*numbered(3), *numbered(4)]


async def test_a_full_spool_makes_appends_wait(tmp_path: Path) -> None:
    path, rng = tmp_path / "spool", random.Random(0)
    async with open_world() as world:
        way = Way(world.log, is_cut=True)
        async with way.spooled(path, spool_bytes=4 << 20) as writer:
            taken = 0
            with trio.move_on_after(1.0) as waiting:
                while True:
                    await writer.post(rng.randbytes(100_000))
                    taken += 1
            size_bytes = sum(one.stat().st_size for one in path.glob("*.frames"))
            way.is_cut = False
            await writer.post(b"the last")
            await writer.flush()

        assert waiting.cancelled_caught
        assert 4 << 19 < size_bytes <= 4 << 20
        assert len(await values_of(world.log)) == taken + 1


async def test_a_spool_serves_one_writer_at_a_time_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    async with open_world() as world:
        async with opened(world, path):
            assert holder_of(path) is not None
            with ended_by(geolog.SpoolInUseError):
                async with opened(world, path):
                    it_opened()
        with ended_by(geolog.SpoolMismatchError) as ended:
            async with opened(world, path, writer_id="till-8"):
                it_opened()
        assert "is the spool of writer 'till-7', not 'till-8'" in str(ended.error)
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "novel.txt").write_text("")
        with ended_by(geolog.InvalidArgumentError):
            async with opened(world, tmp_path / "other"):
                it_opened()
        assert holder_of(path) is None


async def test_damage_is_told_and_never_skipped(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    async with open_world() as world:
        with ended_by(ZeroDivisionError):
            async with Way(world.log, is_cut=True).spooled(path) as writer:
                for value in numbered(3):
                    await writer.post(value)
                crash()
        name = path / FIRST_FILE
        data = bytearray(name.read_bytes())
        data[20] ^= 1
        name.write_bytes(data)
        with ended_by(geolog.SpoolDamagedError) as ended:
            async with opened(world, path):
                it_opened()

    assert "frames 0 to 0 have no answer and are gone: byte 0 of" in str(ended.error)


async def test_a_disk_that_fails_is_told_and_nothing_else_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "spool"
    async with open_world() as world:
        with ended_by(geolog.SpoolWriteError) as ended:
            async with opened(world, path) as writer:
                await writer.append(b"record 0")
                full = OSError(28, "No space left on device")
                monkeypatch.setattr(
                    "geolog.client.spooling.spool_directory._write_all", partial(_raise, full)
                )
                await writer.post(b"record 1")
        monkeypatch.undo()
        async with opened(world, path) as writer:
            await writer.append(b"record 1")

        assert "No space left on device" in str(ended.error)
        assert await values_of(world.log) == numbered(2)


def _raise(error: OSError, *_: object) -> None:
    raise error


async def test_arguments_that_a_spool_cannot_have_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    async with open_world() as world:
        with ended_by(geolog.InvalidArgumentError) as ended:
            async with world.log.open_writer(STREAM, spool=path):
                it_opened()
        assert "a spool needs a named writer" in str(ended.error)
        with ended_by(geolog.InvalidArgumentError):
            async with world.log.open_writer(
                STREAM, writer_id=TILL, spool=path, ack="received"
            ):
                it_opened()
        with ended_by(geolog.InvalidArgumentError):
            async with opened(world, path, spool_bytes=1):
                it_opened()
        async with opened(world, path) as writer:
            with pytest.raises(geolog.InvalidArgumentError, match="cannot expect a sequence"):
                writer.append_nowait(b"", expect_sequence=1)
            await writer.append(b"record 0")
            with pytest.raises(geolog.InvalidArgumentError, match="numbered itself"):
                writer.append_nowait(b"", seq=5)
        async with world.log.open_writer(STREAM) as plain:
            with pytest.raises(geolog.InvalidArgumentError, match="has no spool"):
                await plain.wait_spooled()


async def test_a_seq_that_the_spool_took_before_is_answered_as_forgotten(
    tmp_path: Path,
) -> None:
    async with open_world() as world:
        async with opened(world, tmp_path / "spool") as writer:
            await writer.append(b"record 0", seq=3)
            with pytest.raises(geolog.ForgottenSeqError):
                writer.append_nowait(b"record 0", seq=3)

        assert await values_of(world.log) == numbered(1)


async def test_records_of_several_partitions_come_once_after_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    async with open_world() as world:
        await world.log.create_stream("shop/wide", survive="1 region", partitions=3)
        again = partial(world.log.open_writer, "shop/wide", writer_id=TILL)
        async with again(spool=path) as writer:
            for number in range(400):
                await writer.append_nowait(
                    b"record %d" % number, key=b"%d" % (number % 7)
                ).wait() if number % 100 == 0 else await writer.post(
                    b"record %d" % number, key=b"%d" % (number % 7)
                )
            crashed = shutil.copytree(path, tmp_path / "crashed")
            await writer.flush()
        async with again(spool=crashed) as writer:
            await writer.flush()
        async with world.log.open_reader("shop/wide") as reader:
            values = sorted([record.value async for record in reader])

        assert values == sorted(numbered(400))
