"""Sinks in metadata: the latest batch of each, and the list of its staging ledgers.

    sinks/ID                  the latest batch; changed only by compare-and-set
    sinks/ID/staged/LEDGER-BATCH-RUN
                              one per staging ledger, from the step that opens it

A batch is recorded in one step with the check that all of its ledgers are listed still. So
a driver that removes a ledger from the list keeps it from being recorded later.

Each batch write has a sink of its own, so the records would only become more. A task or driver
that makes one looks at some others, and deletes those of batch writes that ended long ago.

Rules: PROTOCOL S34, S35 and S37.
"""

import logging
import random
from bisect import bisect
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256

import attrs

from geolog.background import all_of
from geolog.ledger.ledger_metadata import LedgerMetadata, VersionedLedger
from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import (
    BadVersionError,
    Check,
    Create,
    Delete,
    Freshness,
    Metadata,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Put,
)
from geolog.protocol.ids import LedgerId
from geolog.protocol.ledger_state import LedgerRecord
from geolog.protocol.sink_copy import NO_BATCH, SinkRecord, StagedLedger
from topology.errors import GeologError

PARTS_MAX = 2000
"""Staging ledgers of one batch: more, for streams with long names, do not fit one request to
the metadata store."""

_log = logging.getLogger(__name__)

FORGOTTEN_AFTER_S = 90 * 86400.0
"""Time after which the name of a batch write that has ended is forgotten."""

_LOOKED_AT_MAX = 8
"""Records that the maker of one looks at. Some are deleted for each that is made, so those that
are old never become many."""

_DROPPED_AT_ONCE_MAX = 100
"""Staging ledgers that are dropped in one request."""

_ASKED_MAX = 16
"""Records that a list of all sinks asks for at the same time."""

_CHECKS_MAX = 1000
"""Ledgers in one request that looks whether they are there."""


def sink_id_of(sink: str) -> str:
    """The name of a sink in metadata: of fixed length, whatever its user calls it."""
    return sha256(sink.encode()).hexdigest()[:32]


def writer_id_of(record: SinkRecord) -> str:
    """The named writer that copies the batches of a sink."""
    life = f"-{record.life}" if record.life else ""
    return f"sink-{sink_id_of(record.sink)}{life}"


def _name_of(staged: StagedLedger) -> str:
    if staged.batch == NO_BATCH:  # Listed by a version that did not say what for.
        return f"{staged.ledger:012d}"
    return f"{staged.ledger:012d}-{staged.batch}-{staged.run}"


def _staged_of(name: str) -> StagedLedger:
    ledger, _, rest = name.partition("-")
    if not rest:
        return StagedLedger(LedgerId(int(ledger)), NO_BATCH, "")
    batch, _, run = rest.partition("-")
    return StagedLedger(LedgerId(int(ledger)), int(batch), run)


@attrs.frozen
class VersionedSink:
    """A sink's record as read, with the version for a compare-and-set."""

    record: SinkRecord
    version: int
    modified_us: int = 0
    """When it was written, by metadata's clock; 0 if this process wrote it."""

    @property
    def batch_recorded_us(self) -> int:
        """When the batch was recorded, by metadata's clock; 0: not known."""
        return self.record.recorded_us or self.modified_us


class SinkCatalog:
    """The sinks of one cluster."""

    def __init__(
        self,
        metadata: Metadata,
        paths: ClusterPaths,
        ledgers: LedgerMetadata,
        *,
        rng: random.Random,
    ) -> None:
        self._metadata = metadata
        self._paths = paths
        self._ledgers = ledgers
        self._rng = rng

    async def ensure(self, sink: str) -> VersionedSink:
        """The latest record of a sink, which is made if there is none."""
        sink_id = sink_id_of(sink)
        path = self._paths.sink(sink_id)
        while True:
            found = await self._find(sink_id)
            if found is not None:
                return found
            await self._metadata.ensure_path(self._paths.sinks)
            made = SinkRecord(sink=sink, life=f"{self._rng.getrandbits(32):08x}")
            with suppress(NodeExistsError):
                await self._metadata.multi(
                    [
                        Create(path, seal_document(made)),
                        Create(self._paths.sink_ledgers(sink_id)),
                    ]
                )
            try:
                await self._forget_some(sink_id)
            except GeologError as error:  # This one is there, so it is of no matter.
                _log.info("sinks: old ones stay for now: %s", error)

    async def find(self, sink: str) -> VersionedSink | None:
        """The latest record of a sink, if there is one."""
        return await self._find(sink_id_of(sink))

    async def _find(self, sink_id: str) -> VersionedSink | None:
        path = self._paths.sink(sink_id)
        stored = await self._metadata.find(path, freshness=Freshness.LATEST)
        if stored is None:
            return None
        record = open_document(stored.data, SinkRecord, path=path)
        return VersionedSink(record, stored.version, stored.modified_us)

    async def all(self) -> list[VersionedSink]:
        """The latest records of all sinks."""
        try:
            ids = await self._metadata.children(self._paths.sinks, freshness=Freshness.LATEST)
        except NoNodeError:  # Nothing was ever written from Spark.
            return []
        found = await all_of([partial(self._find, one) for one in ids], at_once_max=_ASKED_MAX)
        return [one for one in found if one is not None]

    async def delete(self, read: VersionedSink) -> None:
        """Delete a sink that was read, and its staging.

        BadVersionError, and all or some of it is left, if it has changed, or if a task lists a
        ledger just now.
        """
        sink = read.record.sink
        await self.drop(sink, await self.listed(sink), unless_changed=read.version)
        try:
            await self._delete(sink_id_of(sink), read.version)
        except NotEmptyError as error:
            raise BadVersionError(str(error)) from error
        except NoNodeError:
            return  # Another process was quicker.

    async def _delete(self, sink_id: str, version: int) -> None:
        await self._metadata.multi(
            [
                Delete(self._paths.sink_ledgers(sink_id)),
                Delete(self._paths.sink(sink_id), version),
            ]
        )

    async def _forget_some(self, made_id: str) -> None:
        """Delete some of the records that are of no use any more, of those next to this one.

        Ids are hashes, so in the long run each record is next to a new one.
        """
        made = await self._metadata.find(self._paths.sink(made_id), freshness=Freshness.LATEST)
        if made is None:
            return
        ids = await self._metadata.children(self._paths.sinks)
        place = bisect(ids, made_id)
        some = (ids[place:] + ids[:place])[:_LOOKED_AT_MAX]
        await all_of([partial(self._try_to_forget, one, made.created_us) for one in some])

    async def _try_to_forget(self, sink_id: str, now_us: int) -> None:
        try:
            await self._forget_if_old(sink_id, now_us=now_us)
        except GeologError as error:  # Its record is damaged, perhaps: others are not.
            _log.info("sinks: one may be old, and stays for now: %s", error)

    async def _forget_if_old(self, sink_id: str, *, now_us: int) -> None:
        path = self._paths.sink(sink_id)
        stored = await self._metadata.find(path, freshness=Freshness.LATEST)
        if stored is None or now_us - stored.modified_us <= FORGOTTEN_AFTER_S * 1e6:
            return
        record = open_document(stored.data, SinkRecord, path=path)
        if not record.may_be_forgotten:
            return
        left = await self.listed(record.sink)
        some = left[:_DROPPED_AT_ONCE_MAX]
        if await self._is_any_there(some):
            return
        await self.drop(record.sink, some)
        if len(some) < len(left):
            return  # The next one that looks goes on.
        with suppress(NoNodeError, BadVersionError, NotEmptyError):
            # A task lists a ledger, or a driver a batch, after all: then it stays.
            await self._delete(sink_id, stored.version)

    async def replace(
        self, read: VersionedSink, record: SinkRecord, *, staged_by: str | None = None
    ) -> VersionedSink:
        """Store the successor of a record that was read; BadVersionError if it has changed.

        staged_by: the run that staged a new batch. It is stored only if all of its ledgers are
        listed, and had not expired just before; NoNodeError otherwise.
        """
        sink_id = sink_id_of(record.sink)
        checks: list[Operation] = []
        if staged_by is not None:
            await self._check_are_there([part.ledger for part in record.parts])
            staged = [
                StagedLedger(part.ledger, record.batch, staged_by) for part in record.parts
            ]
            checks = [Check(self._line(sink_id, one)) for one in staged]
        put = Put(self._paths.sink(sink_id), seal_document(record), read.version)
        version = (await self._metadata.multi([put, *checks]))[0]
        assert isinstance(version, int)
        return VersionedSink(record, version)

    async def _check_are_there(self, ledgers: Sequence[LedgerId]) -> None:
        """NoNodeError if one has expired: nodes delete its record, and leave the list alone."""
        for begin in range(0, len(ledgers), _CHECKS_MAX):
            some = ledgers[begin : begin + _CHECKS_MAX]
            await self._metadata.multi([Check(self._paths.ledger(one)) for one in some])

    async def _is_any_there(self, staged: Sequence[StagedLedger]) -> bool:
        for one in reversed(staged):  # Ids rise, and old ones are gone first.
            if await self._metadata.find(self._paths.ledger(one.ledger)) is not None:
                return True
        return False

    async def open_listed(
        self,
        sink: str,
        allocated: VersionedLedger,
        opened: LedgerRecord,
        *,
        batch: int,
        run: str,
    ) -> VersionedLedger:
        """Open a staging ledger and list it, in one step."""
        line = self._line(sink_id_of(sink), StagedLedger(opened.ledger, batch, run))
        await self._metadata.multi([self._ledgers.put(allocated, opened), Create(line)])
        return VersionedLedger(opened, allocated.version + 1)

    async def listed(self, sink: str) -> list[StagedLedger]:
        """The staging ledgers of a sink, by id. Nodes may have dropped some that expired."""
        names = await self._metadata.children(
            self._paths.sink_ledgers(sink_id_of(sink)), freshness=Freshness.LATEST
        )
        return [_staged_of(name) for name in sorted(names)]

    async def drop(
        self, sink: str, dropped: Sequence[StagedLedger], *, unless_changed: int | None = None
    ) -> None:
        """Take staging ledgers off the list, and delete their records. Idempotent.

        unless_changed: the version of the sink's record in which they are not needed;
        BadVersionError if it has another now.
        """
        sink_id = sink_id_of(sink)
        checks: list[Operation] = []
        if unless_changed is not None:
            checks = [Check(self._paths.sink(sink_id), unless_changed)]
        for begin in range(0, len(dropped), _DROPPED_AT_ONCE_MAX):
            some = dropped[begin : begin + _DROPPED_AT_ONCE_MAX]
            lines: list[Operation] = [Delete(self._line(sink_id, one)) for one in some]
            ledgers = [self._ledgers.delete(one.ledger) for one in some]
            try:
                await self._metadata.multi([*checks, *lines, *ledgers])
            except NoNodeError:  # Some are gone already.
                for line, ledger in zip(lines, ledgers, strict=True):
                    await self._drop_one(checks, line, ledger)
        await self._ledgers.drop_empty_buckets([staged.ledger for staged in dropped])

    async def _drop_one(
        self, checks: list[Operation], line: Operation, ledger: Operation
    ) -> None:
        # First off the list: from then on no driver records it.
        with suppress(NoNodeError):
            await self._metadata.multi([*checks, line])
        with suppress(NoNodeError, BadVersionError):
            await self._metadata.multi([ledger])

    def _line(self, sink_id: str, staged: StagedLedger) -> str:
        return self._paths.sink_line(sink_id, _name_of(staged))
