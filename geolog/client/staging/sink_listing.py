"""Lists the sinks of a cluster for operators, and deletes those that nobody uses any more."""

import attrs

from geolog.catalog.sinks import SinkCatalog
from geolog.client.log import Log
from geolog.metadata.seam import BadVersionError
from geolog.protocol.sink_copy import NO_BATCH, NO_QUERY
from topology.errors import ConflictError, NotFoundError


@attrs.frozen(kw_only=True)
class SinkDescription:
    """A sink: the identity under which a query or a batch write has each row written once."""

    sink: str
    kind: str
    """`query`, `batch write`, or `new` if no batch was recorded."""
    batch: int | None
    """The latest batch; None if there is none."""
    records: int
    """Records of that batch."""
    streams: list[str]
    is_copied: bool
    """Whether all of them are in their streams."""
    checkpoint: str
    changed_us: int


def sinks_of(log: Log) -> SinkCatalog:
    """The sinks of the cluster."""
    access = log.access
    return SinkCatalog(access.metadata, access.paths, access.ledgers, rng=access.rng)


async def list_sinks(log: Log) -> list[SinkDescription]:
    """All sinks, by name."""
    found = []
    for one in await sinks_of(log).all():
        record = one.record
        is_new = record.batch == NO_BATCH
        kind = "batch write" if record.query == NO_QUERY else "query"
        found.append(
            SinkDescription(
                sink=record.sink,
                kind="new" if is_new else kind,
                batch=None if is_new else record.batch,
                records=record.records_count,
                streams=sorted({part.stream for part in record.parts}),
                is_copied=record.is_copied,
                checkpoint=record.checkpoint,
                changed_us=one.modified_us,
            )
        )
    return sorted(found, key=lambda one: one.sink)


async def delete_sink(log: Log, sink: str, *, force: bool = False) -> None:
    """Forget a sink, and drop its staging: its query or write must have ended for good.

    force: also while its latest batch is not copied. NotFoundError; ConflictError if it is not,
    or if a driver or task uses the sink just now.
    """
    sinks = sinks_of(log)
    found = await sinks.find(sink)
    if found is None:
        raise NotFoundError(f"there is no sink {sink!r}: `geolog sink ls` lists them")
    if not (found.record.is_copied or force):
        raise ConflictError(
            f"batch {found.record.batch} of {sink!r} is not copied to its end: start the query"
            " or write again, which finishes it; or give the rest up with --force"
        )
    try:
        await sinks.delete(found)
    except BadVersionError:
        raise ConflictError(f"a driver uses {sink!r} just now: end it first") from None
