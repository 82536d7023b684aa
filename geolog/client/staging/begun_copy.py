"""Finishes the copy that an earlier run of a replay has left, without its rows.

The sink's record says which files a replay reads, from before it stages any row. So a replay
never takes the copy of another job, which has the same name by mistake, for its own.

Rules: PROTOCOL S39.
"""

import attrs

from geolog.catalog.sinks import SinkCatalog
from geolog.client.log import Log
from geolog.client.staging.sink_commit import SinkCommit
from geolog.metadata.seam import BadVersionError
from geolog.protocol.sink_copy import NO_BATCH, StagedBatch
from topology.errors import ConflictError


async def finish_begun_copy(log: Log, sink: str, *, source: str, stream: str) -> bool:
    """Finish the copy of this source; False if no run of it has got that far.

    ConflictError if a copy under this name was finished before, or is of another job.
    """
    access = log.access
    sinks = SinkCatalog(access.metadata, access.paths, access.ledgers, rng=access.rng)
    found = await sinks.ensure(sink)
    record = found.record
    if record.batch == NO_BATCH:
        if record.source != source:
            try:
                await sinks.replace(found, attrs.evolve(record, source=source))
            except BadVersionError:
                raise ConflictError(
                    f"another run of the replay {sink!r} begins just now: wait for its end"
                ) from None
        return False
    others = sorted({part.stream for part in record.parts} - {stream})
    if record.source != source or others:
        what = f"the replay of {record.source}" if record.source else "another write or query"
        where = f" into {', '.join(others)}" if others else ""
        raise ConflictError(
            f"{sink!r} is the name of {what}{where}: give this replay another one (--writer)"
        )
    if record.is_copied:
        raise ConflictError(
            f"the replay {sink!r} is done: it has appended its {record.records_count:,}"
            " records. To append them again, give it another name (--writer)"
        )
    copier = f"{access.rng.getrandbits(128):032x}"
    left = StagedBatch(
        record.batch, record.parts, copier, query=record.query, is_repeatable=False
    )
    await SinkCommit(log, sink).commit(left)
    return True
