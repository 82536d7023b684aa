"""Law 22: what waits at a node stays within its bounds, but for what comes at the bound.

And so does what a writer has in flight.
"""

import json
from collections.abc import Iterator

import attrs
import trio

from geolog.wire.limits import ENTRY_BYTES_MAX
from regions.storage.config import StorageConfig
from sim.laws.state.seen import Look
from sim.world.node import storage_config

_EVERY_S = 1.0
"""A node's status costs more than other looks do."""

_RECORD_BYTES_MORE = 200
"""What a record of an entry takes beside its value, at most."""

_BATCH_BYTES_MORE = 128
"""What a sealed batch takes beside the records that it was counted for, at most."""

_SMALL_ANSWERS_BYTES = 4 << 10
"""What answers without entries take that come while others wait, at most."""


@attrs.define
class BoundsHold:
    """Keeps when it looked last."""

    _looked_s: float = -_EVERY_S

    def breaches(self, now: Look) -> Iterator[str]:
        """Compare what waits for clients, and now and then all that a node says of itself."""
        yield from _crowded_connections(now)
        yield from _crowded_writers(now)
        if trio.current_time() - self._looked_s < _EVERY_S:
            return
        self._looked_s = trio.current_time()
        for host, core in sorted(now.world.cores.items()):
            config = storage_config(now.world.nodes[host], now.world.options.knobs)
            status = json.loads(core.status())
            for name, used, bound in _uses(status, config):
                if used > bound:
                    yield f"{host} has {used} {name}; {bound} may be"
            for store in core.service.stores:
                bound = config.in_flight_bytes_max + ENTRY_BYTES_MAX
                if store.journal.in_flight_bytes > bound:
                    yield f"{host} holds {store.journal.in_flight_bytes} bytes for its disk"


def _crowded_connections(now: Look) -> Iterator[str]:
    """What waits for one client: as much as may be, and the answer that came on top."""
    knobs = now.world.options.knobs
    entry_bytes = knobs.pipelined_max * (knobs.value_bytes_max + _RECORD_BYTES_MORE)
    for host, core in sorted(now.world.cores.items()):
        config = storage_config(now.world.nodes[host], knobs)
        answer_bytes = max(config.read_bytes_max, entry_bytes) + _SMALL_ANSWERS_BYTES
        bound = config.outgoing_bytes_max + answer_bytes
        for connection in core._connections:  # noqa: SLF001 - a law looks at the real thing.
            waiting_bytes = connection._outbox.waiting_bytes  # noqa: SLF001 - the same.
            if waiting_bytes > bound:
                yield f"{host} has {waiting_bytes} bytes for one client; {bound} may wait"


def _crowded_writers(now: Look) -> Iterator[str]:
    """What a writer has gathered and sent, by its own count and by that of its partitions."""
    for process, writer in sorted(now.history.writers.items()):
        window = writer.statistics()
        lanes_bytes = sum(lane.in_flight_bytes for lane in writer.lanes)
        batches_count = sum(lane.taker.in_flight_count + 1 for lane in writer.lanes)
        bound = window.in_flight_bytes_max + batches_count * _BATCH_BYTES_MORE
        in_flight_bytes = max(window.in_flight_bytes, lanes_bytes)
        if in_flight_bytes > bound:
            yield f"a writer of {process} has {in_flight_bytes} bytes in flight; {bound} may be"


def _uses(status: dict[str, int], config: StorageConfig) -> Iterator[tuple[str, int, int]]:
    yield "reads open", status["reads_open"], config.reads_max_all
    yield "followers", status["follows_waiting"], config.follows_max_all
    # One more answer for each connection, of as many bytes as an answer may have.
    connections = status["connections"]["open"]  # type: ignore[index]
    answers_bytes = connections * (config.read_bytes_max + ENTRY_BYTES_MAX)
    outgoing_max = config.outgoing_bytes_max_all + answers_bytes
    yield "bytes of answers", status["outgoing_bytes"], outgoing_max
    yield "connections", connections, config.connections_max
