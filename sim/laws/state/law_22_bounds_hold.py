"""Law 22: bytes that wait at a node, or are under way from a writer or a home, are bounded.

A node may exceed its bound by the one answer that reaches it, a bridge by one entry.
"""

from collections.abc import Iterator

import attrs
import trio

from geolog.wire.limits import ENTRY_BYTES_MAX
from regions.storage.config import StorageConfig
from regions.storage.node import StorageNode
from relay.bridge.read_ahead import READERS_MAX
from relay.bridge.target_bridge import TargetBridge
from sim.laws.state.seen import Look
from sim.world.node import storage_config

_EVERY_S = 1.0
"""A look at all stores costs more than other looks."""

_RECORD_BYTES_MORE = 200
"""The most that a record of an entry takes in addition to its value."""

_BATCH_BYTES_MORE = 128
"""The most that a sealed batch takes in addition to the records that it was counted for."""

_SMALL_ANSWERS_BYTES = 4 << 10
"""The most that answers without entries take which join while others wait."""


_READ_AT_ONCE_BYTES = 64 << 10
"""The most that a reader of a log gets at once, besides one entry."""


@attrs.define
class BoundsHold:
    """Keeps the time of its last look."""

    _looked_s: float = -_EVERY_S

    def breaches(self, now: Look) -> Iterator[str]:
        """Check the bytes that wait for clients, and now and then each node's status."""
        yield from _crowded_connections(now)
        yield from _crowded_writers(now)
        yield from _crowded_mirrors(now)
        yield from _read_ahead(now)
        if trio.current_time() - self._looked_s < _EVERY_S:
            return
        self._looked_s = trio.current_time()
        for host, core in sorted(now.world.cores.items()):
            config = storage_config(now.world.nodes[host], now.world.options.knobs)
            for name, used, bound in _uses(core, config):
                if used > bound:
                    yield f"{host} has {used} {name}; the bound is {bound}"
            for store in core.service.stores:
                bound = config.in_flight_bytes_max + ENTRY_BYTES_MAX
                if store.journal.in_flight_bytes > bound:
                    yield (
                        f"{host} holds {store.journal.in_flight_bytes} bytes for its disk,"
                        " above the bound"
                    )


def _crowded_connections(now: Look) -> Iterator[str]:
    """The bytes that wait for one client: the bound, and the one answer that came on top."""
    knobs = now.world.options.knobs
    entry_bytes = knobs.pipelined_max * (knobs.value_bytes_max + _RECORD_BYTES_MORE)
    for host, core in sorted(now.world.cores.items()):
        config = storage_config(now.world.nodes[host], knobs)
        answer_bytes = max(config.read_bytes_max, entry_bytes) + _SMALL_ANSWERS_BYTES
        bound = config.outgoing_bytes_max + answer_bytes
        for connection in core._connections:  # noqa: SLF001 - a law looks at the real thing.
            waiting_bytes = connection._outbox.waiting_bytes  # noqa: SLF001 - the same.
            if waiting_bytes > bound:
                yield (
                    f"{host} has {waiting_bytes} bytes waiting for one client; the bound is"
                    f" {bound}"
                )


def _crowded_writers(now: Look) -> Iterator[str]:
    """The bytes that a writer has gathered and sent, by both counts of them."""
    for process, writer in sorted(now.history.writers.items()):
        window = writer.statistics()
        lanes_bytes = sum(lane.in_flight_bytes for lane in writer.lanes)
        batches_count = sum(lane.unanswered_count + 1 for lane in writer.lanes)
        bound = window.in_flight_bytes_max + batches_count * _BATCH_BYTES_MORE
        in_flight_bytes = max(window.in_flight_bytes, lanes_bytes)
        if in_flight_bytes > bound:
            yield (
                f"a writer of {process} has {in_flight_bytes} bytes in flight; the bound is"
                f" {bound}"
            )


def _crowded_mirrors(now: Look) -> Iterator[str]:
    """The bytes that a home has sent to a target before they are durable in its mirrors."""
    for host, place in sorted(now.world.relays.items()):
        for relay in place.relays[-1:]:
            ends = relay.ends
            for home, bridge in sorted(ends.dialled.items()) if ends is not None else ():
                waiting_bytes, largest_bytes = _not_durable(bridge)
                bound = place.config(now.world.options.knobs).window_bytes + largest_bytes
                if waiting_bytes > bound:
                    yield (
                        f"{host} has {waiting_bytes} bytes of {home} that are not durable;"
                        f" the bound is {bound}"
                    )


def _read_ahead(now: Look) -> Iterator[str]:
    """The bytes that a home has read from its logs, and not sent to a target yet."""
    knobs = now.world.options.knobs
    entry_bytes = knobs.pipelined_max * (knobs.value_bytes_max + _RECORD_BYTES_MORE)
    for host, place in sorted(now.world.relays.items()):
        for relay in place.relays[-1:]:
            ends = relay.ends
            for bridge in ends.served if ends is not None else ():
                # Each that reads at the time may exceed the bound by what it reads at once.
                at_once_bytes = READERS_MAX * (_READ_AT_ONCE_BYTES + entry_bytes)
                bound = place.config(knobs).window_bytes // 2 + at_once_bytes
                if bridge.ahead_bytes > bound:
                    yield (
                        f"{host} has read {bridge.ahead_bytes} bytes ahead for"
                        f" {bridge.target}; the bound is {bound}"
                    )


def _not_durable(bridge: TargetBridge) -> tuple[int, int]:
    """Bytes of the entries that wait in the mirrors of a bridge, and of the largest of them."""
    sizes = [
        entry.encoded.length_bytes
        for mirror in bridge.mirrors
        for entry in (*mirror._sent, *mirror._waiting)  # noqa: SLF001 - the real thing.
    ]
    return sum(sizes), max(sizes, default=0)


def _uses(core: StorageNode, config: StorageConfig) -> Iterator[tuple[str, int, int]]:
    # A law looks at the real thing: a whole status, with percentiles, takes far longer.
    yield "reads open", core._reads.taken_count, config.reads_max_all  # noqa: SLF001
    followers_count = core.service.followers_count
    yield "followers", followers_count, config.follows_max_all
    # One more answer for each connection, of the largest size.
    connections_count = len(core._connections)  # noqa: SLF001
    answers_bytes = connections_count * (config.read_bytes_max + ENTRY_BYTES_MAX)
    outgoing_max = config.outgoing_bytes_max_all + answers_bytes
    yield "bytes of answers", core._outgoing.used_bytes, outgoing_max  # noqa: SLF001
    yield "connections", connections_count, config.connections_max
