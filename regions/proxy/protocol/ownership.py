"""Where an append to a partition goes: this proxy, another one, or nowhere.

Theory of operation. Ownership is a hint, so this only avoids needless takeovers; the fence
decides. An owner whose process is alive keeps its partition: a client is sent to it if it is a
proxy, and refused if it is not, because a direct writer was meant to have the partition to
itself. A proxy that is alive and not listed is leaving, and gives its partitions up one by one:
the client comes again. Without a live owner, this proxy takes the partition.

Rules: PROTOCOL S24.
"""

import enum
from collections.abc import Collection

from geolog.protocol.stream_state import OwnerRecord


class PlaceOfAppends(enum.Enum):
    """Process that takes the appends to a partition."""

    HERE = "this proxy, which owns the partition from now on"
    AT_OWNER = "the proxy that owns it"
    NOWHERE_YET = "another proxy, once the owner has left"
    NOWHERE = "no proxy: another process writes it"


def place_of_appends(
    owner: OwnerRecord,
    *,
    is_alive: bool,
    is_proxy: bool,
    presence: str,
    proxies: Collection[str],
) -> PlaceOfAppends:
    """Decide where appends go.

    owner: the partition's owner record. is_alive: whether metadata shows its process. is_proxy:
    whether that is a proxy. presence: the node that shows this process. proxies: the names in
    owner records of all proxies that are up.
    """
    if not is_alive or owner.presence == presence:
        return PlaceOfAppends.HERE
    if owner.owner in proxies:
        return PlaceOfAppends.AT_OWNER
    return PlaceOfAppends.NOWHERE_YET if is_proxy else PlaceOfAppends.NOWHERE
