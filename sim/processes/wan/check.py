"""Measures the emulator: real round trips through it, compared with the configured ones."""

import statistics

import attrs
import trio

from geolog.transport.gateway import Gateway, GatewayTransport
from geolog.transport.seam import Address, ByteStream
from sim.processes.wan.conditions import Conditions, Direction
from topology.errors import UnavailableError

ROUND_TRIPS_COUNT = 25

OFF_S_MAX, OFF_SHARE_MAX = 0.002, 0.05
"""Tolerance for a median: 2 ms or 5 %, the larger of the two."""

_PROBE = b"probe...probe..."


@attrs.frozen(kw_only=True)
class Accuracy:
    """One link, measured from `here`: its configured round trip and the median measured."""

    here: str
    there: str
    is_cut: bool
    """Cut in at least one direction, so there is nothing to measure."""
    asked_s: float
    median_s: float | None = None
    off_s: float | None = None
    dial_s: float | None = None
    """Time to connect: one round trip, too."""

    @property
    def is_good(self) -> bool:
        """Within tolerance of the configured round trip."""
        if self.off_s is None:
            return True
        return abs(self.off_s) <= max(OFF_S_MAX, OFF_SHARE_MAX * self.asked_s)


async def check(
    gateway: str, probes: dict[str, str], directions: dict[Direction, Conditions]
) -> list[Accuracy]:
    """Measure each pair of regions from its first region, all concurrently."""
    found: dict[Direction, Accuracy] = {}
    async with trio.open_nursery() as nursery:

        async def measure(direction: Direction) -> None:
            found[direction] = await _measured(gateway, probes, direction, directions)

        pairs = [direction for direction in directions if _is_first(direction, directions)]
        for direction in pairs:
            nursery.start_soon(measure, direction)
    return [found[direction] for direction in pairs]


async def _measured(
    gateway: str,
    probes: dict[str, str],
    direction: Direction,
    directions: dict[Direction, Conditions],
) -> Accuracy:
    there, back = directions[direction], directions[direction[::-1]]
    asked_s = there.delay_s + back.delay_s
    nothing = Accuracy(
        here=direction[0],
        there=direction[1],
        is_cut=there.is_cut or back.is_cut,
        asked_s=asked_s,
    )
    if nothing.is_cut:
        return nothing
    transport = GatewayTransport(Gateway(Address.parse(gateway), direction[0]))
    started_s = trio.current_time()
    stream = await transport.connect(Address.parse(probes[direction[1]]))
    try:
        dial_s = trio.current_time() - started_s
        times_s = [await _round_trip_s(stream) for _ in range(ROUND_TRIPS_COUNT)]
    finally:
        stream.close()
    median_s = statistics.median(times_s)
    return attrs.evolve(nothing, median_s=median_s, off_s=median_s - asked_s, dial_s=dial_s)


async def _round_trip_s(stream: ByteStream) -> float:
    started_s, buffer, missing_bytes = trio.current_time(), bytearray(64), len(_PROBE)
    await stream.send([_PROBE])
    while missing_bytes:
        got_bytes = await stream.receive_into(buffer)
        if not got_bytes:
            raise UnavailableError("the WAN emulator ended during the measurement")
        missing_bytes -= got_bytes
    return trio.current_time() - started_s


def _is_first(direction: Direction, directions: dict[Direction, Conditions]) -> bool:
    """Whether this direction of its link is the one listed first."""
    return next(each for each in directions if set(each) == set(direction)) == direction
