"""The load of a drill on relays: a writer at a stream's home, and a reader of each mirror."""

from itertools import pairwise

import attrs
import trio

from geolog.client.log import Log
from geolog.client.reading.record import Gap
from sim.processes.drills.timeline import Timeline
from sim.processes.drills.writer_process import Acknowledged

PACE_S = 0.005
"""Pause of a writer between two records."""

LOOK_AGAIN_S = 0.1
"""Pause before something in another process is looked at again."""


@attrs.define(eq=False)
class MirrorReader:
    """A reader of one region's mirror, and when records came. Their values are numbers."""

    region: str
    values: list[bytes] = attrs.field(factory=list)
    gaps: list[Gap] = attrs.field(factory=list)
    at_s: list[float] = attrs.field(factory=list)
    moved: trio.Event = attrs.field(factory=trio.Event)

    async def follow(self, log: Log, stream: str) -> None:
        """Read from the beginning, and go on until cancelled."""
        await wait_mirror(log, stream)
        async with log.open_reader(stream, follow=True) as reader:
            async for item in reader.items():
                if isinstance(item, Gap):
                    self.gaps.append(item)
                    continue
                self.values.append(item.value)
                self.at_s.append(trio.current_time())
                moved, self.moved = self.moved, trio.Event()
                moved.set()

    async def wait_for(self, value: bytes) -> None:
        """Wait until this record has come."""
        while not self.values or int(self.values[-1]) < int(value):
            await self.moved.wait()

    @property
    def repeated_count(self) -> int:
        """The number of records that came again."""
        return len(self.values) - len(set(self.values))

    @property
    def misplaced_count(self) -> int:
        """The number of records that came behind a later one."""
        return sum(int(after) < int(before) for before, after in pairwise(self.values))

    def pause_s(self, begin_s: float, end_s: float) -> float:
        """The longest time without a record around this time."""
        times_s = [*self.at_s, end_s]
        return max(
            (
                after_s - before_s
                for before_s, after_s in pairwise(times_s)
                if after_s > begin_s and before_s < end_s
            ),
            default=end_s - begin_s,
        )


@attrs.define(eq=False)
class HomeWriter:
    """The writer at home: what it sent, and what was acknowledged."""

    appended: list[bytes] = attrs.field(factory=list)
    acknowledged: list[Acknowledged] = attrs.field(factory=list)
    pace_s: float = PACE_S

    async def write(self, log: Log, stream: str, timeline: Timeline) -> None:
        """Append numbers until cancelled."""
        async with log.open_writer(stream, writer_id="drill") as writer:
            while True:
                value = b"%d" % len(self.appended)
                self.appended.append(value)
                receipt = await writer.append(value)
                self.acknowledged.append(Acknowledged(value, receipt.dlsn, receipt.sequence))
                timeline.add_answers(trio.current_time(), log.region or "", 1)
                await trio.sleep(self.pace_s)

    def next_value(self) -> bytes:
        """The value of a record that is acknowledged from now on."""
        return b"%d" % (len(self.acknowledged) + 1)


async def wait_mirror(log: Log, stream: str) -> None:
    """Wait until readers in the log's region get the mirror; before, they read afar."""
    while not await _has_mirror(log, stream):  # noqa: ASYNC110 - another process.
        await trio.sleep(LOOK_AGAIN_S)


async def _has_mirror(log: Log, stream: str) -> bool:
    async with log.open_reader(stream) as reader:
        async for record in reader:
            return record.origin is not None
    return False
