"""A region loses its only node just after a node of another region joined; the writer goes on.

The nodes left hold no ensemble, so no ledger can be created and no takeover can succeed. Yet
the open ledger stays writable: its live members and the new node are an ack set, whichever
slots the new node takes.
"""

from random import Random

import attrs
import trio

import geolog
from sim.world.apps.appending import Appending
from sim.world.chance import Draws
from sim.world.options import Options
from sim.world.placement_knobs import UNTOUCHED
from sim.world.process import Process
from sim.world.stream_knobs import PLAIN
from sim.world.world import World
from topology.quorum import QuorumConfig

_NEW_NODE = "ap-northeast-1"
_NEW_PLACE = "/ap-northeast/rack-1"
_KNOWN_S = 1.0
"""How long a node is up before it is needed: meanwhile the writer learns of it."""

_SHARE = 0.03
_NODES = (("us-east", 2), ("eu-west", 1))
_QUORUM = QuorumConfig(ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2)


def draw_exchange(drawn: Options, draws: Draws) -> Options:
    """The same world, or one that is made for this."""
    return with_region_exchanged(drawn) if draws.happens("exchange", _SHARE) else drawn


def with_region_exchanged(drawn: Options) -> Options:
    """The same, but with three nodes in two regions, a plain stream, and no faults."""
    return attrs.evolve(
        drawn,
        shape=attrs.evolve(
            drawn.shape, nodes_by_region=_NODES, quorum=_QUORUM, writers_count=1
        ),
        stream=PLAIN,
        placement=UNTOUCHED,
        knobs=attrs.evolve(
            drawn.knobs,
            session_timeout_s=2.0,
            is_room_tight=False,
            are_writers_named=False,
            writer_window_records=None,
            other_bytes_share=0.0,
            repeats_share=0.0,
            append_timeout_s=60.0,
            failed_kept_s=0.0,
            is_region_exchanged=True,
        ),
        links=attrs.evolve(drawn.links, stall_chance=0.0),
        hazards=attrs.evolve(drawn.hazards, chaos_s=2.0, strikes_per_s=()),
    )


@attrs.define(eq=False)
class Exchange:
    """The story of one exchange, and whether its writer could go on."""

    world: World
    appending: Appending
    rng: Random
    grace_s: float
    _has_begun: trio.Event = attrs.field(factory=trio.Event, init=False)
    _has_gone: trio.Event = attrs.field(factory=trio.Event, init=False)
    _has_gone_on: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def breach(self) -> str | None:
        """Run the exchange; return the breach of law 24, if there is one."""
        world, first_region = self.world, self.world.options.shape.regions[0]
        process = world.start_client("steadfast", first_region, self._append)
        if not await self._in_time(self._has_begun):
            return f"no writer could begin within {self.grace_s:g} s of calm"
        world.add_node(_NEW_NODE, _NEW_PLACE)
        while _NEW_NODE not in world.cores:  # noqa: ASYNC110 - no event for it.
            await trio.sleep(_KNOWN_S / 10)
        await trio.sleep(_KNOWN_S)
        gone = [f"us-east-{self.rng.choice((1, 2))}", "eu-west-1"]
        self.rng.shuffle(gone)
        for host in gone:
            world.kill(host)
        self._has_gone.set()
        has_gone_on = await self._in_time(self._has_gone_on)
        for host in gone:
            world.restart(host)
        await process.ended.wait()
        if has_gone_on:
            return None
        return (
            f"without {' and '.join(gone)} no append succeeded within {self.grace_s:g} s,"
            f" though {_NEW_NODE} and a member are an ack set"
        )

    async def _append(self, process: Process, log: geolog.Log) -> None:
        await self.appending.append_across(
            process, log, self._has_begun, self._has_gone, self._has_gone_on
        )

    async def _in_time(self, event: trio.Event) -> bool:
        with trio.move_on_after(self.grace_s):
            await event.wait()
        return event.is_set()
