"""Wipes the disks of regions that mirror a stream, while records are appended at its home.

All storage nodes of a target are killed and their disks emptied, sometimes its relays, too.
Metadata still says how far the mirror was. Then the drill does what an operator does: it gives
the disks up, starts the nodes, waits until geolog tells of the loss, and has the home send the
mirror everything again. In the end every region is compared with the acknowledged records.
"""

import random
import shutil
import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial

import attrs
import trio

from geolog.admin.replacement import NodeReplacer
from geolog.background import open_background
from geolog.client.log import Log
from geolog.ledger.copying.fragment_copy import CopyConfig
from geolog.metadata.replaced_nodes import NodeRunsError
from geolog.protocol.relay_report import LinkState
from sim.processes.cluster.local import LocalCluster
from sim.processes.cluster.plan import ServerPlan
from sim.processes.drills.drilled_cluster import OwnCluster, connect_in
from sim.processes.drills.mirrored_load import LOOK_AGAIN_S, HomeWriter
from sim.processes.drills.relay_stream_faults import content
from sim.processes.drills.relayed_regions import create_relayed
from sim.processes.drills.timeline import Timeline
from sim.processes.drills.verdict import Verdict, audit_stream
from topology.errors import UnavailableError

_STREAM = "drill/relay-wipe"
_ANSWER_S_MAX = 90.0


@attrs.frozen(kw_only=True)
class RelayWipeOptions:
    """Number of wipes, their timing, and the seed."""

    times: int = 2
    seed: int = 0
    up_s_max: float = 3.0
    """Maximum time that all mirrors grow before the next wipe."""


async def relay_wipe(
    cluster: LocalCluster,
    options: RelayWipeOptions,
    tell: Callable[[str], None],
    timeline: Timeline,
) -> Verdict:
    """Run the drill on a running cluster with two relays or more in each region."""
    rng = random.Random(options.seed)
    own = OwnCluster(cluster)
    home, *targets = own.regions
    load, writing = HomeWriter(), trio.CancelScope()
    rounds: list[dict[str, float]] = []
    async with AsyncExitStack() as stack:
        logs = {
            region: await stack.enter_async_context(connect_in(own, region, via="direct"))
            for region in own.regions
        }
        stream = await create_relayed(logs[home], _STREAM, home, targets)
        async with open_background() as nursery:
            nursery.start_soon(partial(_write, writing, load, logs[home], stream, timeline))
            wipe = _Wipe(cluster, logs[home], stream, load, timeline)
            for number in range(1, options.times + 1):
                for region in targets:
                    await wipe.wait_caught_up(region)
                await trio.sleep(rng.uniform(0.5, options.up_s_max))
                region = rng.choice(targets)
                told = await wipe.run(region, has_relays=rng.random() < 0.5)
                rounds.append(told)
                tell(
                    f"{number} of {options.times}, {region}: {told['records']:.0f} records"
                    f" wiped, the loss told {told['told_s']:.1f} s after the start of the"
                    f" empty nodes, all sent again {told['resynced_s']:.1f} s after resync"
                )
            writing.cancel(reason="enough")
            for region in targets:
                await wipe.wait_caught_up(region)
        problems, counts = await _judge(logs, targets, stream, load)
        verified = await logs[home].verify_stream(stream)
        problems += [] if verified.is_good else verified.reasons
    return Verdict(
        drill="relay-wipe",
        passed=not problems,
        problems=problems,
        counts={"wipes": options.times, **counts},
        figures={
            "told_s_max": max(one["told_s"] for one in rounds),
            "resynced_s_median": statistics.median(one["resynced_s"] for one in rounds),
            "resynced_s_max": max(one["resynced_s"] for one in rounds),
        },
        rounds=rounds,
        seed=options.seed,
    )


async def _write(
    scope: trio.CancelScope, load: HomeWriter, log: Log, stream: str, timeline: Timeline
) -> None:
    with scope:
        await load.write(log, stream, timeline)


@attrs.frozen(eq=False)
class _Wipe:
    """What one wipe needs."""

    cluster: LocalCluster
    log: Log
    stream: str
    load: HomeWriter
    timeline: Timeline

    async def run(self, region: str, *, has_relays: bool) -> dict[str, float]:
        """Wipe a region, and bring its mirror back."""
        plan = self.cluster.plan
        nodes = [one for one in plan.of_kind("storage") if one.region == region]
        relays = [one for one in plan.of_kind("relay") if one.region == region and has_relays]
        records_count = len(self.load.acknowledged)
        self.timeline.note_fault(trio.current_time(), f"wiped {region}")
        for one in [*nodes, *relays]:
            await self.cluster.kill(one.name)
        for one in nodes:
            await trio.to_thread.run_sync(shutil.rmtree, one.data_dir)
        await self._start_empty(nodes)
        for one in relays:
            await self.cluster.start(one.name)
        started_s = trio.current_time()
        await _in_time(
            partial(self._wait_told, region), f"nothing told of the loss in {region}"
        )
        told_s = trio.current_time()
        await self.log.resync_relay(self.stream, target=region)
        await self.wait_caught_up(region)
        return {
            "records": records_count,
            "told_s": told_s - started_s,
            "resynced_s": trio.current_time() - told_s,
        }

    async def _start_empty(self, nodes: Sequence[ServerPlan]) -> None:
        """Give the disks up, all before any node starts: no copy of the region is left."""
        replacers = [NodeReplacer(self.log.access, CopyConfig()) for _ in nodes]
        async with trio.open_nursery() as nursery:
            for node, replacer in zip(nodes, replacers, strict=True):
                nursery.start_soon(_replace, replacer, node.name)
            while not all(one.waiting_for for one in replacers):  # noqa: ASYNC110 - metadata.
                await trio.sleep(LOOK_AGAIN_S)
            for node in nodes:
                await self.cluster.start(node.name)

    async def _wait_told(self, region: str) -> None:
        """Wait until health names the mirror, or its link has stopped."""
        while True:
            links = await self.log.relay_status(self.stream)
            if any(one.target == region and one.state is LinkState.STOPPED for one in links):
                return
            report = await self.log.health(every_ledger=True)
            if any("geolog relay resync" in reason for reason in report.reasons):
                return
            await trio.sleep(LOOK_AGAIN_S)

    async def wait_caught_up(self, region: str) -> None:
        """Wait until the mirror has all that is acknowledged now. UnavailableError."""
        end = len(self.load.acknowledged)
        wait = partial(self._wait_durable, region, end)
        await _in_time(wait, f"the mirror in {region} did not catch up")

    async def _wait_durable(self, region: str, end: int) -> None:
        while True:
            links = await self.log.relay_status(self.stream)
            durable = next((one.durable_records for one in links if one.target == region), None)
            if durable is not None and durable >= end:
                return
            await trio.sleep(LOOK_AGAIN_S)


async def _in_time(wait: Callable[[], Awaitable[None]], problem: str) -> None:
    with trio.move_on_after(_ANSWER_S_MAX):
        await wait()
        return
    raise UnavailableError(f"{problem} within {_ANSWER_S_MAX:.0f} s")


async def _replace(replacer: NodeReplacer, node_id: str) -> None:
    """Give a disk up, as `geolog node replace` does, once its node counts as down."""
    with trio.fail_after(_ANSWER_S_MAX):
        while True:
            try:
                await replacer.replace(node_id)
            except NodeRunsError:
                await trio.sleep(LOOK_AGAIN_S)
            else:
                return


async def _judge(
    logs: Mapping[str, Log], targets: Sequence[str], stream: str, load: HomeWriter
) -> tuple[list[str], dict[str, int]]:
    """Problems, and counts of each region that must be 0."""
    problems: list[str] = []
    counts = {"acknowledged": len(load.acknowledged)}
    for region, log in logs.items():
        audit = await audit_stream(log, stream, load.acknowledged, set(load.appended))
        problems += [f"{region}: {one}" for one in audit.problems]
        counts[f"lost_{region}"] = audit.lost
        counts[f"repeated_{region}"] = audit.repeated
        if region in targets:  # Readers there get what a mirror lacks from its home.
            mirrored = set((await content(log, stream, is_mirror=True)).values)
            lacking = sum(one.value not in mirrored for one in load.acknowledged)
            counts[f"lacking_in_mirror_{region}"] = lacking
            if lacking:
                problems.append(f"{region}: its mirror lacks {lacking} acknowledged records")
    return problems, counts
