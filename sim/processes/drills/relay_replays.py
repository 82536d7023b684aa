"""Faults of the drill `relay-matrix` that come while a target is sent what it has missed.

`kill_in_replay`: a coordinator ends in the middle of a long replay, and then its successor.
"""

import trio

from geolog.client.log import Log
from geolog.protocol.relay_report import RelayedStreamReport
from sim.processes.drills.mirrored_load import LOOK_AGAIN_S
from sim.processes.drills.relay_stream_faults import append, compare, create
from sim.processes.drills.relayed_regions import ANSWER_S_MAX, RelayedRegions
from sim.processes.wan.conditions import LinkChange
from topology.errors import GeologError, UnavailableError

_RECORD_BYTES = 64_000
_BACKLOG_COUNT = 250
"""16 MB: at the speed of the link that takes longer than both kills."""

_LINK_BYTES_PER_S = 5e5
_LEFT_BYTES_MIN = 4 << 20
"""A report is up to a second old: with so much left, the replay still goes on."""


async def kill_in_replay(regions: RelayedRegions) -> str:
    """SIGKILL of a coordinator, and of its successor, in the middle of one long replay.

    Both are of the home, or both of the target. Each dies while entries are on their way that
    are not durable yet, so the next one has to send them again; no more than those. The
    successor is spared if the replay was over before a report of it came.
    """
    home, stream = await create(regions, "during-replay")
    log, rng = regions.logs[home], regions.rng
    target = rng.choice([one for one in regions.regions if one != home])
    end = rng.choice((home, target))
    first, [second, *_] = await regions.members(end)
    values = [rng.randbytes(_RECORD_BYTES) for _ in range(_BACKLOG_COUNT)]
    slow = LinkChange(bandwidth_bytes_per_s=_LINK_BYTES_PER_S)
    await append(log, stream, values[:1])
    await _wait_lag(log, stream, target, bytes_max=0)
    await log.pause_relay(stream, targets=[target])
    await append(log, stream, values[1:])
    await regions.cluster.change_link(home, target, slow, is_one_way=True)
    left: list[str] = []
    try:
        await log.resume_relay(stream)
        for victim in (first, second):
            left_bytes = await _wait_replaying(log, stream, target)
            if left_bytes is None:
                break
            left.append(f"{victim} with {left_bytes / 1e6:.1f} MB left")
            epoch = await regions.epoch(end)
            regions.note(f"kill {victim}")
            await regions.cluster.kill(victim)
            if victim == first:
                await regions.wait_epoch(end, epoch + 1)
    finally:
        for one in (first, second):
            await regions.cluster.start(one)
    well = LinkChange(bandwidth_bytes_per_s=125e6)
    await regions.cluster.change_link(home, target, well, is_one_way=True)
    last = await _wait_lag(log, stream, target, bytes_max=0)
    regions.measure("during-replay_kills", len(left))
    if not left:
        regions.problems.append(f"{stream}: no replay to {target} was met")
    text = f"killed {' and '.join(left)} during one replay from {home} to {target}"
    if end == target:  # The home remembers what it has sent.
        again_bytes = last.replayed_bytes or 0
        regions.measure("during-replay_again_bytes", again_bytes)
        if again_bytes > regions.window_bytes + 2 * _RECORD_BYTES:
            regions.problems.append(
                f"{home} sent {again_bytes} bytes to {target} again; its window is"
                f" {regions.window_bytes}"
            )
        text += f"; {again_bytes} bytes were sent again"
    await compare(regions, home, stream, values)
    await log.delete_stream(stream)
    return text


async def report_of(log: Log, stream: str, target: str) -> RelayedStreamReport:
    """The report of a stream on its way to a target. TooSlowError."""
    with trio.fail_after(ANSWER_S_MAX):
        while True:
            try:
                for one in await log.relay_status(stream):
                    if one.target == target:
                        return one
            except GeologError as error:
                if not error.retriable:
                    raise
            await trio.sleep(LOOK_AGAIN_S)


async def _wait_replaying(log: Log, stream: str, target: str) -> int | None:
    """Wait until more is sent than is durable; the bytes left, or None if they are too few."""
    found = await report_of(log, stream, target)
    with trio.move_on_after(ANSWER_S_MAX):
        while True:
            durable = found.durable_records
            left_bytes = found.lag_bytes or 0
            if durable is not None and left_bytes < _LEFT_BYTES_MIN:
                return None
            if durable is not None and (found.sent_records or 0) > durable:
                return left_bytes
            await trio.sleep(LOOK_AGAIN_S)
            found = await report_of(log, stream, target)
    raise UnavailableError(f"{stream} is not relayed to {target}: {found}")


async def _wait_lag(
    log: Log, stream: str, target: str, *, bytes_max: int
) -> RelayedStreamReport:
    """Wait until the target lacks no more than this. UnavailableError."""
    found = await report_of(log, stream, target)
    with trio.move_on_after(ANSWER_S_MAX):
        while True:
            lag = found.lag_bytes
            if found.durable_records and lag is not None and lag <= bytes_max:
                return found
            await trio.sleep(LOOK_AGAIN_S)
            found = await report_of(log, stream, target)
    raise UnavailableError(f"{stream} did not catch up in {target}: {found}")
