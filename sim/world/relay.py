"""A relay's place in the world: its processes follow each other at one address."""

from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import trio

from geolog.transport.message_socket import MessageTransport
from geolog.transport.seam import Address
from relay.server.config import RelayConfig
from relay.server.relay import Relay
from sim.world.options import Knobs
from sim.world.other_version import MetVersions, OtherVersion

RELAY = "relay-"
"""Hosts of relays begin with this."""

_PORT = 7200
_WINDOW_BYTES = 64 << 10
"""Small, so that links wait for their targets."""

_BUFFERS_ENTRIES = (3, 100_000, 20)


@attrs.define(eq=False)
class WorldRelay:
    """The place of a relay."""

    host: str
    region: str
    to_leave: trio.Event = attrs.field(factory=trio.Event)
    """Set to end its process in good order."""
    is_wanted: bool = True
    """Whether another process follows one that has ended."""
    relays: list[Relay] = attrs.field(factory=list)
    """Those of all its processes."""
    version_shift: int = 0
    """How far the version of the next process is above that of the others."""
    shifted_count: int = 0
    """Its processes that run in another version now."""
    met: MetVersions = attrs.field(factory=MetVersions)
    """Bridges refused or opened while it had another version, or a stranger dialled it."""

    @contextmanager
    def in_version(self, messages: MessageTransport) -> Iterator[MessageTransport]:
        """The connections of a process that runs in this version until the end of the block."""
        if not self.version_shift:
            yield messages
            return
        self.shifted_count += 1
        try:
            yield OtherVersion(messages, self.version_shift, self.met)
        finally:
            self.shifted_count -= 1

    def config(self, knobs: Knobs) -> RelayConfig:
        """Settings: windows are small, and bridges are soon dialled again."""
        return RelayConfig(
            region=self.region,
            listen=Address(self.host, _PORT),
            relay_id=self.host,
            window_bytes=_WINDOW_BYTES,
            buffer_entries=self._buffer_entries(knobs),
            redial_s=0.2,
        )

    def _buffer_entries(self, knobs: Knobs) -> int:
        """The bound of its buffer; where settings change, another one after each restart."""
        if knobs.settings_rest_s_max is None:
            return knobs.relay_buffer_entries
        bounds = (knobs.relay_buffer_entries, *_BUFFERS_ENTRIES)
        return bounds[len(self.relays) % len(bounds)]
