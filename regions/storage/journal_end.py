"""How far a node's journals reached, as noted in metadata, so that an older disk is noticed.

A disk that was restored from a copy, or lost files, still has the right cookie. It would deny
entries that it acknowledged (law 8). So a node notes in metadata, for each of its data
directories, which journal file is the newest and how much of it is synced: at each start before
it answers, soon after each new file, periodically while bytes are written, and at its orderly
end. It does not start with a journal that ends before its note (`restart_journal`). No append
waits for a note.

Rules: PROTOCOL J15.
"""

import logging
import math
from collections.abc import Sequence

import attrs
import trio

from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import Freshness, Metadata
from geolog.protocol.ids import InstanceId
from regions.storage.journal import Journal, JournalEnd
from topology.errors import ConflictError, GeologError

_log = logging.getLogger(__name__)

_LOOK_S = 1.0
_BYTES_NOTED_S = 10.0
"""Interval between notes of growth within a file: one small metadata write for each node. If
bytes written since the last note are cut from the newest file, nothing notices."""

NO_END = JournalEnd(0, 0)
"""The end of a directory in which no journal is known to have begun."""


class OlderDiskError(ConflictError):
    """The journal on this disk ends before the end noted in metadata: replace the node."""


@attrs.frozen
class JournalEnds:
    """How far the journals of an instance are known to reach, by directory."""

    ends: tuple[JournalEnd, ...] = ()

    def of(self, directory: int) -> JournalEnd:
        """The end of the directory with this index; `NO_END` if unknown."""
        return self.ends[directory] if directory < len(self.ends) else NO_END

    def risen_to(self, ends: Sequence[JournalEnd]) -> "JournalEnds":
        """The later end of each directory."""
        count = max(len(self.ends), len(ends))
        others = JournalEnds(tuple(ends))
        return JournalEnds(tuple(max(self.of(at), others.of(at)) for at in range(count)))


class JournalEndNote:
    """The note of one instance, which is its only writer."""

    def __init__(self, metadata: Metadata, cluster: str, instance: InstanceId) -> None:
        self._metadata = metadata
        self._parent = ClusterPaths(cluster).journals
        self._path = ClusterPaths(cluster).journal(instance)

    async def find(self) -> JournalEnds:
        """The current note, read with certainty: no directory's journal may end before it."""
        noted, _ = await self._find(Freshness.CERTAIN)
        return noted

    async def note(self, ends: Sequence[JournalEnd]) -> None:
        """Note how far each directory's journal is on disk. A note never goes back."""
        noted, version = await self._find()
        risen = noted.risen_to(ends)
        if version is None:
            await self._metadata.ensure_path(self._parent)
            await self._metadata.create(self._path, seal_document(risen))
        elif risen != noted:
            await self._metadata.put(self._path, seal_document(risen), version)

    async def try_note(self, ends: Sequence[JournalEnd]) -> bool:
        """The same, but log a warning if metadata cannot be updated; whether it was."""
        try:
            await self.note(ends)
        except GeologError as error:
            _log.warning("journal end not noted in metadata: %s", error)
            return False
        return True

    async def run(self, journals: Sequence[Journal]) -> None:
        """Note each new file soon, and growth periodically; never returns."""
        noted, noted_s = tuple(NO_END for _ in journals), -math.inf
        while True:
            ends = tuple(journal.end for journal in journals)
            is_due = trio.current_time() - noted_s >= _BYTES_NOTED_S
            if _are_newer_files(ends, noted) or (is_due and ends != noted):
                if await self.try_note(ends):
                    noted, noted_s = ends, trio.current_time()
            await trio.sleep(_LOOK_S)

    async def _find(
        self, freshness: Freshness = Freshness.NEARBY
    ) -> tuple[JournalEnds, int | None]:
        """The note and its version; None if there is no note."""
        found = await self._metadata.find(self._path, freshness=freshness)
        if found is None:
            return JournalEnds(), None
        return open_document(found.data, JournalEnds, path=self._path), found.version


def _are_newer_files(ends: Sequence[JournalEnd], noted: Sequence[JournalEnd]) -> bool:
    return any(end.file_id != before.file_id for end, before in zip(ends, noted, strict=True))
