"""Setup of an emulator: regions and links, the region of each server, and its own ports.

It is stored as JSON in the cluster's directory: an emulator that is killed and restarted comes
back with the same ports and the initial links.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import attrs

from sim.processes.wan.conditions import Conditions, Wan
from topology.errors import InvalidConfigError

SETUP_NAME = "wan.json"
SOCKET_NAME = "wan.socket"


@attrs.frozen(kw_only=True)
class Forward:
    """A port that leads to one server, for those that know no gateway."""

    listen: str
    to: str
    here: str
    """Region of the client."""
    there: str
    """The region of the server."""
    answer_at: str | None = None
    """For an election port: address at which the server connects back to the client."""


@attrs.frozen(kw_only=True)
class WanSetup:
    """One emulator."""

    wan: Wan
    gateway: str
    """Address of the gateway."""
    places: Mapping[str, str]
    """The region of each server, by its address."""
    probes: Mapping[str, str]
    """In each region an address that sends back what it gets, to measure by."""
    forwards: tuple[Forward, ...] = ()

    def to_json(self) -> str:
        """As a file holds it."""
        document = attrs.asdict(self, filter=lambda field, _: field.name != "wan")
        links = [
            {"from": here, "to": there, **attrs.asdict(conditions)}
            for (here, there), conditions in self.wan.directions.items()
        ]
        document |= {"regions": self.wan.regions, "links": links}
        return json.dumps(document, indent=2) + "\n"

    @classmethod
    def read(cls, path: Path) -> "WanSetup":
        """From a file. InvalidConfigError if it is not there, or holds something else."""
        try:
            return cls._of(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidConfigError(
                f"{path} is not a setup file of a WAN emulator, as `geolog demo` writes:"
                f" {error!r}"
            ) from error

    @classmethod
    def _of(cls, document: dict[str, list[dict[str, object]]]) -> "WanSetup":
        links, forwards = document.pop("links"), document.pop("forwards")
        directions = {
            (str(link.pop("from")), str(link.pop("to"))): _conditions(link) for link in links
        }
        regions = tuple(str(region) for region in document.pop("regions"))
        return cls(
            wan=Wan(regions, directions),
            forwards=tuple(_forward(each) for each in forwards),
            **document,  # type: ignore[arg-type]  # Its three keys are as they were written.
        )


def _conditions(link: dict[str, object]) -> Conditions:
    return Conditions(**link)  # type: ignore[arg-type]  # As `to_json` wrote them.


def _forward(document: dict[str, object]) -> Forward:
    return Forward(**document)  # type: ignore[arg-type]  # As `to_json` wrote them.
