"""The true state of the stream now, as the leader of the metadata store holds it."""

import attrs

from geolog.metadata.documents import open_document
from geolog.metadata.paths import ClusterPaths
from geolog.protocol.stream_state import PartitionName, StreamName, StreamRecord, TrimRecord
from sim.fakes.memory_metadata import MemoryStore
from sim.world.calls import STREAM
from sim.world.seams import CLUSTER

_PATHS = ClusterPaths(CLUSTER)
_STREAM = StreamName.parse(STREAM)


@attrs.define(eq=False)
class Truth:
    """Looks into the metadata store without a request."""

    _store: MemoryStore
    _opened: dict[PartitionName, tuple[bytes, TrimRecord]] = attrs.field(
        factory=dict, init=False
    )
    """A document and what it says, by name; it seldom changes."""
    _life: str | None = attrs.field(default=None, init=False)
    """The life of the stream, which is never created again."""

    def trim_of(self, partition: int) -> int:
        """Where a partition begins; 0 if there is none yet."""
        found = self._trim(partition)
        return 0 if found is None else found.first_sequence

    def evicted_of(self, partition: int, region: str) -> int:
        """Where its home lets a partition's mirror go on without what comes before, or 0."""
        found = self._trim(partition, region=region)
        return 0 if found is None else found.evicted_before

    def _trim(self, partition: int, *, region: str = "") -> TrimRecord | None:
        life = self._life_of_stream()
        if life is None:
            return None
        name = PartitionName(_STREAM, partition, life, region=region)
        path = _PATHS.trim(name)
        node = self._store.tree.nodes.get(path)
        if node is None:
            return None
        known = self._opened.get(name)
        if known is None or known[0] is not node.data:
            record = open_document(node.data, TrimRecord, path=path)
            known = self._opened[name] = node.data, record
        return known[1]

    def _life_of_stream(self) -> str | None:
        if self._life is None:
            path = _PATHS.stream(_STREAM)
            node = self._store.tree.nodes.get(path)
            if node is not None:
                self._life = open_document(node.data, StreamRecord, path=path).life
        return self._life
