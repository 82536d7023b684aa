"""Faults of the drill `relay-matrix` that check what relays promise while a target is away.

`meet_bound`: what the loss of a home could cost stays within the stream's bound.
`stand_still`: a link on which nothing moves is noticed, alarmed and counted, and goes on later.
"""

import attrs
import trio

from geolog.client.log import Log
from geolog.client.writing.writer import Writer
from geolog.protocol.relay_report import LinkState
from sim.processes.drills.mirrored_load import LOOK_AGAIN_S
from sim.processes.drills.relay_replays import report_of
from sim.processes.drills.relay_stream_faults import compare, content, create
from sim.processes.drills.relayed_regions import ANSWER_S_MAX, RelayedRegions
from topology.errors import OverCapacityError, UnavailableError

_BOUND_BYTES = 1 << 20
_RECORD_BYTES = 20_000
_HELD_SHARE_MIN = 0.5
"""Appends that are held earlier than at this share of the bound do not show that it holds."""

_AT_ONCE = 8
"""Appends that are under way together, all of which the bound must count."""

_NOTICED_S_MAX = 20.0
"""A link without progress is closed after 10 s; the rest is for a machine with other work."""


@attrs.define(eq=False)
class _Load:
    regions: RelayedRegions
    writer: Writer
    acknowledged: list[bytes] = attrs.field(factory=list)
    last_refusal: str = ""
    """Why an append was refused."""

    async def append(self) -> bool:
        """Append a record; False if it was refused."""
        value = self.regions.rng.randbytes(_RECORD_BYTES)
        try:
            await self.writer.append(value)
        except OverCapacityError as error:
            self.last_refusal = str(error)
            return False
        self.acknowledged.append(value)
        return True

    async def append_until_held(self, target: str) -> None:
        """Append until one is refused because of this target; others may be late, too."""
        is_held = False
        while not is_held:
            is_taken = await self.append()
            # Not merely because nobody knows yet how far the target is behind.
            is_held = not is_taken and f"{target} is " in self.last_refusal
            if not is_taken:
                await trio.sleep(LOOK_AGAIN_S)


async def meet_bound(regions: RelayedRegions) -> str:
    """A stream bounds the cost of losing its home, and one of its targets is paused.

    Appends must be refused before the records that the target lacks pass the bound, and go on
    by themselves once it is resumed.
    """
    home, stream = await create(regions, "bounded")
    log = regions.logs[home]
    await log.update_stream(stream, rpo_max_bytes=_BOUND_BYTES)
    target = regions.rng.choice([one for one in regions.regions if one != home])
    async with log.open_writer(stream) as writer:
        load = _Load(regions, writer)
        await _go_on(load, stream)
        # So all that the target has is known at home.
        await _wait_state(log, stream, target, LinkState.LIVE)
        regions.note(f"paused {stream} to {target}")
        await log.pause_relay(stream, targets=[target])
        await _wait_state(log, stream, target, LinkState.PAUSED)
        await _append_until_held(load, target)
        end_s = trio.current_time() + regions.outage_s
        while trio.current_time() < end_s:
            await load.append()
            await trio.sleep(LOOK_AGAIN_S)
        lacking_bytes = await _lacking_bytes(load, stream, target)
        regions.measure("bounded_share_of_bound", lacking_bytes / _BOUND_BYTES)
        if lacking_bytes < _HELD_SHARE_MIN * _BOUND_BYTES:
            regions.problems.append(
                f"{stream}: appends were held although {target} lacked only {lacking_bytes}"
                f" bytes: {load.last_refusal}"
            )
        if lacking_bytes > _BOUND_BYTES:
            regions.problems.append(
                f"{stream}: {target} lacks {lacking_bytes} bytes, more than the bound"
            )
        resumed_s = trio.current_time()
        await log.resume_relay(stream)
        await _go_on(load, stream)
        went_on_s = trio.current_time() - resumed_s
        regions.measure("bounded_went_on_s", went_on_s)
    await compare(regions, home, stream, load.acknowledged, is_one_by_one=False)
    await log.delete_stream(stream)
    return (
        f"paused {target} until {stream} refused appends: it lacked {lacking_bytes} bytes, the"
        f" bound is {_BOUND_BYTES}; they went on {went_on_s:.2f} s after the target was resumed"
    )


async def _wait_state(log: Log, stream: str, target: str, state: LinkState) -> None:
    """Wait until a link is in this state, and nothing is on its way. TooSlowError."""
    with trio.fail_after(ANSWER_S_MAX):
        while True:
            found = await report_of(log, stream, target)
            if found.state is state and found.lag_records == 0:
                return
            await trio.sleep(LOOK_AGAIN_S)


async def _go_on(load: _Load, stream: str) -> None:
    """Append until one is taken. UnavailableError if none is."""
    with trio.move_on_after(ANSWER_S_MAX):
        while not await load.append():  # noqa: ASYNC110 - another process.
            await trio.sleep(LOOK_AGAIN_S)
        return
    raise UnavailableError(f"{stream} took no append within {ANSWER_S_MAX:.0f} s")


async def _append_until_held(load: _Load, target: str) -> None:
    """Append several at once; UnavailableError if the bound holds none of them."""
    with trio.move_on_after(ANSWER_S_MAX):
        async with trio.open_nursery() as nursery:
            for _ in range(_AT_ONCE):
                nursery.start_soon(load.append_until_held, target)
        return
    raise UnavailableError(f"appends were not held for {target}: {load.last_refusal}")


async def _lacking_bytes(load: _Load, stream: str, target: str) -> int:
    found = await content(load.regions.logs[target], stream, is_mirror=True)
    mirrored = set(found.values)
    return sum(len(value) for value in load.acknowledged if value not in mirrored)


async def stand_still(regions: RelayedRegions) -> str:
    """SIGSTOP of all relays of a target, until a home has noticed that nothing moves.

    It must raise an alarm and count it; once they go on, the link must carry canaries again.
    A link that is cut would not do: its home may lose its metadata, and then its coordinator.
    """
    here, there = regions.any_two()
    [stream] = [one.name for one in regions.streams if one.home == here]
    log = regions.logs[here]
    coordinator, others = await regions.members(there)
    victims = [coordinator, *others]
    before = await report_of(log, stream, there)
    begin_s = trio.current_time()
    noticed_s = None
    try:
        for victim in victims:
            regions.note(f"stop {victim}")
            await regions.cluster.pause(victim)
        with trio.move_on_after(_NOTICED_S_MAX):
            while not await _is_stuck(log, stream, there):  # noqa: ASYNC110 - likewise.
                await trio.sleep(LOOK_AGAIN_S)
            noticed_s = trio.current_time() - begin_s
            regions.measure("standstill_noticed_s", noticed_s)
    finally:
        for victim in victims:
            await regions.cluster.resume(victim)
    if noticed_s is None:
        regions.problems.append(
            f"{here} raised no alarm within {_NOTICED_S_MAX:g} s of silence"
        )
    resumed_s = trio.current_time()
    after = await report_of(log, stream, there)
    with trio.fail_after(ANSWER_S_MAX):
        while after.state is not LinkState.LIVE or after.round_trip_s is None:
            await trio.sleep(LOOK_AGAIN_S)
            after = await report_of(log, stream, there)
    well_s = trio.current_time() - resumed_s
    if (after.stalls_count or 0) <= (before.stalls_count or 0):
        regions.problems.append(f"{here} has not counted that {there} stood still")
    regions.measure("standstill_well_s", well_s)
    regions.measure("canary_round_trip_s", after.round_trip_s)
    return (
        f"stopped the relays of {there}: noticed after {noticed_s or -1:.1f} s, well again"
        f" {well_s:.1f} s after they went on; a canary takes {1000 * after.round_trip_s:.0f} ms"
    )


async def _is_stuck(log: Log, stream: str, target: str) -> bool:
    return "stuck" in ((await report_of(log, stream, target)).alarm or "")
