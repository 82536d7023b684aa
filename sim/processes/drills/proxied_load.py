"""The load of a drill on proxies: writers in all regions, each with one record at a time.

A record is due every `PACE_S`. A writer without an answer sends nothing meanwhile, so latencies
of an outage also count the records that were due in it.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import attrs
import trio

from sim.processes.drills.drilled_cluster import DrilledCluster, connect_in
from sim.processes.drills.timeline import Timeline
from sim.processes.drills.writer_process import Acknowledged
from topology.errors import GeologError, OutcomeUnknownError, UnavailableError

PACE_S = 0.005
"""Pause of a writer between two records: all of them are read back at the end."""

ANSWER_S_MAX = 90.0

REOPEN_S = 0.1
"""Pause before a writer opens again."""


@attrs.define(eq=False)
class ProxiedWriter:
    """One writer: what it sent, and the answers."""

    number: int
    region: str
    appended: list[bytes] = attrs.field(factory=list)
    acknowledged: list[Acknowledged] = attrs.field(factory=list)
    sent_s: list[float] = attrs.field(factory=list)
    """When each acknowledged record was sent."""
    answered_s: list[float] = attrs.field(factory=list)
    """When its answer came."""
    unknown: list[str] = attrs.field(factory=list)
    """The error of each record whose outcome it does not know."""
    ended: str = ""
    """The error that ended it early."""
    changed: trio.Event = attrs.field(factory=trio.Event)

    def pauses(self, begin_s: float, end_s: float) -> Iterator[tuple[float, float]]:
        """Each time between two answers that overlaps with this time; ends at `end_s`."""
        for before_s, after_s in pairwise([*self.answered_s, end_s]):
            if after_s > begin_s and before_s < end_s:
                yield before_s, min(after_s, end_s)

    def latencies(self, begin_s: float, end_s: float) -> Iterator[float]:
        """The latencies of records that were due in this time."""
        for sent_s, answered_s in zip(self.sent_s, self.answered_s, strict=True):
            due_s = sent_s
            while due_s < answered_s:
                if begin_s <= due_s < end_s:
                    yield answered_s - due_s
                due_s += PACE_S


class ProxiedLoad:
    """All writers of one drill. `run` lets them write until `end`.

    Named writers send again what was not answered; the others are told that its outcome is
    unknown, and go on with the next record.
    """

    def __init__(
        self,
        cluster: DrilledCluster,
        stream: str,
        timeline: Timeline,
        *,
        writers_count: int,
        is_named: bool = True,
        reopens: bool = False,
    ) -> None:
        self._reopens = reopens
        self._cluster = cluster
        self._stream = stream
        self._timeline = timeline
        self._is_named = is_named
        self._scope = trio.CancelScope()
        self.errors: list[str] = []
        """The errors behind which writers opened again, with their regions."""
        self.writers = [
            ProxiedWriter(number, cluster.regions[number % len(cluster.regions)])
            for number in range(writers_count)
        ]

    def __repr__(self) -> str:
        return f"<ProxiedLoad acknowledged={self.acknowledged_count}>"

    @property
    def acknowledged_count(self) -> int:
        """Records acknowledged so far."""
        return sum(len(writer.acknowledged) for writer in self.writers)

    async def run(self) -> None:
        """Write until `end`, or until every writer has failed."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                for writer in self.writers:
                    nursery.start_soon(self._write, writer)

    def end(self) -> None:
        """Stop all writers."""
        self._scope.cancel(reason="enough")

    async def wait_answers(self, since_s: float) -> None:
        """Wait until each writer has the answer to a record sent after this time."""
        with trio.move_on_after(ANSWER_S_MAX):
            for writer in self.writers:
                while not writer.ended and (not writer.sent_s or writer.sent_s[-1] <= since_s):
                    await writer.changed.wait()
            return
        raise UnavailableError(f"a writer had no answer for {ANSWER_S_MAX:.0f} s")

    @property
    def unknown_count(self) -> int:
        """Records whose writers were told that the outcome is unknown."""
        return sum(len(writer.unknown) for writer in self.writers)

    def problems(self) -> list[str]:
        """A line for each writer that ended early, and one for unknown outcomes."""
        problems = [
            f"writer {one.number} in {one.region} ended early: {one.ended}"
            for one in self.writers
            if one.ended
        ]
        unknown = [error for one in self.writers for error in one.unknown]
        if unknown:
            problems.append(
                f"{len(unknown)} appends were told an unknown outcome: {unknown[0]}"
            )
        return problems

    def swapped_count(self, values: Sequence[bytes]) -> int:
        """Of all records in the log, those behind one that their writer sent later."""
        last = [-1] * len(self.writers)
        swapped = 0
        for value in values:
            writer, number = map(int, value.split(b"/"))
            swapped += number < last[writer]
            last[writer] = max(last[writer], number)
        return swapped

    async def _write(self, writer: ProxiedWriter) -> None:
        """Append one record after the other; note an error that ends this."""
        while True:
            try:
                await self._write_session(writer)
            except GeologError as error:
                if not self._reopens:
                    writer.ended = str(error)
                    self._note_change(writer)
                    return
                self.errors.append(f"{writer.region}: {error}")
                await trio.sleep(REOPEN_S)

    async def _write_session(self, writer: ProxiedWriter) -> None:
        """Append one record after the other, in one session."""
        name = f"writer-{writer.number}" if self._is_named else None
        async with (
            connect_in(self._cluster, writer.region, via="proxy") as log,
            log.open_writer(self._stream, writer_id=name) as opened,
        ):
            while True:
                value = b"%d/%d" % (writer.number, len(writer.appended))
                writer.appended.append(value)
                sent_s = trio.current_time()
                try:
                    receipt = await opened.append(value)
                except OutcomeUnknownError as error:
                    writer.unknown.append(str(error))
                    continue
                self._on_answer(
                    writer,
                    sent_s,
                    Acknowledged(value, receipt.dlsn, receipt.sequence, receipt.epoch),
                )
                await trio.sleep(PACE_S)

    def _on_answer(
        self, writer: ProxiedWriter, sent_s: float, acknowledged: Acknowledged
    ) -> None:
        now_s = trio.current_time()
        writer.acknowledged.append(acknowledged)
        writer.sent_s.append(sent_s)
        writer.answered_s.append(now_s)
        self._timeline.add_answers(now_s, writer.region, 1)
        self._note_change(writer)

    def _note_change(self, writer: ProxiedWriter) -> None:
        changed, writer.changed = writer.changed, trio.Event()
        changed.set()
