"""The links of a world: distances by region, jitter, stalls, slow hosts."""

from random import Random

import attrs
from crc32c import crc32c

from sim.fakes.memory_transport import PIPE_BYTES_MAX, Buffer, MemoryNetwork, MemoryStream
from sim.world.options import Links
from sim.world.trace import Trace

_STALL_S_MIN, _STALL_S_MAX = 0.2, 3.0
"""How long TCP takes to send a lost packet again: its first time-out, and a few doublings."""

_NARROW_PIPE_BYTES = 8 << 10
"""For worlds with tight room: a slow reader's backlog then waits at the node."""


@attrs.define(eq=False)
class WorldLinks:
    """Answers the questions of the memory network, all from one random source."""

    _links: Links
    _rng: Random
    _trace: Trace
    is_calm: bool = attrs.field(default=False, init=False)
    """Whether stalls have ended."""
    region_of: dict[str, str] = attrs.field(factory=dict, init=False)
    """The region of each host."""
    receive_delays_s: dict[str, float] = attrs.field(factory=dict, init=False)
    """The receive delay of each host that is slow."""
    way_delays_s: dict[tuple[str, str], float] = attrs.field(factory=dict, init=False)
    """Seconds more on the way from one region to another, if that way is slow."""
    _across_s: dict[tuple[str, str], float] = attrs.field(factory=dict, init=False)

    def open_network(self, *, is_narrow: bool) -> MemoryNetwork:
        """A network with these links, whose events go to the trace."""
        return MemoryNetwork(
            latency_s=self.latency_s,
            receive_delay_s=lambda host: self.receive_delays_s.get(host, 0.0),
            receive_bytes_max=self._receive_bytes_max,
            observe=self._observe,
            pipe_bytes_max=_NARROW_PIPE_BYTES if is_narrow else PIPE_BYTES_MAX,
        )

    def latency_s(self, sender: str, receiver: str) -> float:
        """How long the next piece of bytes takes."""
        way = self.region_of[sender], self.region_of[receiver]
        latency_s = self.distance_s(*way)
        latency_s *= 1 + self._links.jitter * self._rng.random()
        latency_s += self.way_delays_s.get(way, 0.0)
        if not self.is_calm and self._rng.random() < self._links.stall_chance:
            latency_s += self._rng.uniform(_STALL_S_MIN, _STALL_S_MAX)
        return latency_s

    def distance_s(self, one: str, other: str) -> float:
        """One way between two regions, without jitter or stalls."""
        if one == other:
            return self._links.latency_s_within
        pair = (min(one, other), max(one, other))
        if pair not in self._across_s:
            self._across_s[pair] = self._links.latency_s_across * self._rng.uniform(0.3, 1.0)
        return self._across_s[pair]

    def _receive_bytes_max(self, host: str) -> int:
        if host in self.receive_delays_s:
            return self._rng.choice((1, 100, 1400))
        return PIPE_BYTES_MAX

    def _observe(self, what: str, stream: MemoryStream, piece: Buffer) -> None:
        details = f"{stream.connection} {stream.peer_host}"
        if piece:
            details += f" {len(piece)} {crc32c(piece):08x}"
        self._trace.add(stream.host, what, details)
