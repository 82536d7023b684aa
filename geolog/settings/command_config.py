"""Settings of every command; those that say how to reach a cluster serve programs, too."""

from typing import Literal

import attrs

from geolog.settings.sources import Role
from geolog.transport.seam import Address
from topology.errors import InvalidConfigError

Output = Literal["table", "json", "jsonl"]


@attrs.frozen(kw_only=True)
class CommandConfig:
    """Settings of every command."""

    zookeeper: str = ""
    """ZooKeeper servers of the cluster, `HOST:PORT,HOST:PORT`, with an optional `/chroot`."""

    zookeeper_regions: str = ""
    """Regions of these servers in the same order, e.g. `us-east,eu-west,ap-northeast`. If set,
    `stream create` refuses to promise that a stream survives a loss that ZooKeeper would not
    survive."""

    proxy: str = ""
    """Write proxies to ask first, `HOST:PORT,HOST:PORT`. Without `zookeeper`, `geolog append`
    and `geolog read` go through them, and all other commands refuse. If unset, they are found
    in ZooKeeper."""

    cluster: str = "default"
    """Name of the cluster; several clusters can share one ZooKeeper."""

    region: str | None = None
    """Region this process runs in; reads prefer its nodes. If unset, they find the nearest."""

    gateway: Address | None = None
    """Address of a gateway between regions, as in an emulated WAN. Connections to servers go
    through it, as if from `region`. If unset, they are direct."""

    output: Output = "table"
    """Output format: `table` for people, `json` for one document, `jsonl` for one per line."""

    timeout_s: float = 30.0
    """Give up, with exit code 5, after this long without an answer or progress."""

    def __attrs_post_init__(self) -> None:
        if self.timeout_s <= 0:
            raise InvalidConfigError("timeout must be more than 0s, e.g. 30s")

    @property
    def server_regions(self) -> list[str] | None:
        """`zookeeper_regions` as a list; None if unset."""
        names = [name.strip() for name in self.zookeeper_regions.split(",") if name.strip()]
        return names or None


COMMAND = Role("", "geolog.settings.command_config", "CommandConfig")
