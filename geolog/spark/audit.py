"""The job `audit`: one task of Spark for each partition, and one report of them all.

Each task connects by itself, from the machine where it runs, and reads every copy from its
node's disk. Tasks read copies of all regions, so most bytes cross regions: run the workers
where that costs least.
"""

import time
from collections.abc import Iterable, Sequence

import attrs
import trio
from pyspark.sql import SparkSession

from geolog.protocol.stream_state import parse_target
from geolog.spark.audit_part import AuditedPart, AuditFinding, audit_part
from geolog.spark.connecting import check_streams, connect_here
from geolog.spark.job_errors import spark_errors
from geolog.transport.seam import Address
from topology.errors import GeologError, NoSuchStreamError

FINDINGS_MAX = 1000
"""Findings in a report; all are counted."""


@attrs.frozen(kw_only=True)
class AuditSite:
    """The cluster to audit."""

    zookeeper: str
    cluster: str = "default"
    gateway: Address | str | None = None
    region: str | None = None
    """The region of driver and tasks; None: the one where each runs."""
    mirror_patience_s: float = 30.0
    """How long a mirror may take to have what its home had when the audit began."""


@attrs.frozen(kw_only=True)
class AuditReport:
    """Outcome of an audit; good if it found nothing."""

    streams: int
    partitions: int
    entries: int
    copies: int
    mirrored: int
    bytes_read: int
    elapsed_s: float
    gb_per_s: float
    """Bytes of intact copies, read from disks and compared, in 10^9 bytes per second."""
    findings_count: int
    findings: list[AuditFinding]


@attrs.frozen
class _Task:
    site: AuditSite
    stream: str
    partition: int

    def run(self) -> AuditedPart:
        return trio.run(self._audit)

    async def _audit(self) -> AuditedPart:
        async with connect_here(self.site) as log:
            return await audit_part(
                log,
                self.stream,
                self.partition,
                mirror_patience_s=self.site.mirror_patience_s,
            )


def audit(spark: SparkSession, site: AuditSite, streams: Sequence[str] = ()) -> AuditReport:
    """Audit these streams or partitions, or all of the cluster.

    NoSuchStreamError, InvalidArgumentError, UnavailableError.
    """
    started_s = time.monotonic()  # noqa: TID251 - a program without trio.
    tasks = trio.run(_plan, site, streams)
    parts: list[AuditedPart] = []
    if tasks:
        with spark_errors("the audit"):
            rows = spark.sparkContext.parallelize(tasks, len(tasks))
            parts = rows.map(_run).collect()
    elapsed_s = time.monotonic() - started_s  # noqa: TID251 - as above.
    return report_of(parts, elapsed_s=elapsed_s)


def _run(task: _Task) -> AuditedPart:
    try:
        return task.run()
    except GeologError as error:
        failed = AuditFinding(
            stream=task.stream, partition=task.partition, kind="failed", detail=str(error)
        )
        return AuditedPart(
            stream=task.stream,
            partition=task.partition,
            entries=0,
            copies=0,
            mirrored=0,
            bytes_read=0,
            findings=(failed,),
        )


def report_of(parts: Iterable[AuditedPart], *, elapsed_s: float) -> AuditReport:
    """Sum up what the tasks found."""
    parts = sorted(parts, key=lambda part: (part.stream, part.partition))
    bytes_read = sum(part.bytes_read for part in parts)
    findings = [finding for part in parts for finding in part.findings]
    return AuditReport(
        streams=len({part.stream for part in parts}),
        partitions=len(parts),
        entries=sum(part.entries for part in parts),
        copies=sum(part.copies for part in parts),
        mirrored=sum(part.mirrored for part in parts),
        bytes_read=bytes_read,
        elapsed_s=round(elapsed_s, 3),
        gb_per_s=round(bytes_read / 1e9 / elapsed_s, 4) if elapsed_s > 0 else 0.0,
        findings_count=len(findings) + sum(part.untold for part in parts),
        findings=findings[:FINDINGS_MAX],
    )


async def _plan(site: AuditSite, streams: Sequence[str]) -> list[_Task]:
    async with connect_here(site) as log:
        await check_streams(log, streams)
        names = streams or await log.list_streams()
        tasks: dict[tuple[str, int], _Task] = {}
        for name in names:
            stream, partition = parse_target(name)
            try:
                described = await log.describe_stream(str(stream))
            except NoSuchStreamError:
                if streams:
                    raise
                continue  # It was deleted since it was listed.
            numbers = range(described.partitions) if partition is None else [partition]
            for number in numbers:
                tasks[str(stream), number] = _Task(site, str(stream), number)
    return list(tasks.values())
