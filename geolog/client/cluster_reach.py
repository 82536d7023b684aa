"""How a program without arguments reaches its cluster: by the settings of the command."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import attrs

from geolog.settings.command_config import COMMAND, CommandConfig
from geolog.settings.found import (
    CONFIG_VARIABLE,
    check_found,
    file_of_machine,
    find_demo,
    find_file,
    find_sources,
)
from geolog.settings.settings_file import SettingsFile
from geolog.settings.sources import Decided, configured, table_of, unknown_key
from geolog.transport.seam import Address
from topology.errors import InvalidArgumentError, InvalidConfigError

_log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class ClusterReach:
    """Servers of a cluster and the way to them, as far as settings tell."""

    zookeeper: str | None = None
    proxies: str | None = None
    cluster: str = "default"
    region: str | None = None
    gateway: Address | None = None
    zookeeper_regions: Sequence[str] | None = None
    origin: str | None = None
    """Where the addresses stand, for errors."""


def reach_in_settings(settings: str | Path | None, profile: str | None) -> ClusterReach:
    """Read the settings of the command, from this file if one is given.

    Without any settings they are those of a running demo, and a warning in the log says so; or
    without a demo, those of the machine.
    InvalidArgumentError: they name no servers. InvalidConfigError, NotFoundError: they are
    wrong.
    """
    named = None if settings is None else str(settings)
    file = find_file(named, os.environ)
    if file is not None:
        check_found(file, named, os.environ)
    elif (demo := find_demo({}, os.environ, profile)) is not None:
        _log.warning("no settings: using the demo that runs in %s", demo.directory)
        file = SettingsFile.read(demo.settings_file)
    else:
        file = file_of_machine()
    if file is not None:  # The working directory says little in a log.
        file = attrs.evolve(file, path=file.path.absolute())
        _check(file)
    decided = find_sources({}, os.environ, file, profile).decide(COMMAND)
    config = configured(CommandConfig, decided)
    if not config.zookeeper and not config.proxy:
        where = "" if file is None else f" in {file.path} or the environment"
        raise InvalidArgumentError(
            f"no servers are named{where}: give zookeeper='HOST:PORT' or proxies='HOST:PORT',"
            f" set GEOLOG_ZOOKEEPER, or let {CONFIG_VARIABLE} name a settings file"
        )
    return ClusterReach(
        zookeeper=config.zookeeper or None,
        proxies=config.proxy or None,
        cluster=config.cluster,
        region=config.region,
        gateway=config.gateway,
        zookeeper_regions=config.server_regions,
        origin=_origin(decided),
    )


def _check(file: SettingsFile) -> None:
    """InvalidConfigError for unknown keys outside of tables; the tables are for servers."""
    complaints = [unknown_key(file, key, COMMAND) for key in file.values if not table_of(key)]
    if any(complaints):
        raise InvalidConfigError("\n".join(filter(None, complaints)))


def _origin(decided: Sequence[Decided]) -> str:
    """Where the settings stand that are not defaults, a place each."""
    places: dict[str, list[str]] = {}
    for each in decided:
        if each.setting.field in _SHOWN and each.origin != "default":
            places.setdefault(each.origin, []).append(each.setting.key)
    shown = (f"{', '.join(keys)} from {place}" for place, keys in places.items())
    return "; ".join(shown)


_SHOWN = ("zookeeper", "proxy", "cluster", "region", "gateway")
