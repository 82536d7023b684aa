"""A proxy's live record in metadata: present while its session is."""

import logging
from collections.abc import Callable

import attrs
import trio

from geolog.metadata.documents import seal_document
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.proxies import ProxyRecord
from geolog.metadata.seam import (
    BadVersionError,
    Create,
    Delete,
    Metadata,
    NodeExistsError,
    NoNodeError,
)
from topology.errors import GeologError

_log = logging.getLogger(__name__)

_RETRY_S = 0.5

_LOAD_S = 1.0
"""How often the record may change to tell another number of partitions."""


class ProxyRegistration:
    """Keeps the live record; `run` does the work."""

    def __init__(self, metadata: Metadata, cluster: str, record: ProxyRecord) -> None:
        self._metadata = metadata
        self._parent = ClusterPaths(cluster).proxies_live
        self._path = ClusterPaths(cluster).proxy_live(record.proxy_id)
        self._record = record
        self.is_registered = trio.Event()
        """Set once the record was first there."""

    async def run(self) -> None:
        """Make the record whenever it is not there; never returns."""
        while True:
            gone = trio.Event()
            try:
                if not await self._is_there(gone):
                    await self._make()
                    continue
            except (NodeExistsError, NoNodeError):
                continue  # It has just changed: look again.
            except GeologError as error:
                if not error.retriable:
                    raise
                _log.warning("proxy not registered: %s; retrying", error)
                await trio.sleep(_RETRY_S)
                continue
            self.is_registered.set()
            await gone.wait()

    async def _is_there(self, gone: trio.Event) -> bool:
        """Whether this session made the record; `gone` is set when that may be over."""
        found = await self._metadata.find(self._path, changed=gone)
        return found is not None and found.session_id == self._metadata.session_id

    async def _make(self) -> None:
        """Make the record in this session, in place of one that an older session left."""
        create = Create(self._path, seal_document(self._record), is_ephemeral=True)
        if await self._metadata.find(self._path) is not None:
            await self._metadata.multi([Delete(self._path), create])
            return
        await self._metadata.ensure_path(self._parent)
        await self._metadata.multi([create])

    async def run_load(self, count_partitions: Callable[[], int]) -> None:
        """Tell the others in the record how many partitions this proxy owns; never returns."""
        while True:
            await trio.sleep(_LOAD_S)
            if count_partitions() == self._record.partitions_count:
                continue
            self._record = attrs.evolve(self._record, partitions_count=count_partitions())
            try:
                found = await self._metadata.find(self._path)
                if found is not None and found.session_id == self._metadata.session_id:
                    data = seal_document(self._record)
                    await self._metadata.put(self._path, data, found.version)
            except (NoNodeError, BadVersionError):
                continue  # It is being made again, with this number.
            except GeologError as error:
                _log.info("load not told: %s", error)

    async def leave(self) -> None:
        """Remove the record; if that fails it goes with the session."""
        try:
            await self._metadata.delete(self._path)
        except GeologError as error:
            _log.warning("proxy record not removed: %s; it expires with the session", error)
