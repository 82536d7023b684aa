"""Defaults of a namespace: the mode, home and targets of streams that are made in it later.

They are in the namespace's own node in metadata, which is the parent of its streams.

Rules: PROTOCOL H4.
"""

from collections.abc import Sequence

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

    def fill(
        self, mode: str | None, home: str | None, relay_to: Sequence[str] | None
    ) -> tuple[str, str | None, Sequence[str]]:
        """A stream's mode, home and targets; the defaults are for what its creator left out.

        A stream of another mode than the default takes no default home or targets, and a
        stream is not relayed to its own home.
        """
        mode = mode or self.mode.value
        is_like = mode == self.mode.value
        if home is None and is_like:
            home = self.home
        if relay_to is None:
            relay_to = tuple(one for one in self.relay_to if one != home) if is_like else ()
        return mode, home, relay_to


class NamespaceCatalog:
    """The defaults of the namespaces of one cluster, in metadata."""

    def __init__(self, metadata: Metadata, paths: ClusterPaths) -> None:
        self._metadata = metadata
        self._paths = paths

    async def read(self, namespace: str) -> NamespaceDefaults:
        """The defaults; those of geolog if none were set. InvalidArgumentError."""
        return (await self.find(namespace, Freshness.LATEST))[0]

    async def find(
        self, namespace: str, freshness: Freshness
    ) -> tuple[NamespaceDefaults, int | None]:
        """The defaults, and the version of their node; None if there is no such namespace."""
        path = self._path(namespace)
        stored = await self._metadata.find(path, freshness=freshness)
        if stored is None:
            return NamespaceDefaults(), None
        if not stored.data:
            return NamespaceDefaults(), stored.version
        return open_document(stored.data, NamespaceDefaults, path=path), stored.version

    async def write(self, namespace: str, defaults: NamespaceDefaults) -> None:
        """Replace the defaults; streams that exist stay as they are."""
        path = self._path(namespace)
        while True:
            _, version = await self.find(namespace, Freshness.LATEST)
            if version is None:
                await self._metadata.ensure_path(path)
            try:
                await self._metadata.put(path, seal_document(defaults), version or 0)
            except BadVersionError:
                continue  # Another process set them meanwhile: the last one wins.
            return

    def _path(self, namespace: str) -> str:
        StreamName.parse(f"{namespace}/any")  # InvalidArgumentError for a name that cannot be.
        return self._paths.namespace(namespace)
