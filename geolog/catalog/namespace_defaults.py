"""Defaults of a namespace: the mode, home and targets of streams that are made in it later.

They are in the namespace's own node in metadata, which is the parent of its streams.

Rules: PROTOCOL H4.
"""

import attrs

from geolog.catalog.stream_settings import check_relay, parse_mode, parse_targets
from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import BadVersionError, Freshness, Metadata
from geolog.protocol.stream_state import StreamMode, StreamName
from topology.errors import InvalidArgumentError


@attrs.frozen(kw_only=True)
class NamespaceDefaults:
    """Settings of streams of a namespace whose creators do not say. Checked when built."""

    mode: StreamMode = attrs.field(default=StreamMode.GLOBAL, converter=parse_mode)
    home: str | None = None
    """The home of streams of mode `regional`."""
    relay_to: tuple[str, ...] = attrs.field(default=(), converter=parse_targets)
    """The regions that mirror them; the home of a stream is left out."""

    def __attrs_post_init__(self) -> None:
        check_relay(self.mode, self.home, self.relay_to)
        is_regional = self.mode is StreamMode.REGIONAL
        if is_regional != (self.home is not None):
            raise InvalidArgumentError(
                "streams of mode 'regional' need a default home: name a region"
                if is_regional
                else f"streams of mode 'global' have no home, got {self.home!r}: leave it out,"
                " or use mode 'regional'"
            )

    def targets_of(self, home: str | None) -> tuple[str, ...]:
        """The default targets of a stream with this home."""
        return tuple(one for one in self.relay_to if one != home)


class NamespaceCatalog:
    """The defaults of the namespaces of one cluster, in metadata."""

    def __init__(self, metadata: Metadata, paths: ClusterPaths) -> None:
        self._metadata = metadata
        self._paths = paths

    async def read(self, namespace: str) -> NamespaceDefaults:
        """The defaults; those of geolog if none were set. InvalidArgumentError."""
        return (await self._find(namespace))[0]

    async def _find(self, namespace: str) -> tuple[NamespaceDefaults, int]:
        path = self._path(namespace)
        stored = await self._metadata.find(path, freshness=Freshness.LATEST)
        if stored is None:
            return NamespaceDefaults(), -1
        if not stored.data:
            return NamespaceDefaults(), stored.version
        return open_document(stored.data, NamespaceDefaults, path=path), stored.version

    async def write(self, namespace: str, defaults: NamespaceDefaults) -> None:
        """Replace the defaults; streams that exist stay as they are."""
        path = self._path(namespace)
        await self._metadata.ensure_path(path)
        while True:
            _, version = await self._find(namespace)
            try:
                await self._metadata.put(path, seal_document(defaults), version)
            except BadVersionError:
                continue  # Another process set them meanwhile: the last one wins.
            return

    def _path(self, namespace: str) -> str:
        StreamName.parse(f"{namespace}/any")  # InvalidArgumentError for a name that cannot be.
        return self._paths.namespace(namespace)
