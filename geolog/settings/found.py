"""Finds the settings of this process: its file, its profile, and its environment."""

from collections.abc import Mapping
from pathlib import Path

from geolog.settings.running_demo import (
    DemoNote,
    check_demo_runs,
    other_settings,
    running_demo,
)
from geolog.settings.settings_file import SettingsFile
from geolog.settings.sources import SettingSources
from topology.errors import NotFoundError
from topology.nearest import suggestion

CONFIG_VARIABLE = "GEOLOG_CONFIG"
PROFILE_VARIABLE = "GEOLOG_PROFILE"
FILE_HERE = Path("geolog.toml")
FILE_OF_MACHINE = Path("/etc/geolog/geolog.toml")

_NAMING = ("zookeeper", "proxy", "cluster", "gateway")
"""Settings that name a cluster, or the way to it."""

_NAMING_VARIABLES = tuple(f"GEOLOG_{name.upper()}" for name in _NAMING)


def find_file(named: str | None, environment: Mapping[str, str]) -> SettingsFile | None:
    """Read the file named, else the one that `$GEOLOG_CONFIG` names, else ./geolog.toml.

    None if there is none. NotFoundError, InvalidConfigError: a file that is named is absent, or
    not valid.
    """
    if named is not None:
        return SettingsFile.read(Path(named))
    if (path := environment.get(CONFIG_VARIABLE)) is not None:
        return _read_exported(Path(path))
    return SettingsFile.read(FILE_HERE) if FILE_HERE.exists() else None


def file_of_machine() -> SettingsFile | None:
    """Read /etc/geolog/geolog.toml, for callers that found neither a file nor a demo.

    None if there is none. InvalidConfigError: it cannot be read, or is not valid.
    """
    try:
        return SettingsFile.read(FILE_OF_MACHINE)
    except NotFoundError:
        return None


def _read_exported(path: Path) -> SettingsFile:
    try:
        return SettingsFile.read(path)
    except NotFoundError as error:
        raise NotFoundError(
            f"{CONFIG_VARIABLE} names {path}, which does not exist: export the path of another"
            f" settings file, or {other_settings(CONFIG_VARIABLE)}. (A demo removes its file"
            " when it ends)"
        ) from error


def check_found(file: SettingsFile, named: str | None, environment: Mapping[str, str]) -> None:
    """NotFoundError if the file that `find_file` found is of a demo that has ended."""
    if named is not None:
        named_by = f"--config {named}"
    elif CONFIG_VARIABLE in environment:
        named_by = f"{CONFIG_VARIABLE}={environment[CONFIG_VARIABLE]}"
    else:
        named_by = str(file.path)
    check_demo_runs(file, named_by)


def find_demo(
    flags: Mapping[str, str], environment: Mapping[str, str], profile: str | None
) -> DemoNote | None:
    """Find a running demo of this user, for callers that found no settings file.

    None if there is none, or if anything names a cluster or a profile.
    """
    named = [*(name for name in _NAMING if name in flags), *([profile] if profile else [])]
    named += [name for name in (PROFILE_VARIABLE, *_NAMING_VARIABLES) if name in environment]
    return None if named else running_demo()


def find_sources(
    flags: Mapping[str, str],
    environment: Mapping[str, str],
    file: SettingsFile | None,
    profile: str | None = None,
) -> SettingSources:
    """All sources of settings, with the profile named, else with `$GEOLOG_PROFILE`.

    NotFoundError: the file has no such profile.
    """
    profile = profile or environment.get(PROFILE_VARIABLE)
    profiles = [] if file is None else file.profiles
    if profile is not None and profile not in profiles:
        if file is None:
            raise NotFoundError(f"unknown profile {profile!r}: no settings file is in use")
        hint = suggestion(profile, profiles)
        raise NotFoundError(f"unknown profile {profile!r} in {file.path}{hint}")
    return SettingSources(flags, environment, file, profile)
