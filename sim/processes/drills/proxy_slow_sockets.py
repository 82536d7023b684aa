"""Holds thousands of connections to a proxy that say hardly anything, next to good clients.

The good clients are sessions that append one record at a time, and requests over HTTP, each on
a connection of its own. They are measured alone, then next to slow connections from another
address, then next to slow connections from their own address. A client is an address, so in the
last part the good ones have no more than what is left of their share: their sessions go on, and
health is answered, but new HTTP connections may be refused with 429.

All share the machine with the proxy, so the verdict holds only where a processor is free for
it. The figures tell what each has used, in processors: `proxy_cpu_share`, `clients_cpu_share`
(the good ones), `slow_cpu_share`, and the whole machine with all else that runs on it.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack

import attrs
import trio

from geolog.background import open_background
from geolog.transport.seam import ConnectionFailedError
from sim.processes.drills import slow_sockets
from sim.processes.drills.loaded_proxy import STREAM, CpuTimes, LoadedProxy, MemorySamples
from sim.processes.drills.timed_session import (
    Phase,
    PhaseClock,
    TimedSession,
    open_timed_session,
    wait_idle,
)
from sim.processes.drills.verdict import Verdict
from topology.errors import UnavailableError

STANDING_COUNT = 2000
VISITS_PER_S = 500.0
LATENCY_FACTOR_MAX = 2.0
GROWTH_BYTES_MAX = 64 << 20

_SESSIONS_COUNT = 4
_WINDOW = 64
_PACE_S = 0.05
"""Time between two appends of a session: so many that the good clients, the proxy and the nodes
together leave half of two processors to the slow connections."""
_REQUEST_EVERY_S = 0.1
_OTHER_ADDRESS = "127.0.0.2"
_OWN_ADDRESS = "127.0.0.1"
_SHARE_OF_OTHERS = 3
"""The part before, and the last one, last a third of the main one, but a second at least, or as
long as it."""
_SETTLE_S = 2.0
"""The standing connections come within a second, in a flood; what it left is answered then."""
_FRAME = json.dumps({"type": "append", "value": "x" * 100})
_BODY = b'{"value":"over HTTP"}\n'
_REQUEST = (
    b"POST /v1/streams/%s/append HTTP/1.1\r\nhost: proxy\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (STREAM.encode(), len(_BODY), _BODY)
)


@attrs.frozen(kw_only=True)
class SlowSocketsOptions:
    """How long the slow connections of another address come, and how many."""

    duration_s: float = 60.0
    standing_count: int = STANDING_COUNT
    visits_per_s: float = VISITS_PER_S
    seed: int = 0

    @property
    def settle_s(self) -> float:
        """How long slow connections may take to come before anything is measured."""
        return min(_SETTLE_S, self.duration_s)

    @property
    def short_s(self) -> float:
        """How long the other parts last."""
        return max(self.settle_s, self.duration_s / _SHARE_OF_OTHERS)


@attrs.define(eq=False)
class _Part:
    """The view of the good clients of one part of the drill."""

    name: str
    sessions: Phase
    requests: Phase
    slow: dict[str, float]
    http_connections_most: float = 0.0
    probes_unanswered: int = 0
    cpu_shares: dict[str, float] = attrs.field(factory=dict)

    def figures(self) -> dict[str, float]:
        return {
            f"append_p50_s_{self.name}": self.sessions.p50_s,
            f"http_p50_s_{self.name}": self.requests.p50_s,
            f"append_p99_s_{self.name}": self.sessions.p99_s,
            f"http_p99_s_{self.name}": self.requests.p99_s,
            f"http_connections_{self.name}": self.http_connections_most,
            **self.cpu_shares,
            f"slow_cpu_share_{self.name}": self.slow.get("cpu_share", 0.0),
        }


async def proxy_slow_sockets(
    proxy: LoadedProxy, options: SlowSocketsOptions, tell: Callable[[str], None]
) -> Verdict:
    """Run the drill on a proxy that has nothing else to do."""
    phases, memory = PhaseClock(Phase(trio.current_time())), MemorySamples(proxy)
    async with AsyncExitStack() as stack:
        sessions = [
            await stack.enter_async_context(
                open_timed_session(proxy.websocket, _FRAME, _WINDOW, phases)
            )
            for _ in range(_SESSIONS_COUNT)
        ]
        drill = _SlowSocketsDrill(proxy, options, sessions, phases)
        sessions[0].send_soon()
        await wait_idle(sessions)  # The proxy takes the partition meanwhile.
        alone = await drill.part("alone", None, options.short_s)
        tell(f"alone: p99 {1e3 * alone.sessions.p99_s:.1f} ms")
        async with open_background() as sampling:
            sampling.start_soon(memory.run)
            crowded = await drill.part("crowded", _OTHER_ADDRESS, options.duration_s)
        tell(f"next to slow connections: p99 {1e3 * crowded.sessions.p99_s:.1f} ms")
        same = await drill.part("same_address", _OWN_ADDRESS, options.short_s)
        tell(f"from the same address: p99 {1e3 * same.sessions.p99_s:.1f} ms")
    return _judge(proxy, options, (alone, crowded, same), memory)


@attrs.define(eq=False)
class _SlowSocketsDrill:
    proxy: LoadedProxy
    options: SlowSocketsOptions
    sessions: list[TimedSession]
    phases: PhaseClock

    async def part(self, name: str, source: str | None, duration_s: float) -> _Part:
        """Run the good clients for so long, next to slow connections of this address."""
        slow: dict[str, float] = {}
        have_ended = trio.Event()
        async with open_background() as background:
            if source is not None:
                lasts_s = duration_s + self.options.settle_s
                background.start_soon(self._be_slow, source, lasts_s, slow, have_ended)
                await trio.sleep(self.options.settle_s)
            now_s = trio.current_time()
            part = _Part(name, self.phases.begin(), Phase(now_s), slow)
            before = CpuTimes.now(self.proxy)
            background.start_soon(self._request, part)
            background.start_soon(self._probe, part)
            sent = 0
            while (passed_s := trio.current_time() - now_s) < duration_s:
                due = int(passed_s / _PACE_S) - sent
                sent += due
                for session in self.sessions:
                    for _ in range(min(due, session.room)):
                        session.send_soon()
                await trio.sleep(_PACE_S / 4)
            part.requests.end_s = trio.current_time()
            part.cpu_shares = CpuTimes.now(self.proxy).shares_since(before, name)
            self.phases.begin()
            if source is not None:
                await have_ended.wait()
        return part

    async def _be_slow(
        self, source: str, duration_s: float, slow: dict[str, float], have_ended: trio.Event
    ) -> None:
        arguments = [str(self.proxy.websocket), str(self.proxy.http), source]
        arguments += [str(self.options.standing_count), str(self.options.visits_per_s)]
        argv = [sys.executable, "-P", "-m", slow_sockets.__name__, *arguments, str(duration_s)]
        ended = await trio.run_process(argv, stdin=subprocess.DEVNULL, capture_stdout=True)
        slow.update(json.loads(ended.stdout))
        have_ended.set()

    async def _request(self, part: _Part) -> None:
        """Append over HTTP, on a new connection each time."""
        phase = part.requests
        while True:
            began_s = trio.current_time()
            try:
                answer = await self.proxy.ask(_REQUEST)
            except (ConnectionFailedError, UnavailableError) as error:
                phase.failures.append(f"HTTP: {error}")
            else:
                if answer.status == 200:
                    phase.answered_count += 1
                    phase.latencies_s.append(trio.current_time() - began_s)
                elif answer.status == 429:
                    phase.refused_count += 1
                else:
                    phase.failures.append(f"HTTP: {answer.status} {answer.body[:200]!r}")
            await trio.sleep_until(began_s + _REQUEST_EVERY_S)

    async def _probe(self, part: _Part) -> None:
        """Ask for health and metrics, as a supervisor and a monitor do."""
        while True:
            try:
                if (await self.proxy.get("/livez")).status != 200:
                    part.probes_unanswered += 1
                count = await self.proxy.metric("geolog_proxy_http_connections")
                part.http_connections_most = max(count, part.http_connections_most)
            except (ConnectionFailedError, UnavailableError):
                part.probes_unanswered += 1
            await trio.sleep(5 * _REQUEST_EVERY_S)


def _judge(
    proxy: LoadedProxy,
    options: SlowSocketsOptions,
    parts: tuple[_Part, _Part, _Part],
    memory: MemorySamples,
) -> Verdict:
    alone, crowded, same = parts
    failures = [
        one for part in parts for one in part.sessions.failures + part.requests.failures
    ]
    unanswered = sum(part.probes_unanswered for part in parts)
    problems = (
        [f"{len(failures)} appends or sessions failed: {failures[0]}"] if failures else []
    )
    if unanswered:
        problems.append(f"{unanswered} times /livez or /metrics were not answered")
    if crowded.requests.refused_count:
        problems.append(
            f"{crowded.requests.refused_count} requests of good clients were refused"
        )
    if proxy.tracebacks_count():
        problems.append(f"{proxy.tracebacks_count()} tracebacks in {proxy.log}")
    factors = {
        "append_p99_factor": crowded.sessions.p99_s / alone.sessions.p99_s,
        "http_p99_factor": crowded.requests.p99_s / alone.requests.p99_s,
        "append_p99_factor_same_address": same.sessions.p99_s / alone.sessions.p99_s,
    }
    machine_share = alone.cpu_shares["machine_cpu_share_alone"]
    busy = f"; without slow connections, {machine_share:.1f} processors were busy already"
    problems += [
        f"{name} is {factor:.1f}, above {LATENCY_FACTOR_MAX:g}{busy}"
        for name, factor in factors.items()
        if not factor <= LATENCY_FACTOR_MAX
    ]
    if memory.growth_bytes > GROWTH_BYTES_MAX:
        problems.append(f"memory grew by {memory.growth_bytes >> 20} MiB")
    return Verdict(
        drill="proxy-slow-sockets",
        passed=not problems,
        problems=problems,
        counts={
            "slow_opened": int(crowded.slow["opened"]),
            "slow_unopened": int(crowded.slow["unopened"]),
            "slow_standing": int(crowded.slow["standing_most"]),
            "slow_standing_least": int(crowded.slow["standing_least"]),
            "slow_closed": int(crowded.slow["closed_by_proxy"]),
            "acknowledged": crowded.sessions.answered_count + crowded.requests.answered_count,
            "refused": crowded.requests.refused_count,
            "refused_same_address": same.requests.refused_count,
            "probes_unanswered": unanswered,
            "failures": len(failures),
            "tracebacks": proxy.tracebacks_count(),
        },
        figures={
            **factors,
            **{name: value for part in parts for name, value in part.figures().items()},
            **memory.figures(),
        },
        rounds=[],
        seed=options.seed,
    )
