"""Replays of files into streams of a real cluster by a real Spark session."""

import json
import random
from collections import defaultdict
from pathlib import Path

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trio
from pyspark.sql import SparkSession

import geolog
from geolog.catalog.partition_config import PartitionConfig
from geolog.catalog.sinks import SinkCatalog
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.client.staging.staging_writer import open_staging_writer
from geolog.protocol.sink_copy import SinkRecord
from geolog.protocol.stream_state import StreamName
from geolog.spark.export import ExportSource, export
from geolog.spark.replay import (
    ReplayReport,
    ReplaySource,
    ReplayTarget,
    replay,
    words_of_command,
)
from tests.spark.demo_stream import connected, write
from topology.errors import (
    ConflictError,
    GeologError,
    InvalidArgumentError,
    NoSuchStreamError,
    SealedError,
)


@attrs.frozen
class Replays:
    """Replays into the streams of one cluster."""

    spark: SparkSession
    zookeeper: str
    directory: Path

    def run(self, source: ReplaySource, stream: str, **options: str) -> ReplayReport:
        target = ReplayTarget(
            zookeeper=self.zookeeper, cluster="demo", stream=stream, region="b", **options
        )
        return replay(self.spark, source, target)

    def create(self, stream: str, *, partitions: int = 1) -> str:
        with connected(self.zookeeper) as log:
            log.create_stream(
                stream,
                partitions=partitions,
                ensemble_size=2,
                write_quorum=2,
                ack_quorum=2,
                min_regions=2,
            )
        return stream

    def records(self, stream: str) -> list[tuple[bytes | None, bytes, dict[str, bytes]]]:
        """Key, value and headers of the records, partition by partition."""
        found = []
        with connected(self.zookeeper) as log:
            for number in range(log.describe_stream(stream).partitions):
                with log.open_reader(f"{stream}#{number}", stop=geolog.LATEST) as reader:
                    found += [
                        (
                            None if one.key is None else bytes(one.key),
                            bytes(one.value),
                            dict(one.headers or {}),
                        )
                        for one in reader
                    ]
        return found

    def records_by_key(
        self, stream: str
    ) -> dict[bytes | None, list[tuple[bytes, dict[str, bytes]]]]:
        """Values and headers of each key, in order."""
        found = defaultdict(list)
        for key, value, headers in self.records(stream):
            found[key].append((value, headers))
        return found

    def write(self, name: str, table: dict[str, list[object]]) -> ReplaySource:
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table(table), path)
        return ReplaySource(files=str(path))


@pytest.fixture
def replays(spark: SparkSession, zookeeper: str, tmp_path: Path) -> Replays:
    return Replays(spark, zookeeper, tmp_path)


def test_rows_are_in_the_stream_once_and_in_order_for_each_key(
    replays: Replays, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = replays.create("replay/clicks", partitions=3)
    numbers = [*range(500, 1000), *range(500)]
    source = replays.write(
        "clicks.parquet",
        {
            "at": numbers,
            "user": [f"user {number % 7}" for number in numbers],
            "value": [b"%d" % number for number in numbers],
        },
    )
    ordered = attrs.evolve(source, key="user", order_by=["at"])

    first = replays.run(ordered, stream, writer="clicks")
    with pytest.raises(ConflictError, match="'clicks' is done: it has appended its 1,000"):
        replays.run(ordered, stream, writer="clicks")

    assert (first.records, first.is_resumed) == (1000, False)
    by_key = defaultdict(list)
    for key, value, _ in replays.records(stream):
        by_key[key].append(int(value))
    assert by_key == {b"user %d" % user: list(range(user, 1000, 7)) for user in range(7)}


def test_an_export_that_is_replayed_gives_each_key_the_same_records(replays: Replays) -> None:
    write(replays.zookeeper, "replay/original", partitions=2, count=200, copies=2)
    source = ExportSource(zookeeper=replays.zookeeper, cluster="demo", stream="replay/original")
    lake = str(replays.directory / "lake")
    export(replays.spark, source, lake, rng=random.Random(0))
    copy = replays.create("replay/copy", partitions=2)
    report = replays.run(ReplaySource(files=lake), copy)

    assert report.records == 200
    original, copied = (replays.records_by_key(stream) for stream in ("replay/original", copy))
    assert copied == original
    with connected(replays.zookeeper) as log:
        verified = log.verify_stream(copy, full_copies=True)
    assert (verified.is_good, verified.records) == (True, 200)


def test_lines_of_json_are_read_as_the_command_writes_them(replays: Replays) -> None:
    stream = replays.create("replay/lines")
    lines = [
        {"stream": "shop/a", "sequence": number, "value": f"{number}", "key": "k"}
        for number in range(50)
    ]
    lines.append({"value_base64": "/w==", "headers": {"h": "x", "b": {"base64": "/w=="}}})
    path = replays.directory / "lines.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    report = replays.run(ReplaySource(files=str(path), format="jsonl"), stream)

    assert report.writer == f"replay of file:{path} into {stream}"
    assert sorted(replays.records(stream), key=lambda record: record[0] is None) == [
        *((b"k", b"%d" % number, {}) for number in range(50)),
        (None, b"\xff", {"h": b"x", "b": b"\xff"}),
    ]
    path.write_text('{"value": "1"}\n{"valeu": "2"}\n')
    source = ReplaySource(files=str(path), format="jsonl")
    with pytest.raises(InvalidArgumentError, match=r'lines\.jsonl: the line {"valeu": "2"}'):
        replays.run(source, stream, writer="broken")
    assert len(replays.records(stream)) == 51


def test_what_cannot_be_replayed_is_refused_before_any_row_is_staged(
    replays: Replays,
) -> None:
    stream = replays.create("replay/items")
    numbers = replays.write("numbers.parquet", {"value": [1, 2], "kye": ["a", "b"]})

    def refused(kind: type[GeologError], words: str, source: ReplaySource, to: str) -> None:
        with pytest.raises(kind, match=words):
            replays.run(source, to)

    refused(InvalidArgumentError, "column value of .* is bigint", numbers, stream)
    keyed = attrs.evolve(numbers, value="kye", key="key")
    refused(InvalidArgumentError, "no column 'key'; did you mean 'kye'", keyed, stream)
    away = ReplaySource(files=str(replays.directory / "away"))
    refused(InvalidArgumentError, "away does not exist", away, stream)
    refused(NoSuchStreamError, "did you mean 'replay/items'", numbers, "replay/item")
    with connected(replays.zookeeper) as log:
        log.seal_stream(stream)
    refused(SealedError, "replay/items is sealed", numbers, stream)


def test_a_copy_that_a_run_has_left_is_finished_by_the_next_one(replays: Replays) -> None:
    stream = replays.create("replay/parcels")
    values = [b"%d" % number for number in range(300)]
    trio.run(leave_recorded, replays.zookeeper, stream, values)

    report = replays.run(ReplaySource(files="/not/needed/any/more"), stream, writer="left")

    assert (report.records, report.is_resumed) == (300, True)
    assert [value for _, value, _ in replays.records(stream)] == values


async def leave_recorded(zookeeper: str, stream: str, values: list[bytes]) -> None:
    """Record a batch as a driver does that dies before it has copied any of it."""
    async with geolog.connect(zookeeper=zookeeper, cluster="demo", region="b") as log:
        access = log.access
        record = await StreamCatalog(access.metadata, access.paths).read(
            StreamName.parse(stream)
        )
        async with open_staging_writer(
            access, record, "left", batch=0, run="dead", config=PartitionConfig()
        ) as writer:
            for value in values:
                writer.rows.add(value, None, None)
                await writer.send_full()
            part = await writer.seal()
        sinks = SinkCatalog(access.metadata, access.paths, access.ledgers, rng=access.rng)
        begun = SinkRecord(
            sink="left",
            source="file:/not/needed/any/more",
            batch=0,
            parts=(part,),
            is_copied=False,
            copier="dead",
        )
        await sinks.replace(await sinks.ensure("left"), begun, staged_by="dead")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ("under another name (.option('writer', NAME))", "under another name (--writer NAME)"),
        ("e.g. .option('writer', 'orders-2026-11-27')", "e.g. --writer orders-2026-11-27"),
        ("it expired. Run the batch again", "it expired. Run it again"),
        ("the stream is sealed", "the stream is sealed"),
    ],
)
def test_errors_of_the_sink_name_the_option_of_the_command(told: str, words: str) -> None:
    assert words_of_command(told) == words
