"""Where a node stands: `/region/rack`."""

import re

import attrs

from topology.errors import InvalidArgumentError

_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@attrs.frozen(order=True)
class Location:
    """A path of two parts. Nodes of a rack, and racks of a region, tend to fail together."""

    region: str
    rack: str

    def __str__(self) -> str:
        return f"/{self.region}/{self.rack}"

    @classmethod
    def parse(cls, text: str) -> "Location":
        """Read `/region/rack`; InvalidArgumentError with the value otherwise."""
        parts = text.split("/")
        if len(parts) != 3 or parts[0] or not all(_PART.fullmatch(part) for part in parts[1:]):
            raise InvalidArgumentError(
                f"location {text!r} is not of the form /REGION/RACK, as /eu-west/rack-1"
                " (letters, digits, '.', '_' and '-')"
            )
        return cls(parts[1], parts[2])
