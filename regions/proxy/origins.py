"""The web pages that may use a proxy.

A browser lets a page of any site send requests to any address that its computer reaches, the
loopback included, and says in the header `Origin` which site that is. A proxy has no other way
to tell them apart as long as it has no authentication, so it refuses the pages of other sites,
unless its operator allows them. Programs that are not browsers send no such header.

A page that only reads from its own site sends none either, and the owner of a site's name can
let it lead to another address. Nothing else in a request tells it from a program's: a page sets
all headers but a few. So everybody has to name the proxy by an address, by a name that nobody
can have in public, or by one that belongs to an origin that is served.
"""

from collections.abc import Iterable
from functools import cached_property
from ipaddress import ip_address

import attrs

from geolog.transport.seam import Address
from topology.errors import InvalidConfigError, NotPermittedError

_ANY = "*"
_PRIVATE = (".localhost", ".local", ".internal", ".home.arpa", ".svc")
"""Ends of names that nobody has in public: none is a site's. Nor is one without a dot."""
_TEXT_MAX = 200


@attrs.frozen
class Origins:
    """The origins that are served."""

    served: frozenset[str]

    @classmethod
    def of(cls, allowed: str, own: Iterable[Address]) -> "Origins":
        """Serve the pages of these own addresses, and those allowed, separated by commas."""
        own_pages = {f"{scheme}://{one}" for one in own for scheme in ("http", "https")}
        return cls(frozenset(own_pages | set(parse_origins(allowed))))

    def check(self, origin: str | None) -> None:
        """NotPermittedError if a page of this origin is not served; None: no page asks."""
        if origin is None or _ANY in self.served or origin in self.served:
            return
        raise NotPermittedError(
            f"a web page of {origin[:_TEXT_MAX]} may not use this proxy; its operator can allow"
            " that with --allow-origin"
        )

    def check_host(self, host: str | None) -> None:
        """NotPermittedError if a client asks under a name that may be anybody's."""
        if host is None or _ANY in self.served:  # A browser always sends one.
            return
        name = _name_of(host)
        if _is_private(name) or _is_address(name) or name in self._names:
            return
        raise NotPermittedError(
            f"{host[:_TEXT_MAX]} is not a name of this proxy; use its address, or have its"
            f" operator allow http://{host[:_TEXT_MAX]} with --allow-origin"
        )

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(_name_of(origin.partition("://")[2]) for origin in self.served)


def _name_of(place: str) -> str:
    """The host of HOST:PORT or HOST, in lower case."""
    name, _, port = place.rpartition(":")
    if not port.isdecimal():
        name = place
    return (name or place).strip("[]").lower().removesuffix(".")


def _is_private(name: str) -> bool:
    return "." not in name or name.endswith(_PRIVATE)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def parse_origins(text: str) -> list[str]:
    """Origins separated by commas, e.g. `https://shop.example`; `*`. InvalidConfigError."""
    found = [one.strip() for one in text.split(",") if one.strip()]
    for one in found:
        scheme, _, place = one.partition("://")
        is_origin = scheme in ("http", "https") and place and not set(place) & set("/?# ")
        if one != _ANY and not is_origin:
            raise InvalidConfigError(
                f"allow_origin has {one!r}: write e.g. https://shop.example, without a path"
            )
    return found
