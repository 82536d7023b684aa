"""Location of a node: `/region/rack`, or deeper: `/region/row/rack`."""

import re

import attrs

from topology.errors import InvalidArgumentError

_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

_RACK_UNKNOWN = "?"
"""Name of an unknown rack; no node can have it."""


@attrs.frozen(order=True)
class Location:
    """A path of two or more parts. Nodes of a rack, or racks of a region, may fail together.

    The region is the first part; the rack is all the rest, so that rows within a region need no
    rules of their own.
    """

    region: str
    rack: str

    def __str__(self) -> str:
        return f"/{self.region}/{self.rack}"

    @classmethod
    def within(cls, region: str) -> "Location":
        """Somewhere in a region: its rack is unknown, so it matches no node's rack."""
        return cls(region, _RACK_UNKNOWN)

    @property
    def is_rack_known(self) -> bool:
        """Whether it has more than the region."""
        return self.rack != _RACK_UNKNOWN

    @property
    def depth(self) -> int:
        """Number of its parts: 2 for `/region/rack`."""
        return 2 + self.rack.count("/")

    @classmethod
    def parse(cls, text: str) -> "Location":
        """Parse `/region/rack`, or deeper; otherwise InvalidArgumentError with the value."""
        parts = text.split("/")
        if len(parts) < 3 or parts[0] or not all(_PART.fullmatch(part) for part in parts[1:]):
            raise InvalidArgumentError(
                f"location {text!r} is not of the form /REGION/RACK, e.g. /eu-west/rack-1"
                " (letters, digits, '.', '_' and '-')"
            )
        return cls(parts[1], "/".join(parts[2:]))
