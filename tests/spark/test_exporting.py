"""Exports of a real cluster by a real Spark session: incremental, and each record once."""

import json
import os
import random
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import attrs
import pytest
from pyspark.sql import DataFrame, SparkSession

import geolog
from geolog.spark import export as export_module
from geolog.spark.export import ExportReport, ExportSource, export
from geolog.spark.export_target import CHECKPOINT
from geolog.spark.job_files import JobFiles
from tests.spark.demo_stream import connected, write
from tests.spark.short_java import SHORT_JAVA
from tests.static.checkout import ROOT
from tests.system.demo_process import GEOLOG, DemoProcess, plain_environment
from topology.errors import ConflictError, NoSuchStreamError, TrimmedError, UnavailableError

PAGE = (ROOT / "docs" / "SPARK_EXPORT.md").read_text(encoding="utf-8")


class FailingFiles(JobFiles):
    """Files of which one cannot be created, or only so many be renamed: the run ends there."""

    refused = ""
    renames_left = 10**6

    def create(self, name: str, text: str) -> bool:
        if self.refused and self.refused in name:
            raise UnavailableError("the disk is gone")
        return super().create(name, text)

    def rename(self, name: str, to: str) -> None:
        if self.renames_left == 0:
            raise UnavailableError("the disk is gone")
        type(self).renames_left -= 1
        super().rename(name, to)


@attrs.frozen
class Exports:
    """Exports into one directory."""

    spark: SparkSession
    zookeeper: str
    directory: Path
    rng: random.Random = attrs.field(factory=lambda: random.Random(1))

    def run(self, stream: str, *, accepts_gaps: bool = False) -> ExportReport:
        source = ExportSource(
            zookeeper=self.zookeeper,
            cluster="demo",
            stream=stream,
            accepts_gaps=accepts_gaps,
            cursor="export",
        )
        return export(self.spark, source, str(self.directory), rng=self.rng)

    def rows(self) -> DataFrame:
        return self.spark.read.parquet(str(self.directory))

    def rows_of_stream(self, stream: str) -> DataFrame:
        reader = self.spark.read.format("geolog").option("zookeeper", self.zookeeper)
        reader = reader.option("cluster", "demo").option("includeHeaders", "true")
        return reader.option("stream", stream).load()

    def is_equal_to(self, stream: str) -> bool:
        """Whether the files have the records of the stream, each once, and no other."""
        exported, stored = (
            frame.selectExpr(
                *("stream", "partition", "sequence", "segment", "entry", "slot"),
                *("timestamp", "transaction_id", "key", "value"),
                "array_sort(map_entries(headers)) headers",
            )
            for frame in (self.rows(), self.rows_of_stream(stream))
        )
        # Python compares a few hundred rows faster than Spark plans to.
        return Counter(map(str, exported.collect())) == Counter(map(str, stored.collect()))


@pytest.fixture
def exports(spark: SparkSession, zookeeper: str, tmp_path: Path) -> Exports:
    return Exports(spark, zookeeper, tmp_path / "lake")


def test_an_export_has_each_record_once_though_runs_end_at_every_step(
    exports: Exports, zookeeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = "export/orders"
    write(zookeeper, stream, partitions=2, count=300, copies=2)
    monkeypatch.setattr(export_module, "JobFiles", FailingFiles)

    monkeypatch.setattr(FailingFiles, "refused", "batches/000000.json")
    with pytest.raises(UnavailableError, match="the disk is gone"):
        exports.run(stream)
    assert list(exports.directory.glob("day=*")) == []
    monkeypatch.setattr(FailingFiles, "refused", "")
    monkeypatch.setattr(FailingFiles, "renames_left", 1)
    with pytest.raises(UnavailableError, match="the disk is gone"):
        exports.run(stream)
    assert len(list(exports.directory.glob("day=*/hour=*/*.parquet"))) == 1
    monkeypatch.setattr(FailingFiles, "renames_left", 10**6)
    first = exports.run(stream)
    write(zookeeper, stream, partitions=2, count=50, copies=2)
    second = exports.run(stream)

    assert (first.batches, first.records) == (1, 300)
    assert (second.batches, second.records) == (1, 50)
    assert exports.is_equal_to(stream)
    in_utc = "date_format(to_utc_timestamp(timestamp, current_timezone()), 'yyyy-MM-dd H')"
    hours = exports.rows().selectExpr(f"{in_utc} = concat(day, ' ', hour) right").distinct()
    assert [row["right"] for row in hours.collect()] == [True]
    assert list(exports.directory.glob("_geolog/staging/*")) == []


@pytest.mark.long
def test_a_checkpoint_that_is_gone_or_older_is_refused_and_loses_no_rows(
    exports: Exports, zookeeper: str, tmp_path: Path
) -> None:
    stream = "export/restored"
    checkpoint, backup = exports.directory / CHECKPOINT, tmp_path / "backup"
    write(zookeeper, stream, count=20, copies=2)
    exports.run(stream)
    shutil.copytree(checkpoint, backup)
    write(zookeeper, stream, count=5, copies=2)
    exports.run(stream)
    write(zookeeper, stream, count=5, copies=2)

    checkpoint.rename(tmp_path / "newest")
    with pytest.raises(ConflictError, match=r"checkpoint is gone.*into a new directory"):
        exports.run(stream)
    shutil.copytree(backup, checkpoint)
    with pytest.raises(ConflictError, match="batch 1 with other records than its checkpoint"):
        exports.run(stream)
    shutil.rmtree(checkpoint)
    (tmp_path / "newest").rename(checkpoint)
    exports.run(stream)

    assert exports.is_equal_to(stream)


@pytest.mark.long
def test_the_pages_command_exports_and_tells_each_batch(
    exports: Exports, zookeeper: str, demo: DemoProcess
) -> None:
    [command] = re.findall(r"^\$ (geolog pipeline export .*)$", PAGE, re.MULTILINE)
    write(zookeeper, "export/items", count=20, copies=2)
    words = command.replace("shop/orders", "export/items").replace("/data/orders", "{}")
    _, *argv = words.format(exports.directory).split()
    # Spark's own start is a script: it needs a shell on PATH, which other commands do without.
    path = plain_environment()["PATH"] + os.pathsep + os.defpath

    done = subprocess.run(
        [*GEOLOG, *argv, "-o", "json"],
        env=plain_environment()
        | SHORT_JAVA
        | {"PATH": path, "GEOLOG_CONFIG": str(demo.config)},
        capture_output=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr.decode()
    report = json.loads(done.stdout)
    assert (report["batches"], report["records"]) == (1, 20)
    assert report["files"] == len(list(exports.directory.glob("day=*/hour=*/*.parquet")))
    java = (b"NOTE: Picked up", b"WARNING: Using incubator modules")
    said = [line for line in done.stderr.splitlines() if not line.startswith(java)]
    assert [line[:8] for line in said] == [b"batch 0:"], "Spark says nothing of its own"
    assert b"20 records in" in said[0]
    assert exports.is_equal_to("export/items")


@pytest.mark.long
def test_what_a_directory_or_a_stream_cannot_give_is_refused(
    exports: Exports, zookeeper: str, tmp_path: Path
) -> None:
    write(zookeeper, "export/parcels", count=20, copies=2)
    with pytest.raises(NoSuchStreamError, match="did you mean 'export/parcels'"):
        exports.run("export/parcel")
    exports.run("export/parcels")
    write(zookeeper, "export/letters", count=3, copies=2)
    with pytest.raises(ConflictError, match="holds the export of export/parcels in"):
        exports.run("export/letters")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    with pytest.raises(ConflictError, match="and is no export of geolog"):
        attrs.evolve(exports, directory=tmp_path / "full").run("export/parcels")
    source = ExportSource(zookeeper=zookeeper, cluster="demo", stream="export/parcels")
    with pytest.raises(
        UnavailableError, match=r"^the export failed: .*S3AFileSystem not found"
    ):
        export(exports.spark, source, "s3a://lake/parcels", rng=exports.rng)

    write(zookeeper, "export/parcels", count=20, copies=2)
    with connected(zookeeper) as log:
        log.truncate_stream("export/parcels", before=geolog.AtSequence(30))
        log.seal_stream("export/parcels")
    with pytest.raises(TrimmedError, match=r"records 20 to 29 were trimmed.*--accept-gaps; to"):
        exports.run("export/parcels")
    rest = exports.run("export/parcels", accepts_gaps=True)
    assert rest.records == 10
