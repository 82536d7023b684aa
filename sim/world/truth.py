"""The true state of the stream now, as the leader of the metadata store holds it."""

import attrs

from geolog.metadata.documents import open_document
from geolog.metadata.paths import ClusterPaths
from geolog.protocol.home_record import Fork, ForksRecord, HomeRecord, forks_joined
from geolog.protocol.ids import DLSN
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
    _stream: tuple[bytes, StreamRecord] | None = attrs.field(default=None, init=False)
    """The stream's document and what it says; it is never created again."""

    _home: tuple[bytes, HomeRecord] | None = attrs.field(default=None, init=False)
    """The document of its home, likewise."""
    home_regions: dict[int, str] = attrs.field(factory=dict, init=False)
    """The region of each home epoch that was looked at."""

    @property
    def home(self) -> tuple[str | None, int]:
        """The region where the stream is at home, if it has one by now, and the home epoch."""
        stream = self.stream_now()
        if stream is None:
            return None, 0
        if stream.home is not None:
            self.home_regions[stream.home_epoch] = stream.home
        return stream.home, stream.home_epoch

    def trim_of(self, partition: int) -> int:
        """Where a partition begins; 0 if there is none yet."""
        found = self._trim(partition, region=self.home[0])
        return 0 if found is None else found.first_sequence

    def evicted_of(self, partition: int, region: str) -> int:
        """Where its home lets a partition's mirror go on without what comes before, or 0."""
        found = self._trim(partition, region=region)
        return 0 if found is None else found.evicted_before

    def forks_of(self, partition: int) -> tuple[Fork, ...]:
        """Where the later homes of a partition began."""
        stream = self.stream_now()
        if stream is None or stream.home is None:
            return ()
        path = _PATHS.home(stream.name, stream.life)
        data = self._store.tree.nodes[path].data
        if self._home is None or self._home[0] is not data:
            self._home = data, self._home_of(stream, open_document(data, HomeRecord, path=path))
        return self._home[1].forks_of(partition)

    def _home_of(self, stream: StreamRecord, home: HomeRecord) -> HomeRecord:
        """The home record, with the forks that are stored apart."""
        paths = [_PATHS.forks_apart(stream.name, stream.life, one) for one in home.forks_apart]
        nodes = self._store.tree.nodes
        apart = [open_document(nodes[one].data, ForksRecord, path=one).forks for one in paths]
        return attrs.evolve(home, forks=forks_joined([*apart, home.forks]))

    def is_left_behind(self, partition: int, dlsn: DLSN) -> bool:
        """Whether a fork left a record behind: a later home began before it, without it."""
        return any(
            dlsn.segment < fork.segment_next
            and (dlsn.segment, dlsn.entry) >= (fork.segment, fork.entry)
            for fork in self.forks_of(partition)
        )

    def _trim(self, partition: int, *, region: str | None) -> TrimRecord | None:
        stream = self.stream_now()
        if stream is None:
            return None
        name = stream.log_in(region, partition)
        path = _PATHS.trim(name)
        node = self._store.tree.nodes.get(path)
        if node is None:
            return None
        known = self._opened.get(name)
        if known is None or known[0] is not node.data:
            record = open_document(node.data, TrimRecord, path=path)
            known = self._opened[name] = node.data, record
        return known[1]

    def stream_now(self) -> StreamRecord | None:
        """The settings of the stream; None before it is made."""
        path = _PATHS.stream(_STREAM)
        node = self._store.tree.nodes.get(path)
        if node is None:
            return None
        if self._stream is None or self._stream[0] is not node.data:
            self._stream = node.data, open_document(node.data, StreamRecord, path=path)
        return self._stream[1]
