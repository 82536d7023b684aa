"""Units of systemd for the servers of one host, as text.

Each server is a service of its own; `geolog.target` starts and stops those that are enabled.
All hosts can have the same units: their differences are in the settings file.

Servers start in the order of SERVERS, and stop in the opposite one: a proxy hands over its
partitions while the storage node of its host still answers. ZooKeeper counts as started once it
runs, since it answers only when most of the voters do. Each other server counts as started
when it answers (`Type=notify`), however long that takes.
"""

from collections.abc import Iterator, Sequence
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

    options: Sequence[str] = ()
    """Options of every command, e.g. `--config FILE`; they go before the noun."""

    user: str = "geolog"
    """User and group of the servers."""

    zookeeper_dir: Path
    storage_dirs: Sequence[Path]

    def __attrs_post_init__(self) -> None:
        for path in (self.program, self.zookeeper_dir, *self.storage_dirs):
            if not path.is_absolute():
                raise InvalidArgumentError(f"{path} is not absolute: units need absolute paths")

    def directories(self, server: str) -> Sequence[Path]:
        """Data directories of a server; none for one that keeps nothing on disk."""
        match server:
            case "zookeeper":
                return [self.zookeeper_dir]
            case "storage":
                return self.storage_dirs
            case _:
                return []


def units(plan: UnitPlan, servers: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each unit: a service for each server, and the target."""
    for server in SERVERS:
        if server in servers:
            yield service_name(server), _service(plan, server)
    yield TARGET, _target()


def service_name(server: str) -> str:
    """Name of a server's unit."""
    return f"geolog-{server}.service"


def _target() -> str:
    return (
        f"{_written_by(TARGET)}[Unit]\nDescription=geolog servers of this host\n\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )


def _service(plan: UnitPlan, server: str) -> str:
    directories = plan.directories(server)
    earlier = list(SERVERS)[: list(SERVERS).index(server)]
    after = " ".join(["network-online.target", *map(service_name, earlier)])
    storing = [word for each in directories for word in ("--data-dir", str(each))]
    command = [str(plan.program), *plan.options, "serve", server, *storing]
    places = " ".join(map(_word, map(str, directories)))
    return "".join(
        [
            _written_by(service_name(server)),
            "[Unit]\n",
            f"Description=geolog {SERVERS[server]}\n",
            "Wants=network-online.target\n",
            f"After={after}\n",
            f"PartOf={TARGET}\n",
            f"RequiresMountsFor={places}\n" if places else "",
            "# Never give up: a server that cannot start says why in the journal each time.\n",
            "StartLimitIntervalSec=0\n",
            "\n[Service]\n",
            _type(server),
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
            f"SyslogIdentifier={service_name(server).removesuffix('.service')}\n",
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
    named = [plan.program, plan.zookeeper_dir, *plan.storage_dirs]
    named += [Path(word) for word in plan.options if word.startswith("/")]
    needs_homes = any(path.is_relative_to(home) for path in named for home in _HOMES)
    return _HARDENING.format(protect_home="" if needs_homes else "ProtectHome=yes\n")


def _word(text: str) -> str:
    """One word of a unit's line: without specifiers and variables, quoted where needed."""
    if any(character in text for character in "\n\r\0"):
        raise InvalidArgumentError(f"{text!r} has a line break: units cannot have one")
    plain = text.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$")
    if plain and not any(character in plain for character in " \t\"';"):
        return plain
    return '"' + plain.replace('"', '\\"') + '"'
