"""Start-up configuration of an emulator: regions, links, server locations and its own ports.

It is stored as JSON in the cluster's directory, so a restarted emulator is the one that was
killed, with its links in their initial state.
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
    """A port that leads to one server, for servers that do not speak the gateway protocol."""

    listen: str
    to: str
    here: str
    """The region of the connecting server."""
    there: str
    """The region of the server that it reaches."""
    answer_at: str | None = None
    """For an election port: the address at which the server can connect back."""


@attrs.frozen(kw_only=True)
class WanSetup:
    """Configuration of one emulator."""

    wan: Wan
    gateway: str
    """Address at which clients request connections."""
    places: Mapping[str, str]
    """The region of each server, by its address."""
    probes: Mapping[str, str]
    """By region, an address that echoes what it receives, for measurements."""
    forwards: tuple[Forward, ...] = ()

    def to_json(self) -> str:
        """The content of the file."""
        document = attrs.asdict(self, filter=lambda field, _: field.name != "wan")
        links = [
            {"from": here, "to": there, **attrs.asdict(conditions)}
            for (here, there), conditions in self.wan.directions.items()
        ]
        document |= {"regions": self.wan.regions, "links": links}
        return json.dumps(document, indent=2) + "\n"

    @classmethod
    def read(cls, path: Path) -> "WanSetup":
        """Read from a file. InvalidConfigError if it is missing or has other content."""
        try:
            return cls._of(json.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise InvalidConfigError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
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
            **document,  # type: ignore[arg-type]  # Its three keys are as `to_json` wrote them.
        )


def _conditions(link: dict[str, object]) -> Conditions:
    return Conditions(**link)  # type: ignore[arg-type]  # As `to_json` wrote them.


def _forward(document: dict[str, object]) -> Forward:
    return Forward(**document)  # type: ignore[arg-type]  # As `to_json` wrote them.
