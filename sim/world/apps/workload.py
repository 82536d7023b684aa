"""The applications of a world: writers, readers and operators of the main stream."""

from collections.abc import Iterator

import attrs

from sim.world.apps.appending import Appending
from sim.world.apps.cursor_reading import CursorReading
from sim.world.apps.failing_over import RESCUER, FailingOver
from sim.world.apps.moving import MOVER, Moving
from sim.world.apps.operator import OPERATOR
from sim.world.apps.placing import Placing
from sim.world.apps.reading import Reading
from sim.world.apps.resetting import Resetting
from sim.world.apps.resyncing import Resyncing
from sim.world.apps.short_lived import ShortLived
from sim.world.apps.tending import Tending
from sim.world.calls import Calls
from sim.world.options import Options
from sim.world.proxy import PROXY
from sim.world.relay import RELAY
from sim.world.sessions.handing_over import HandingOver
from sim.world.sessions.owning import OwnerPlaces, Owning
from sim.world.sessions.twins import Twins
from sim.world.world import ClientMain, World

_PROXY_REGIONS = 2


@attrs.define(eq=False)
class Workload:
    """The client processes, which run until the calls become quiet."""

    calls: Calls
    options: Options
    appending: Appending = attrs.field(init=False)
    reading: Reading = attrs.field(init=False)
    tending: Tending = attrs.field(init=False)
    placing: Placing = attrs.field(init=False)
    cursor_reading: CursorReading = attrs.field(init=False)
    short_lived: ShortLived = attrs.field(init=False)
    places: OwnerPlaces = attrs.field(factory=OwnerPlaces, init=False)

    def __attrs_post_init__(self) -> None:
        self.appending = Appending(self.calls)
        self.reading = Reading(self.calls)
        self.tending = Tending(self.calls)
        self.placing = Placing(self.calls, self.options.placement)
        self.cursor_reading = CursorReading(self.calls)
        self.short_lived = ShortLived(self.calls, self.options)

    def start(self, world: World) -> None:
        """Start all client processes."""
        shape = world.options.shape
        near = shape.regions[:_PROXY_REGIONS]
        for number in range(shape.proxies_count):
            world.add_proxy(f"{PROXY}{number + 1}", near[number % len(near)])
        for region in shape.regions:
            for number in range(shape.relays_per_region):
                world.add_relay(f"{RELAY}{region}-{number + 1}", region)
        append_for_ever = self.appending.append_for_ever
        if self.calls.stream.owners_apart or self.calls.knobs.are_writers_twins:
            append_for_ever = Twins(
                self.calls, self.places, world.network.transport
            ).append_for_ever
        for number in range(shape.writers_count):
            region = world.options.writer_region(number)
            world.start_client(f"writer-{number + 1}", region, append_for_ever)
        for number in range(shape.readers_count):
            region = shape.regions[-1 - number % len(shape.regions)]
            world.start_client(f"reader-{number + 1}", region, self.reading.read_for_ever)
        owning = self._owning(world)
        for number in range(self.calls.stream.owners_apart):
            region = world.options.writer_region(number)
            world.start_client(f"owner-{number + 1}", region, owning.own_for_ever)
        for number in range(self.calls.stream.cursor_readers):
            region = shape.regions[number % len(shape.regions)]
            is_proxied = self.calls.stream.is_cursor_proxied and number % 2 == 0
            reading = self.cursor_reading
            by_cursor = reading.by_proxies(world) if is_proxied else reading.read_for_ever
            world.start_client(f"cursor-{number + 1}", region, by_cursor)
        for host, main in self._tenders():
            world.start_client(host, shape.regions[0], main)
        if self.calls.knobs.settings_rest_s_max is not None:
            resetting = Resetting(self.calls, world.rng("settings"))
            world.start_client("resetter", shape.regions[-1], resetting.reset_for_ever)
        if self.calls.knobs.moves_rest_s_max is not None:
            moving = Moving(self.calls, world.rng("moves"))
            for number in range(self.calls.knobs.movers_count):
                region = shape.regions[-1 - number % len(shape.regions)]
                world.start_client(f"{MOVER}{number + 1}", region, moving.move_for_ever)
        if self.calls.knobs.failovers_rest_s_max is not None:
            failing_over = FailingOver(self.calls, world.rng("failovers"))
            for number in range(self.calls.knobs.rescuers_count):
                region = shape.regions[-1 - number % len(shape.regions)]
                main = failing_over.fail_over_for_ever
                world.start_client(f"{RESCUER}{number + 1}", region, main)

        if self.calls.knobs.resyncs_rest_s_max is not None:
            resyncing = Resyncing(self.calls, world.rng("resyncs"))
            world.start_client("resyncer", shape.regions[-1], resyncing.resync_for_ever)

    def _owning(self, world: World) -> Owning:
        parts = self.calls, self.places, world.network.transport, world.rng("owners")
        if self.calls.stream.hands_over:
            return HandingOver(*parts, self.appending.records)
        return Owning(*parts)

    def _tenders(self) -> Iterator[tuple[str, ClientMain]]:
        stream, placement = self.calls.stream, self.options.placement
        if stream.truncation_rest_s_max is not None:
            yield "truncater", self.tending.truncate_for_ever
        if stream.partitions_added:
            yield "grower", self.tending.add_partitions
        if stream.seal_after_s_max is not None:
            yield "sealer", self.tending.seal
        if stream.cursor_seek_rest_s_max is not None:
            yield "seeker", self.cursor_reading.seek_for_ever
        if placement.switch_rest_s_max is not None:
            yield "switcher", self.placing.switch_for_ever
        if placement.repair_rest_s_max is not None:
            yield f"{OPERATOR}mender", self.placing.repair_for_ever
        if stream.deletion_rest_s_max is not None:
            yield f"{OPERATOR}deleter", self.short_lived.delete_for_ever
            yield "brief-writer-1", self.short_lived.append_for_ever
            yield "brief-writer-2", self.short_lived.append_for_ever
            yield "brief-reader", self.short_lived.read_for_ever
