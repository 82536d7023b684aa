"""All roles that have settings, and the errors for keys and variables that no role has."""

from collections.abc import Mapping
from pathlib import Path

import attrs

from geolog.settings.command_config import COMMAND
from geolog.settings.found import CONFIG_VARIABLE, PROFILE_VARIABLE
from geolog.settings.settings_file import SettingsFile
from geolog.settings.sources import Role, settings_of, table_of, unknown_key
from topology.nearest import nearest, suggestion


@attrs.frozen(kw_only=True)
class DemoConfig:
    """Settings of the commands that control a running demo."""

    data_dir: Path | None = None
    """Directory of the demo. If unset, the demo started last on this machine."""


DEMO = Role("demo", "geolog.cli.settings.roles", "DemoConfig")
PLACEMENT = Role("placement", "geolog.ledger.nodes.placement_config", "PlacementConfig")
STORAGE = Role("serve.storage", "regions.storage.config", "StorageConfig", given=("cluster",))
ZOOKEEPER = Role(
    "serve.zookeeper",
    "regions.zookeeper.server",
    "ZooKeeperConfig",
    given=("data_dir",),
)
PROXY = Role("serve.proxy", "regions.proxy.config", "ProxyConfig", given=("region",))
RELAY = Role("serve.relay", "relay.server.config", "RelayConfig", given=("region",))
ROLES = (COMMAND, PLACEMENT, DEMO, STORAGE, PROXY, RELAY, ZOOKEEPER)

PARENT_PIPE_VARIABLE = "GEOLOG_PARENT_PIPE"
"""Set by a supervisor: the number of a pipe; the server ends when the pipe closes."""


def check_keys(file: SettingsFile) -> list[str]:
    """Return a complaint for each unknown key in the file, suggesting the nearest known one."""
    roles = {role.table: role for role in ROLES}
    complaints: list[str] = []
    for key in file.values:
        table = table_of(key)
        if table in roles:
            complaints += filter(None, [unknown_key(file, key, roles[table])])
        else:
            known = [name for name in roles if name]
            best = nearest(table, known)
            hint = f"; did you mean [{best}]?" if best else f"; tables are {', '.join(known)}"
            complaints.append(f"{file.place(key)}: unknown table [{table}]{hint}")
    return complaints


def check_environment(environment: Mapping[str, str]) -> list[str]:
    """Return a complaint for each unknown `GEOLOG_…` variable."""
    present = [name for name in environment if name.startswith("GEOLOG_")]
    known = {CONFIG_VARIABLE, PROFILE_VARIABLE, PARENT_PIPE_VARIABLE}
    known |= {setting.environment_name for role in ROLES for setting in settings_of(role)}
    return [
        f"unknown environment variable {name}{suggestion(name, known)}"
        for name in sorted(present)
        if name not in known
    ]
