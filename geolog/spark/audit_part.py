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
from topology.errors import UnavailableError

LOOK_S = 0.5
"""Pause between two looks at a mirror that has not arrived."""


@attrs.frozen(kw_only=True)
class AuditFinding:
    """Something that is not as it should be."""

    stream: str
    partition: int
    kind: str
    """`copy` of an entry, `mirror`, or `silent` for a node or mirror that was not read."""
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
    untold: int = 0
    """Findings that are not among these: there are too many of one kind."""


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
        if end is not None and end < home_end
    ]
    report = await log.verify_stream(f"{stream}#{partition}", full_copies=True)
    told = [*findings_in(report), *(("mirror", detail) for detail in behind)]
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
        untold=untold_in(report),
    )


async def _end_of(
    log: Log, record: StreamRecord, mirror: PartitionName, home_end: int, patience_s: float
) -> int | None:
    """The first sequence that a mirror does not have, once it arrived or the time is over.

    None if its nodes do not answer: verifying it tells of that.
    """
    until_s = trio.current_time() + patience_s
    while True:
        try:
            end = (await log.scan_of(record, mirror).end()).sequence
        except UnavailableError:
            return None
        if end >= home_end or trio.current_time() >= until_s:
            return end
        await trio.sleep(LOOK_S)


def untold_in(report: VerifyReport) -> int:
    """How many findings of a report are not told in words."""
    return report.problems_untold + report.mirrors_unequal - len(report.mirror_problems)


def findings_in(report: VerifyReport) -> Iterator[tuple[str, str]]:
    """Kind and words of each finding of a report."""
    for problem in report.problems:
        yield "copy", problem
    for problem in report.mirror_problems:
        yield "mirror", problem
    for node_id, found in sorted(report.nodes.items()):
        if found.copies_missing:
            yield "copy", f"{node_id} lacks {found.copies_missing} copies"
    for node_id in report.silent_nodes:
        yield "silent", f"{node_id} did not answer: its copies were not read"
    for told in report.silent_mirrors:
        yield "silent", told
