"""How far a node's journal reached, as metadata remembers it: so an older disk is noticed.

A disk that was restored from a copy, or lost files, has the right cookie all the same. It would
say of entries that it acknowledged that they never were there (law 8). So a node notes in
metadata which journal file it has begun, at each start before it answers, and while it runs
soon after each new file; and it does not start with a journal that ends before that.
"""

import logging

import attrs
import trio

from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import Metadata
from geolog.protocol.ids import InstanceId
from regions.protocol.records import file_id_of
from regions.storage.disk import Disk
from regions.storage.journal import Journal
from topology.errors import ConflictError, GeologError

_log = logging.getLogger(__name__)

_LOOK_S = 1.0


class OlderDiskError(ConflictError):
    """The journal on this disk ends before what metadata knows of it: replace the node."""


@attrs.frozen
class JournalEnd:
    """The newest journal file that an instance is known to have begun."""

    file_id: int


class JournalEndNote:
    """The note of one node."""

    def __init__(
        self, metadata: Metadata, cluster: str, node_id: str, instance: InstanceId
    ) -> None:
        self._metadata = metadata
        self._parent = ClusterPaths(cluster).journals
        self._path = ClusterPaths(cluster).journal(instance)
        self._node_id = node_id

    async def check(self, disk: Disk) -> None:
        """OlderDiskError if the journal on this disk ended later once."""
        await self._metadata.sync(self._path)
        noted, _ = await self._find()
        names = await disk.list()
        newest = max((file_id_of(name) or 0 for name in names), default=0)
        if newest < noted:
            raise OlderDiskError(
                f"the journal of node {self._node_id} ends with file {newest:016x}, but file"
                f" {noted:016x} was begun on this disk: files were lost, or it is an old copy."
                f" Give the node its disk back, or replace it by `geolog node replace"
                f" {self._node_id}`"
            )

    async def note(self, file_id: int) -> None:
        """Say that this file was begun; it is on disk, with its name."""
        end = seal_document(JournalEnd(file_id))
        noted, version = await self._find()
        if version is None:
            await self._metadata.ensure_path(self._parent)
            await self._metadata.create(self._path, end)
        elif noted < file_id:
            await self._metadata.put(self._path, end, version)

    async def run(self, journal: Journal) -> None:
        """Note each new file soon after it was begun; never returns."""
        noted = 0
        while True:
            if journal.file_id != noted:
                file_id = journal.file_id
                try:
                    await self.note(file_id)
                    noted = file_id
                except GeologError as error:
                    _log.warning("cannot say in metadata how far the journal is: %s", error)
            await trio.sleep(_LOOK_S)

    async def _find(self) -> tuple[int, int | None]:
        """The file that is noted, 0 if none is; and the version of the note."""
        found = await self._metadata.find(self._path)
        if found is None:
            return 0, None
        return open_document(found.data, JournalEnd, path=self._path).file_id, found.version
