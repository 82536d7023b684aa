"""Where an append to a partition goes: this proxy, another one, or nowhere.

Theory of operation. Ownership is a hint, so this only avoids needless takeovers; the fence
decides. An owner whose process is alive keeps its partition: a client is sent to it if it is a
proxy, and refused if it is not, because a direct writer was meant to have the partition to
itself. A proxy that is alive and not listed is leaving, and gives its partitions up one by one:
the client comes again.

A partition without a live owner goes to one proxy, whichever is asked: the first in the ranking
of `owner_balance`, at the partition's home. That is the region of the owner that died; or, if
the last owner has left by itself, the region of the proxy that is asked, whose clients want the
partition now. Proxies that the client could not use are passed over; this proxy never is. So a
client is only ever sent to a proxy that ranks higher than the one that sends it, and comes to
an end, even if no two proxies see the same ones. Only a proxy that is not listed, because it is
leaving, sends clients down.

A `regional` stream is owned in its home alone. So only proxies of that region are ranked, and
if none is up there, nobody takes its partitions.

An owner that its peers take for dead counts as such, although metadata still shows it. So does
an earlier process of this proxy's own name: it ended before this one began. Such a takeover is
early, and needs a permit, because the guess may be wrong.

Rules: PROTOCOL O19, S24, S25 and S26.
"""

from collections.abc import Collection, Sequence

import attrs

from geolog.protocol.owner_balance import OwnerCandidate, ranking
from geolog.protocol.stream_state import OwnerRecord


@attrs.frozen
class Here:
    """This proxy takes appends, and the partition if it does not own it yet."""

    is_early: bool = False
    """Whether metadata still shows the owner from which it takes the partition."""


@attrs.frozen
class AtProxy:
    """Another proxy does."""

    process: str
    """Its name in owner records."""


@attrs.frozen
class NowhereYet:
    """Another proxy does, once the owner has left."""


@attrs.frozen
class Nowhere:
    """No proxy does: a direct writer owns the partition."""


@attrs.frozen
class HomeAway:
    """No proxy does: none is up at the home of the stream."""

    home: str


PlaceOfAppends = Here | AtProxy | NowhereYet | Nowhere | HomeAway


@attrs.frozen(kw_only=True)
class LastOwner:
    """The owner that a partition's record names, as metadata shows it."""

    record: OwnerRecord
    is_alive: bool
    is_proxy: bool
    region: str | None
    """Its region, if it is a proxy."""


@attrs.frozen(kw_only=True)
class ProxiesSeen:
    """The proxies that are up, as one of them sees them."""

    here: str
    """This proxy's name in owner records."""
    presence: str
    """The node that shows this process."""
    region: str
    listed: Sequence[OwnerCandidate]
    """All that are listed in metadata; this one, too, unless it is leaving."""
    avoided: Collection[str] = ()
    """Those that the client could not use just now."""
    suspected: Collection[str] = ()
    """Those that this proxy takes for dead."""


def place_of_appends(
    partition: str, owner: LastOwner, seen: ProxiesSeen, home: str | None = None
) -> PlaceOfAppends:
    """Decide where appends to the partition go; `home` is that of a `regional` stream."""
    if owner.is_alive:
        if owner.record.presence == seen.presence:
            return Here()
        if owner.record.owner == seen.here:
            return Here(is_early=True)
        if owner.record.owner not in seen.suspected:
            return _place_of_live(owner, seen)
    best = _best_taker(partition, owner, seen, home)
    if best is None and home not in (None, seen.region):
        return HomeAway(home)
    return Here(is_early=owner.is_alive) if best in (None, seen.here) else AtProxy(best)


def _place_of_live(owner: LastOwner, seen: ProxiesSeen) -> PlaceOfAppends:
    if any(one.process == owner.record.owner for one in seen.listed):
        return AtProxy(owner.record.owner)
    return NowhereYet() if owner.is_proxy else Nowhere()


def _best_taker(
    partition: str, owner: LastOwner, seen: ProxiesSeen, home: str | None
) -> str | None:
    has_left = not owner.record.presence
    nearest = seen.region if has_left or owner.region is None else owner.region
    usable = [
        one
        for one in seen.listed
        if home in (None, one.region)
        and (
            one.process == seen.here
            or (one.process not in seen.avoided and one.process not in seen.suspected)
        )
    ]
    return next(iter(ranking(partition, home or nearest, usable)), None)
