"""Whether a bridge may be opened with another region's coordinator.

Each side checks what the other says of itself before anything else: the cluster, the region,
the version of the protocol, and the epoch under which it coordinates its region. A coordinator
that was deposed without noticing has a lower epoch than its successor; once the successor was
seen, the old one is refused. Only the order of epochs is judged here: a deposed one that comes
first does no harm, because mirrors have owners with epochs of their own, and every entry names
the one before it.

Rules: PROTOCOL B1 and B10.
"""

from geolog.wire.session.codes import Code
from relay.protocol.bridge_messages import (
    BRIDGE_VERSION,
    NO_COMPRESSION,
    BridgeHello,
    BridgeRefused,
    BridgeWelcome,
)


class BridgeGate:
    """Admits coordinators of other regions, at one coordinator."""

    def __init__(self, cluster: str, region: str, relay_epoch: int) -> None:
        self._cluster = cluster
        self._region = region
        self._relay_epoch = relay_epoch
        self._epochs: dict[str, int] = {}

    @property
    def relay_epoch(self) -> int:
        """In which the coordinator on this side coordinates."""
        return self._relay_epoch

    def answer(self, hello: BridgeHello) -> BridgeWelcome | BridgeRefused:
        """The home's answer to a target's hello."""
        fault = self._fault(hello.cluster, hello.region)
        if fault is not None:
            return fault
        if not hello.version_first <= BRIDGE_VERSION <= hello.version_last:
            return BridgeRefused(
                Code.BAD_MESSAGE,
                f"this relay speaks version {BRIDGE_VERSION} of the bridge's protocol, the"
                f" other side {hello.version_first} to {hello.version_last}",
            )
        if NO_COMPRESSION not in hello.compressions:
            return BridgeRefused(
                Code.BAD_MESSAGE,
                f"this relay sends entries as they are sealed ({NO_COMPRESSION!r}), the other"
                f" side takes {', '.join(hello.compressions) or 'nothing'}",
            )
        fault = self._epoch_fault(hello.region, hello.relay_epoch)
        return fault or BridgeWelcome(
            cluster=self._cluster, region=self._region, relay_epoch=self._relay_epoch
        )

    def fault_of_welcome(
        self, welcome: BridgeWelcome, *, expected_region: str
    ) -> BridgeRefused | None:
        """Why the target leaves again, if it does."""
        fault = self._fault(welcome.cluster, welcome.region)
        if fault is not None:
            return fault
        if welcome.region != expected_region:
            return BridgeRefused(
                Code.CONFLICT,
                f"this is the relay of region {welcome.region!r}, not of {expected_region!r}",
            )
        if welcome.version != BRIDGE_VERSION or welcome.compression != NO_COMPRESSION:
            return BridgeRefused(
                Code.BAD_MESSAGE,
                f"version {welcome.version} with compression {welcome.compression!r} was not"
                " offered",
            )
        return self._epoch_fault(welcome.region, welcome.relay_epoch)

    def _fault(self, cluster: str, region: str) -> BridgeRefused | None:
        if cluster != self._cluster:
            return BridgeRefused(
                Code.FORBIDDEN,
                f"this relay is of cluster {self._cluster!r}, the other side of {cluster!r}",
            )
        if region == self._region:
            return BridgeRefused(
                Code.CONFLICT,
                f"both sides say that their region is {region!r}: give one of the two clusters'"
                " regions another name",
            )
        return None

    def _epoch_fault(self, region: str, relay_epoch: int) -> BridgeRefused | None:
        highest = self._epochs.get(region, 0)
        if relay_epoch < highest:
            return BridgeRefused(
                Code.FENCED,
                f"relay epoch {relay_epoch} of {region} is over: a coordinator with epoch"
                f" {highest} was here",
            )
        self._epochs[region] = relay_epoch
        return None
