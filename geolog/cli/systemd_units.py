"""Units of systemd for the servers of one host, as text.

Each server is a service of its own; `geolog.target` starts and stops those that are enabled.
All hosts can have the same units: their differences are in the settings file.

Servers start in the order of SERVERS, and stop in the opposite one: a proxy hands over its
partitions while the storage node of its host still answers. ZooKeeper counts as started once it
runs, since it answers only when most of the voters do. Each other server counts as started
when it answers (`Type=notify`), however long that takes. So the target waits for none of them:
else the host's own start would not end before ZooKeeper has its majority.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from topology.errors import InvalidArgumentError

TARGET = "geolog.target"

STOP_S = 30
"""Time for an orderly end; a server itself gives up after 15 s."""

OPEN_FILES_MAX = 65_536
"""Enough for the default connections of a proxy, and for the journal files of a node."""

SERVERS = {
    "zookeeper": "ZooKeeper server",
    "storage": "storage node",
    "proxy": "write proxy",
    "relay": "relay",
}

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

_HOMES = (Path("/home"), Path("/root"), Path("/run/user"))

_HARDENING = """\
# The servers need the network and their directories, and nothing else of the host.
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
{protect_home}PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
LockPersonality=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
UMask=0027
"""


@attrs.frozen(kw_only=True)
class UnitPlan:
    """Facts that all units of a host share. All paths are absolute."""

    program: Path
    """The `geolog` command."""

    interpreter: Path | None = None
    """Its Python, which may lie elsewhere."""

    options: Sequence[str] = ()
    """Options of every command, e.g. `--config FILE`; they go before the noun."""

    user: str = "geolog"
    """User and group of the servers."""

    zookeeper_dir: Path
    storage_dirs: Mapping[str, Sequence[Path]]
    """Data directories of each storage node, by the profile in the settings file that has its
    settings; of the only node under an empty name."""

    def __attrs_post_init__(self) -> None:
        for path in (self.program, *self.directories):
            if not path.is_absolute():
                raise InvalidArgumentError(f"{path} is not absolute: units need absolute paths")
        for name in (self.user, *filter(None, self.storage_dirs)):
            if not _NAME.fullmatch(name):
                raise InvalidArgumentError(
                    f"{name!r} cannot be in a unit: names of users and profiles have letters,"
                    " digits, '_', '.' and '-' there"
                )

    @property
    def directories(self) -> Sequence[Path]:
        """All data directories of the host."""
        return [self.zookeeper_dir, *itertools.chain(*self.storage_dirs.values())]


@attrs.frozen
class _Unit:
    """A server of the host."""

    server: str
    profile: str
    directories: Sequence[Path]

    @property
    def name(self) -> str:
        """Name of its unit: `geolog-storage.service`, or with a profile."""
        return "-".join(["geolog", self.server, *filter(None, [self.profile])]) + ".service"


def units(plan: UnitPlan, servers: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each unit: a service for each server, and the target."""
    earlier: list[_Unit] = []
    for server in SERVERS:
        group = _units_of(plan, server)
        if server in servers:
            for unit in group:
                yield unit.name, _service(plan, unit, earlier)
        earlier += group
    yield TARGET, _target()


def _units_of(plan: UnitPlan, server: str) -> list[_Unit]:
    match server:
        case "zookeeper":
            return [_Unit(server, "", [plan.zookeeper_dir])]
        case "storage":
            return [_Unit(server, *each) for each in plan.storage_dirs.items()]
        case _:
            return [_Unit(server, "", [])]


def _target() -> str:
    return (
        f"{_written_by(TARGET)}[Unit]\nDescription=geolog servers of this host\n"
        "# By default it, and multi-user.target after it, would wait for all servers.\n"
        "DefaultDependencies=no\nConflicts=shutdown.target\nBefore=shutdown.target\n\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )


def _service(plan: UnitPlan, unit: _Unit, earlier: Sequence[_Unit]) -> str:
    after = " ".join(["network-online.target", *(each.name for each in earlier)])
    profile = ["--profile", unit.profile] if unit.profile else []
    storing = [word for each in unit.directories for word in ("--data-dir", str(each))]
    command = [str(plan.program), *plan.options, *profile, "serve", unit.server, *storing]
    places = " ".join(_word(str(each), has_variables=False) for each in unit.directories)
    return "".join(
        [
            _written_by(unit.name),
            "[Unit]\n",
            f"Description=geolog {f'{SERVERS[unit.server]} {unit.profile}'.rstrip()}\n",
            "Wants=network-online.target\n",
            f"After={after}\n",
            f"PartOf={TARGET}\n",
            f"RequiresMountsFor={places}\n" if places else "",
            "# Never give up: a server that cannot start says why in the journal each time.\n",
            "StartLimitIntervalSec=0\n",
            "\n[Service]\n",
            _type(unit.server),
            f"ExecStart={' '.join(map(_word, command))}\n",
            f"User={plan.user}\n",
            f"Group={plan.user}\n",
            "Restart=always\n",
            "RestartSec=2s\n",
            "# SIGTERM goes to the server alone; it hands its work over and ends its Java.\n",
            "KillSignal=SIGTERM\n",
            "KillMode=mixed\n",
            f"TimeoutStopSec={STOP_S}s\n",
            f"LimitNOFILE={OPEN_FILES_MAX}\n",
            f"SyslogIdentifier={unit.name.removesuffix('.service')}\n",
            _hardening(plan),
            f"ReadWritePaths={places}\n" if places else "",
            f"\n[Install]\nWantedBy={TARGET}\n",
        ]
    )


def _written_by(name: str) -> str:
    return (
        "# Written by `geolog generate systemd`. To change it, use `systemctl edit"
        f" {name}`.\n\n"
    )


def _type(server: str) -> str:
    if server == "zookeeper":
        return (
            "# It answers once most of the voters run: the others start meanwhile.\nType=exec\n"
        )
    return (
        "# Started when it answers; a node may first read its journal, or wait for ZooKeeper.\n"
        "Type=notify\nTimeoutStartSec=infinity\n"
    )


def _hardening(plan: UnitPlan) -> str:
    named = [plan.program, *plan.directories]
    if plan.interpreter is not None:
        named.append(plan.interpreter)
    named += [Path(word) for word in plan.options if word.startswith("/")]
    needs_homes = any(path.is_relative_to(home) for path in named for home in _HOMES)
    return _HARDENING.format(protect_home="" if needs_homes else "ProtectHome=yes\n")


def _word(text: str, *, has_variables: bool = True) -> str:
    """One word of a unit's line, quoted where needed, without specifiers.

    has_variables: whether systemd expands variables there, as it does in a command alone.
    """
    if any(character in text for character in "\n\r\0"):
        raise InvalidArgumentError(f"{text!r} has a line break: units cannot have one")
    plain = text.replace("\\", "\\\\").replace("%", "%%")
    if has_variables:
        plain = plain.replace("$", "$$")
    if plain and not any(character in plain for character in " \t\"';"):
        return plain
    return '"' + plain.replace('"', '\\"') + '"'
