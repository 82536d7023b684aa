"""Audits one partition: every copy of every entry, and every mirror of it against its home.

The comparing is that of `geolog verify`. Besides, a mirror must reach the end that its home had
when the audit began: it is given some time, since records are on their way. A mirror may begin
later than its home, by its settings; so only its end is compared.
"""

from collections.abc import Iterator
from functools import partial

import attrs
import trio

from geolog.admin.verification import VerifyReport
from geolog.background import all_of
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.client.log import Log
from geolog.protocol.stream_state import PartitionName, StreamName, StreamRecord

LOOK_S = 0.5
"""Pause between two looks at a mirror that has not arrived."""


@attrs.frozen(kw_only=True)
class AuditFinding:
    """Something that is not as it should be."""

    stream: str
    partition: int
    kind: str
    """`copy` of an entry, `mirror`, or `silent` for a node whose copies were not read."""
    detail: str


@attrs.frozen(kw_only=True)
class AuditedPart:
    """Outcome for one partition."""

    stream: str
    partition: int
    entries: int
    """Entries at home and in mirrors."""
    copies: int
    """Intact copies of them."""
    mirrored: int
    """Entries of mirrors that were compared with the home's."""
    bytes_read: int
    findings: tuple[AuditFinding, ...]


async def audit_part(
    log: Log, stream: str, partition: int, *, mirror_patience_s: float
) -> AuditedPart:
    """Audit a partition. NoSuchStreamError, UnavailableError."""
    access = log.access
    record = await StreamCatalog(access.metadata, access.paths).read_latest(
        StreamName.parse(stream)
    )
    home_end = (await log.scan_of(record, record.partition(partition)).end()).sequence
    mirrors = record.mirrors_of([partition])
    ends = await all_of(
        [partial(_end_of, log, record, one, home_end, mirror_patience_s) for one in mirrors]
    )
    behind = [
        f"{mirror} lacks {home_end - end} records: it ends before sequence {end}, its home"
        f" before {home_end}"
        for mirror, end in zip(mirrors, ends, strict=True)
        if end < home_end
    ]
    report = await log.verify_stream(f"{stream}#{partition}", full_copies=True)
    told = [*_of_report(report), *(("mirror", detail) for detail in behind)]
    return AuditedPart(
        stream=stream,
        partition=partition,
        entries=report.entries,
        copies=report.copies_good,
        mirrored=report.mirrored,
        bytes_read=report.bytes_read,
        findings=tuple(
            AuditFinding(stream=stream, partition=partition, kind=kind, detail=detail)
            for kind, detail in told
        ),
    )


async def _end_of(
    log: Log, record: StreamRecord, mirror: PartitionName, home_end: int, patience_s: float
) -> int:
    """The first sequence that a mirror does not have, once it arrived or the time is over."""
    until_s = trio.current_time() + patience_s
    while True:
        end = (await log.scan_of(record, mirror).end()).sequence
        if end >= home_end or trio.current_time() >= until_s:
            return end
        await trio.sleep(LOOK_S)


def _of_report(report: VerifyReport) -> Iterator[tuple[str, str]]:
    for problem in report.problems:
        yield ("mirror" if "@" in problem else "copy"), problem
    for node_id, found in sorted(report.nodes.items()):
        if found.copies_missing:
            yield "copy", f"{node_id} lacks {found.copies_missing} copies"
    for node_id in report.silent_nodes:
        yield "silent", f"{node_id} did not answer: its copies were not read"
