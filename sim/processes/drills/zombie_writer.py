"""Stops a writer for longer than its session, lets another take over, and resumes the first.

The drill checks that the first writer learns that it is fenced and ends, that every record
acknowledged to either writer is in the stream at its position, and that all records
acknowledged to the first come before all records of the second.
"""

import random
import signal
from collections.abc import Callable

import attrs
import trio

from geolog.client.connect import connect
from sim.processes.cluster.local import LocalCluster
from sim.processes.drills.verdict import Verdict, audit_stream
from sim.processes.drills.writer_process import WriterProcess
from topology.errors import UnavailableError

STREAM = "drill/zombie-writer"

STEP_S_MAX = 60.0


@attrs.frozen(kw_only=True)
class ZombieOptions:
    """Duration of the stop, and the seed."""

    stopped_s: float = 8.0
    """Longer than the session time-out of 6 s."""
    seed: int = 0


async def zombie_writer(
    cluster: LocalCluster, options: ZombieOptions, tell: Callable[[str], None]
) -> Verdict:
    """Run the drill on a running cluster."""
    plan, rng = cluster.plan, random.Random(options.seed)
    appended: set[bytes] = set()

    def make_value() -> bytes:
        value = b"%d-%s" % (len(appended), rng.randbytes(40).hex().encode())
        appended.add(value)
        return value

    async with connect(zookeeper=plan.zookeeper, cluster=plan.cluster) as log:
        await log.create_stream(STREAM, survive="1 region")
        first = WriterProcess(plan, STREAM, make_value)
        second = WriterProcess(plan, STREAM, make_value)
        async with trio.open_nursery() as nursery:
            await nursery.start(first.run)
            await _acknowledged(first, 1000)
            first.send_signal(signal.SIGSTOP)
            before = len(first.acknowledged)
            tell(f"stopped the first writer, {before:,} records acknowledged")
            await trio.sleep(options.stopped_s)
            await nursery.start(second.run)
            await _acknowledged(second, 1000)
            tell(f"the second writer took over at sequence {second.acknowledged[0].sequence:,}")
            first.send_signal(signal.SIGCONT)
            with trio.move_on_after(STEP_S_MAX):
                await first.wait_ended()
            tell(f"first writer resumed and ended: {first.stderr.decode().strip()}")
            await _acknowledged(second, len(second.acknowledged) + 1000)
            second.send_signal(signal.SIGKILL)
        acknowledged = first.acknowledged + second.acknowledged
        audit = await audit_stream(log, STREAM, acknowledged, appended)
    late = [
        record
        for record in first.acknowledged
        if record.sequence >= second.acknowledged[0].sequence
    ]
    problems = audit.problems
    if late:
        problems.append(f"{len(late)} appends of the first writer succeeded after the fence")
    if first.returncode == 0 or b"another writer owns" not in first.stderr:
        problems.append(f"the first writer did not report the fence: {first.stderr!r}")
    return Verdict(
        drill="zombie-writer",
        passed=not problems,
        problems=problems,
        counts=attrs.asdict(audit)
        | {
            "acknowledged_after_fence": len(late),
            "answers_read_after_waking": len(first.acknowledged) - before,
        },
        figures={"stopped_s": options.stopped_s},
        rounds=[],
        seed=options.seed,
    )


async def _acknowledged(writer: WriterProcess, count: int) -> None:
    with trio.move_on_after(STEP_S_MAX):
        await writer.wait_acknowledged(count)
    if len(writer.acknowledged) < count:
        raise UnavailableError(
            f"only {len(writer.acknowledged)} of {count} appends were acknowledged: "
            f"{writer.stderr.decode()}"
        )
