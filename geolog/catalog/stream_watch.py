"""The records of all streams, read again only when metadata tells that one has changed.

Listing all streams of a cluster costs a request for each; a process that must know of new ones
watches them instead.
"""

from contextlib import suppress

import attrs
import trio

from geolog.metadata.documents import open_document
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import Freshness, Metadata, NoNodeError
from geolog.protocol.stream_pattern import StreamPattern
from geolog.protocol.stream_state import StreamName, StreamRecord

_ALL = StreamPattern("*", "*")


def _set() -> trio.Event:
    event = trio.Event()
    event.set()
    return event


@attrs.define(eq=False)
class _Names:
    """The children of a node, as last read."""

    found: list[str] = attrs.field(factory=list)
    changed: trio.Event = attrs.field(factory=_set)


@attrs.define(eq=False)
class _Watched:
    """The record of a stream, as last read; None if there was none."""

    found: StreamRecord | None = None
    changed: trio.Event = attrs.field(factory=_set)


class StreamWatch:
    """Follows the streams of one cluster, or of a pattern; one task at a time uses it."""

    def __init__(
        self, metadata: Metadata, paths: ClusterPaths, pattern: StreamPattern = _ALL
    ) -> None:
        self._metadata = metadata
        self._paths = paths
        self._pattern = pattern
        self._namespaces = _Names()
        self._names: dict[str, _Names] = {}
        self._streams: dict[StreamName, _Watched] = {}
        self.reads_count = 0
        """Requests to metadata so far."""

    def __repr__(self) -> str:
        return f"StreamWatch({len(self._streams)} streams)"

    async def records_latest(self) -> list[StreamRecord]:
        """As `records`, including all that was written before this call."""
        with suppress(NoNodeError):
            await self._metadata.children(self._paths.streams, freshness=Freshness.LATEST)
        return await self.records()  # What this client's server has now is as new.

    async def records(self) -> list[StreamRecord]:
        """The streams that can be used now, as far as this client's server knows.

        A stream that is being made or deleted is left out.
        """
        await self._refresh(self._namespaces, self._paths.streams)
        found: list[StreamRecord] = []
        seen: set[StreamName] = set()
        namespaces = [one for one in self._namespaces.found if self._pattern.has_namespace(one)]
        for namespace in namespaces:
            names = self._names.setdefault(namespace, _Names())
            await self._refresh(names, self._paths.namespace(namespace))
            for name in names.found:
                stream = StreamName(namespace, name)
                if not self._pattern.matches(stream):
                    continue
                seen.add(stream)
                record = await self._record(stream)
                if record is not None and not record.is_incomplete:
                    found.append(record)
        self._names = {one: self._names[one] for one in namespaces}
        self._streams = {one: self._streams[one] for one in seen}
        return found

    async def _refresh(self, names: _Names, path: str) -> None:
        if not names.changed.is_set():
            return
        changed = trio.Event()
        self.reads_count += 1
        try:
            names.found = await self._metadata.children(path, changed=changed)
        except NoNodeError:  # Nothing tells when it is made: look again.
            names.found = []
            return
        names.changed = changed

    async def _record(self, name: StreamName) -> StreamRecord | None:
        watched = self._streams.setdefault(name, _Watched())
        if watched.changed.is_set():
            changed, path = trio.Event(), self._paths.stream(name)
            self.reads_count += 1
            stored = await self._metadata.find(path, changed=changed)
            watched.found = (
                None if stored is None else open_document(stored.data, StreamRecord, path=path)
            )
            watched.changed = changed
        return watched.found
