"""The write proxies of a cluster in metadata: those that are up."""

import attrs
import trio

from geolog.metadata.documents import open_document
from geolog.metadata.find_all import find_all
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import Metadata, NoNodeError
from geolog.transport.seam import Address


@attrs.frozen(kw_only=True)
class ProxyRecord:
    """One write proxy that is up."""

    proxy_id: str
    region: str
    address: Address
    """Where it takes WebSockets."""
    http: Address | None = None
    """Where it takes HTTP requests."""
    owner: str
    """Its name in the owner records of the partitions that it owns."""
    partitions_count: int = 0
    """Partitions that it owned a moment ago."""
    is_draining: bool = False
    """Whether it takes no more partitions."""


_OWNER_PREFIX = "proxy "
_BEFORE_REGION = " in "


def owner_name(proxy_id: str, region: str) -> str:
    """The name of a proxy in owner records."""
    return f"{_OWNER_PREFIX}{proxy_id}{_BEFORE_REGION}{region}"


def is_proxys_name(owner: str) -> bool:
    """Whether an owner record's name is that of a proxy."""
    return owner.startswith(_OWNER_PREFIX)


def region_of_proxy(owner: str) -> str | None:
    """The region that a proxy's name in owner records tells; None if it is no proxy's name."""
    if not is_proxys_name(owner):
        return None
    _, _, region = owner.rpartition(_BEFORE_REGION)
    return region


async def list_live_proxies(
    metadata: Metadata, cluster: str, *, changed: trio.Event | None = None
) -> list[ProxyRecord]:
    """The proxies that are up, ordered by id.

    `changed` is set once, after one comes or goes.
    """
    parent = ClusterPaths(cluster).proxies_live
    try:
        names = await metadata.children(parent, changed=changed)
    except NoNodeError:
        return []
    paths = [f"{parent}/{name}" for name in names]
    records = [
        open_document(one.data, ProxyRecord, path=path)
        for path, one in zip(paths, await find_all(metadata, paths), strict=True)
        if one is not None
    ]
    return sorted(records, key=lambda record: record.proxy_id)
