"""Settings of a relay: one member of its region's relay group."""

from pathlib import Path

import attrs

from geolog.transport.seam import Address
from geolog.transport.tls import TlsIdentity
from topology.errors import InvalidConfigError

_ABOVE_ZERO = (
    "window_bytes",
    "buffer_bytes",
    "buffer_entries",
    "buffer_age_s",
    "buffers_bytes",
    "redial_s",
)


@attrs.frozen(kw_only=True)
class RelayConfig:
    """Location and limits of one relay. All values are in seconds and bytes."""

    region: str
    """Region of the relay: the home of the streams that it sends, and a target of others."""

    listen: Address
    """Address to take bridges on; port 0 picks a free port."""

    advertise: Address | None = None
    """Address at which relays of all regions reach it. If unset, the listen address."""

    http: Address | None = None
    """Address to take HTTP on (`/livez`, `/readyz`, `/metrics`). If unset, none is taken."""

    relay_id: str | None = None
    """Name of the relay in the cluster. If unset, the advertised address."""

    window_bytes: int = 64 << 20
    """Most bytes that each home may send to this region before they are durable here. A home
    uses as many as fill the link, bandwidth x round trip; a slow mirror may keep all of them in
    memory. One of several partitions uses at most three quarters of them, and a quarter while
    others are sent something, too. As a home, this relay reads at most half as many bytes from
    its logs before it sends them, for each target."""

    link_bandwidth_bytes_per_s: int = 0
    """Most bytes per second to each target region, live records first. 0 sets no limit."""

    buffer_bytes: int = 16 << 20
    """Bytes of the newest records of each partition that this relay keeps for replay, also as
    the standby. Older ones are read from the log."""

    buffer_entries: int = 100_000
    """Number of such entries of each partition; an entry has the batches that were sent
    together."""

    buffer_age_s: float = 60.0
    """How long such an entry is kept, at most."""

    buffers_bytes: int = 256 << 20
    """Bytes in the buffers of all partitions together, with what waits for its place there.
    Above it, a partition drops its oldest entry for each new one."""

    redial_s: float = 0.5
    """Pause before a bridge that ended is dialled again."""

    tls_certificate: Path | None = None
    """PEM file with the certificate of this relay, for its advertised host. With it, bridges to
    and from other regions are over TLS, and both sides need certificates."""

    tls_key: Path | None = None
    """PEM file with the private key of that certificate."""

    tls_authority: Path | None = None
    """PEM file with the authorities whose certificates this relay accepts from others."""

    @property
    def identity(self) -> TlsIdentity | None:
        """Its certificate; None if it has none. InvalidConfigError."""
        files = (self.tls_certificate, self.tls_key, self.tls_authority)
        if None in files:
            if set(files) != {None}:
                raise InvalidConfigError(
                    "give all of tls_certificate, tls_key and tls_authority, or none of them"
                )
            return None
        certificate, key, authority = files
        assert certificate is not None
        assert key is not None
        assert authority is not None
        return TlsIdentity.load(certificate=certificate, key=key, authority=authority)

    def __attrs_post_init__(self) -> None:
        for name in _ABOVE_ZERO:
            if getattr(self, name) <= 0:
                raise InvalidConfigError(f"{name} is {getattr(self, name)}; it must be > 0")
        if self.link_bandwidth_bytes_per_s < 0:
            raise InvalidConfigError(
                f"link_bandwidth_bytes_per_s is {self.link_bandwidth_bytes_per_s}; it must be"
                " >= 0, where 0 sets no limit"
            )
