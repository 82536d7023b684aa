"""The ephemeral node that shows that a process is alive, whatever number of partitions it owns.

Its owner records name it. It disappears with the session that made it; the process makes it
again in the next session, by one create. It lives in a folder that many processes share, and
stays there: metadata counts the folder's changes.

Rules: PROTOCOL O12.
"""

from functools import partial

from geolog.background import all_of
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.rules import parent_of
from geolog.metadata.seam import (
    BadVersionError,
    Create,
    Delete,
    Metadata,
    NodeExistsError,
    NoNodeError,
    Operation,
)
from geolog.protocol.ids import ProcessId


class ProcessPresence:
    """The node of one process."""

    def __init__(self, metadata: Metadata, paths: ClusterPaths, process: ProcessId) -> None:
        self._metadata = metadata
        self.path = paths.presence(process)
        self._folder = parent_of(self.path)
        self._make = Create(self.path, is_ephemeral=True)
        self._has_folder = False
        """Whether the folder is known to exist."""

    async def show(self) -> None:
        """Make the node, unless the current session has made it.

        A node of an older session, which will disappear with it, is replaced in one step, so
        readers never miss it. It is this process's: nobody else has its id.
        """
        if not self._has_folder:
            # Exactly one of these fits. Sent together, they take one round trip.
            both_ways: list[list[Operation]] = [
                [Create(self._folder), self._make],
                [self._make],
            ]
            if any(await all_of([partial(self._do, way) for way in both_ways])):
                self._has_folder = True
                return
        while not await self._do([self._make]):
            found = await self._metadata.find(self.path)
            if found is None:
                await self._metadata.ensure_path(self._folder)
            elif found.session_id == self._metadata.session_id or await self._do(
                [Delete(self.path), self._make]
            ):
                break
        self._has_folder = True

    async def _do(self, operations: list[Operation]) -> bool:
        """Carry them out; whether they fitted what was there."""
        try:
            await self._metadata.multi(operations)
        except (NodeExistsError, NoNodeError):
            return False
        return True


async def ask_time(metadata: Metadata, presence: str) -> bool:
    """Write to a process's node, so that the answer tells the metadata store's time.

    Returns whether it does; False if there is no such node, e.g. after a lost session.
    """
    while (stored := await metadata.find(presence)) is not None:
        heard = metadata.time_heard
        try:
            await metadata.put(presence, stored.data, stored.version)
        except BadVersionError:
            # Another owner of the process asked, or the node was replaced, which tells no time.
            if metadata.time_heard is heard:
                continue
        return True
    return False
