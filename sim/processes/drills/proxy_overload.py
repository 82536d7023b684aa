"""Offers a proxy three times what it takes, and compares it with itself at its peak.

Sessions of JSON frames with a hundred records each. The peak is what few sessions get through
that always have frames unanswered. Then three times as many sessions are offered frames at
three times that rate, whatever is answered: a frame that is due when no session has room for it
is held back. The proxy of a temporary cluster takes hardly more unanswered bytes than at the
peak (`PROXY_OPTIONS`). It refuses the rest, and sessions come back when they are told to. At
last half of the peak is offered, as before the overload.

The clients share the machine with the proxy, so the peak is that of both together. The figures
tell what each used of the processors, and the whole machine with all else that runs on it.
"""

import json
import math
import random
import statistics
from collections.abc import Callable
from contextlib import AsyncExitStack

import attrs
import trio

from geolog.background import open_background
from sim.processes.drills.loaded_proxy import CpuTimes, LoadedProxy, MemorySamples
from sim.processes.drills.timed_session import (
    Phase,
    PhaseClock,
    TimedSession,
    open_timed_session,
    wait_idle,
)
from sim.processes.drills.verdict import Verdict
from topology.errors import UnavailableError

RECORDS_COUNT = 100
RECORD_BYTES = 100

_PEAK_SESSIONS = 8
_PEAK_WINDOW = 32
_OVERLOAD_FACTOR = 3
_OVERLOAD_WINDOW = 64
_TICK_S = 0.002

PROXY_OPTIONS = ("--partition-in-flight-bytes-max", "3MiB")
"""The frames of the peak's windows, which have 11 KiB each, are 2.8 MiB."""

GOODPUT_SHARE_MIN = 0.9
LATENCY_FACTOR_MAX = 3.0
RECOVERY_S_MAX = 10.0
GROWTH_BYTES_MAX = 16 << 20
_NORMAL_SHARE = 0.5
_NORMAL_FACTOR_MAX = 2.0
"""Normal again: the median of a second is within this factor of that before the overload."""
_SHARE_OF_OTHERS = 6
"""The phases before the overload last a sixth of it each, but a second at least, or as long."""


@attrs.frozen(kw_only=True)
class ProxyOverloadOptions:
    """How long it is overloaded, and the seed of the records."""

    duration_s: float = 60.0
    seed: int = 0

    @property
    def short_s(self) -> float:
        """How long the phases before the overload last."""
        return max(min(1.0, self.duration_s), self.duration_s / _SHARE_OF_OTHERS)


async def proxy_overload(
    proxy: LoadedProxy, options: ProxyOverloadOptions, tell: Callable[[str], None]
) -> Verdict:
    """Run the drill on a proxy that has nothing else to do."""
    phases, memory = PhaseClock(Phase(trio.current_time())), MemorySamples(proxy)
    frame, short_s = _frame(options.seed), options.short_s
    async with AsyncExitStack() as stack:
        few = [
            await stack.enter_async_context(
                open_timed_session(proxy.websocket, frame, _PEAK_WINDOW, phases)
            )
            for _ in range(_PEAK_SESSIONS)
        ]
        few[0].send_soon()
        await wait_idle(few)  # The proxy takes the partition meanwhile.
        await _offer(few, None, phases, short_s)
        await wait_idle(few)
        before_peak = CpuTimes.now(proxy)
        peak = await _offer(few, None, phases, short_s)
        shares = CpuTimes.now(proxy).shares_since(before_peak, "peak")
        if not peak.answers_per_s:
            raise UnavailableError(
                f"the proxy answered nothing in {short_s:g} s, so its peak is not known: give a"
                " longer --duration, or a machine with less to do"
            )
        tell(f"peak: {RECORDS_COUNT * peak.answers_per_s:,.0f} records/s")
        normal_rate = _NORMAL_SHARE * peak.answers_per_s
        await wait_idle(few)
        before = await _offer(few, normal_rate, phases, short_s)
        await wait_idle(few)
        many = [
            await stack.enter_async_context(
                open_timed_session(proxy.websocket, frame, _OVERLOAD_WINDOW, phases)
            )
            for _ in range(_OVERLOAD_FACTOR * _PEAK_SESSIONS)
        ]
        async with open_background() as sampling:
            sampling.start_soon(memory.run)
            offered = _OVERLOAD_FACTOR * peak.answers_per_s
            before_over = CpuTimes.now(proxy)
            over = await _offer(many, offered, phases, options.duration_s)
            shares |= CpuTimes.now(proxy).shares_since(before_over, "overload")
        tell(f"overloaded: {RECORDS_COUNT * over.answers_per_s:,.0f} records/s")
        after = await _offer(few, normal_rate, phases, min(RECOVERY_S_MAX, options.duration_s))
        await wait_idle(few)
        is_alive = (await proxy.get("/livez")).status == 200
    phases_all = (peak, before, over, after)
    return _judge(proxy, options, phases_all, memory, shares, is_alive=is_alive)


async def _offer(
    sessions: list[TimedSession], rate: float | None, phases: PhaseClock, duration_s: float
) -> Phase:
    """Offer frames at this rate, or as many as there is room for if it is None."""
    phase = phases.begin()
    given = turn = 0
    while (passed_s := trio.current_time() - phase.begin_s) < duration_s:
        room = sum(one.room for one in sessions)
        due = room if rate is None else int(passed_s * rate) - given
        given += due
        phase.held_back_count += max(0, due - room)
        for _ in range(min(due, room)):
            while not sessions[turn % len(sessions)].room:
                turn += 1
            sessions[turn % len(sessions)].send_soon()
            turn += 1
        await trio.sleep(_TICK_S)
    phases.begin()
    return phase


def _judge(
    proxy: LoadedProxy,
    options: ProxyOverloadOptions,
    phases: tuple[Phase, Phase, Phase, Phase],
    memory: MemorySamples,
    cpu_shares: dict[str, float],
    *,
    is_alive: bool,
) -> Verdict:
    peak, before, over, after = phases
    goodput_share = over.answers_per_s / peak.answers_per_s
    p99_peak_s, p99_over_s = peak.p99_s, over.p99_s
    recovery_s = _recovery_s(before, over, after)
    failures = [one for phase in phases for one in phase.failures]
    problems = (
        [f"{len(failures)} appends or sessions failed: {failures[0]}"] if failures else []
    )
    if not is_alive:
        problems.append("/livez did not answer 200 afterwards")
    if proxy.tracebacks_count():
        problems.append(f"{proxy.tracebacks_count()} tracebacks in {proxy.log}")
    cpu_peak, cpu_over = (
        cpu_shares["proxy_cpu_share_peak"],
        cpu_shares["proxy_cpu_share_overload"],
    )
    if goodput_share < GOODPUT_SHARE_MIN:
        problems.append(
            f"goodput fell to {goodput_share:.0%} of the peak; the proxy had {cpu_over:.2f}"
            f" processors, and {cpu_peak:.2f} at the peak"
        )
    if p99_over_s > LATENCY_FACTOR_MAX * p99_peak_s:
        problems.append(f"the p99 of accepted frames rose {p99_over_s / p99_peak_s:.1f} times")
    if memory.growth_bytes > GROWTH_BYTES_MAX:
        problems.append(f"memory grew by {memory.growth_bytes >> 20} MiB")
    if recovery_s > RECOVERY_S_MAX:
        problems.append(f"it was not back to normal after {RECOVERY_S_MAX:g} s")
    return Verdict(
        drill="proxy-overload",
        passed=not problems,
        problems=problems,
        counts={
            "acknowledged": RECORDS_COUNT * over.answered_count,
            "refused": RECORDS_COUNT * over.refused_count,
            "held_back": RECORDS_COUNT * over.held_back_count,
            "failures": len(failures),
            "tracebacks": proxy.tracebacks_count(),
        },
        figures={
            "peak_records_per_s": RECORDS_COUNT * peak.answers_per_s,
            "offered_records_per_s": _OVERLOAD_FACTOR * RECORDS_COUNT * peak.answers_per_s,
            "goodput_records_per_s": RECORDS_COUNT * over.answers_per_s,
            "goodput_share": goodput_share,
            "goodput_share_per_cpu": goodput_share * cpu_peak / cpu_over
            if cpu_over
            else math.inf,
            "p99_s_peak": p99_peak_s,
            "p99_s_overload": p99_over_s,
            "p99_factor": p99_over_s / p99_peak_s,
            "p50_s_normal": before.p50_s,
            "p99_s_normal": before.p99_s,
            "recovery_s": recovery_s,
            **cpu_shares,
            **memory.figures(),
        },
        rounds=[],
        seed=options.seed,
    )


def _recovery_s(before: Phase, over: Phase, after: Phase) -> float:
    """From the end of the overload to the first normal second; else beyond the limit."""
    limit_s = _NORMAL_FACTOR_MAX * before.p50_s
    seconds: dict[int, list[float]] = {}
    for at_s, latency_s in zip(after.answered_s, after.latencies_s, strict=True):
        seconds.setdefault(int(at_s - over.end_s), []).append(latency_s)
    for second, latencies_s in sorted(seconds.items()):
        if statistics.median(latencies_s) <= limit_s:
            return float(second)
    return RECOVERY_S_MAX + 1


def _frame(seed: int) -> str:
    rng = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    records = [
        {"value": "".join(rng.choices(letters, k=RECORD_BYTES))} for _ in range(RECORDS_COUNT)
    ]
    return json.dumps({"type": "append", "records": records}, separators=(",", ":"))
