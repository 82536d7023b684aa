"""Settings of a write proxy."""

import attrs

from geolog.transport.seam import Address
from geolog.wire.limits import RECORD_BYTES_MAX
from regions.proxy.origins import parse_origins
from topology.errors import InvalidConfigError


@attrs.frozen(kw_only=True)
class ProxyConfig:
    """Limits and location of one write proxy. All values are in seconds and bytes."""

    region: str
    """Region of the proxy. It reads from the nodes there if it can."""

    listen: Address
    """Address to take WebSockets on; port 0 picks a free port."""

    advertise: Address | None = None
    """Address at which clients and other proxies reach it. If unset, the listen address."""

    http: Address | None = None
    """Address to take HTTP requests on; port 0 picks a free port. If unset, it takes none."""

    http_advertise: Address | None = None
    """Address at which clients reach HTTP. If unset, the address that it listens on."""

    allow_origin: str = ""
    """Origins of web pages that may use the proxy, separated by commas, like
    https://shop.example, or * for all. If unset, only the proxy's own pages may: others could
    append, because there is no authentication yet. Their names are names of the proxy, too: a
    request under any other public name is refused."""

    proxy_id: str | None = None
    """Name of the proxy in the cluster. If unset, the advertised address."""

    connections_max: int = 10_000
    """Maximum number of connections; further ones get code 429, and when to come back."""

    http_connections_max: int = 1_000
    """Maximum number of HTTP connections; further ones get 429, and when to come back."""

    client_share: float = 0.5
    """Largest part of the connections, and of the bytes of unanswered appends, unread messages
    and HTTP bodies, that clients at one address may have (with IPv6: in one /64); beyond it
    they get code 429, and geolog's own clients are held back. If all come through a load
    balancer, set it to 1: then there is no such limit."""

    http_body_time_s: float = 60.0
    """Maximum time for the body of an HTTP request to arrive."""

    http_bodies_bytes_max: int = 64 << 20
    """Bytes of HTTP requests that the proxy holds; beyond it, the longest one of the client
    that holds most is answered with 429."""

    frame_bytes_max: int = 8 << 20
    """Largest message that a client may send, and largest body of an HTTP request."""

    credit_bytes: int = 8 << 20
    """Maximum bytes of unanswered appends in one session; at the limit, the proxy reads no more
    from that session until some are answered."""

    in_flight_bytes_max: int = 256 << 20
    """Maximum bytes of unanswered appends in all sessions together; at three quarters, frames
    and lines get code 429; at the limit, the proxy reads from no session. As much again is
    for answers that are due or not taken."""

    partition_in_flight_bytes_max: int = 64 << 20
    """Maximum bytes of unanswered appends for one partition, or for one stream that is written
    as a whole; at the limit, frames and lines get code 429, and when to come back, and geolog's
    own clients are held back."""

    append_queue_s: float = 1.0
    """Longest time that a frame or line may wait because the proxy has too much to do; then it
    gets code 429, and when to come back."""

    unread_bytes_max: int = 128 << 20
    """Bytes of messages that have come, whole or in part, and that no session has taken. At the
    limit, the longest message that has come in part is dropped with 429, and connections that
    have whole ones waiting are not read."""

    linger_s: float = 0.001
    """Longest time that a record waits for others in its batch, while some are in flight."""

    idle_release_s: float = 600.0
    """Give up a partition that nobody has appended to for this long; its sessions stay, and the
    next append has it taken again."""

    balance_pause_s: float = 10.0
    """Pause between checks whether this proxy owns more than its share of the partitions. If it
    does, it hands some to other proxies of its region."""

    balance_moves_max: int = 16
    """Most partitions to hand over after one check; the rest wait for the next."""

    early_takeover_pause_s: float = 30.0
    """Minimum time between two early takeovers of a partition. An early one is from a proxy
    that looks dead, but whose ZooKeeper session is not over; any other waits for that."""

    def __attrs_post_init__(self) -> None:
        if self.frame_bytes_max < RECORD_BYTES_MAX:
            raise InvalidConfigError(
                f"frame_bytes_max is {self.frame_bytes_max}; a record may have"
                f" {RECORD_BYTES_MAX} bytes"
            )
        for name in (
            "connections_max",
            "http_connections_max",
            "http_body_time_s",
            "http_bodies_bytes_max",
            "credit_bytes",
            "in_flight_bytes_max",
            "partition_in_flight_bytes_max",
            "append_queue_s",
            "unread_bytes_max",
            "idle_release_s",
            "balance_pause_s",
            "balance_moves_max",
            "early_takeover_pause_s",
        ):
            if getattr(self, name) <= 0:
                raise InvalidConfigError(f"{name} is {getattr(self, name)}; it must be > 0")
        if not 0 < self.client_share <= 1:
            raise InvalidConfigError(
                f"client_share is {self.client_share}; it must be > 0 and <= 1"
            )
        parse_origins(self.allow_origin)
        if self.linger_s < 0:
            raise InvalidConfigError(f"linger_s is {self.linger_s}; it must be >= 0")
