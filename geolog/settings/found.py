"""Finds the settings of this process: its file, its profile, and its environment."""

from collections.abc import Mapping
from pathlib import Path

from geolog.settings.settings_file import SettingsFile
from geolog.settings.sources import SettingSources
from topology.errors import NotFoundError
from topology.nearest import suggestion

CONFIG_VARIABLE = "GEOLOG_CONFIG"
PROFILE_VARIABLE = "GEOLOG_PROFILE"
FILE_HERE = Path("geolog.toml")


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


def _read_exported(path: Path) -> SettingsFile:
    try:
        return SettingsFile.read(path)
    except NotFoundError as error:
        raise NotFoundError(
            f"{CONFIG_VARIABLE} names {path}, which does not exist: unset it, or export the"
            " path of another settings file. (A demo removes its file when it ends)"
        ) from error


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
