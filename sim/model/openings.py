"""A model of named writer sessions that open while partitions grow and change owners.

Sessions run the real core of opening, and the real rules of fences and of generations. The
model supplies their surroundings: logs of partitions, owners that change, and requests on their
way. A request may arrive at any time, or never. An owner writes it to its ledger at once, and
answers when the ledger acknowledges the entry. When the owner changes, any prefix of what is
not acknowledged is in the log of the next. An owner that has lost its partition need not know:
it goes on answering what it can answer without an acknowledgement.

All sessions have the same writer id, and the same record. Its key belongs to another partition
whenever their number grows, so two sessions that go by different numbers would append it twice.

Some orders are left out, because another order leads to the same states:

- A question that changes nothing is answered in one step. The requests that follow from the
  answer may be on their way for any time.
- Sessions are equal, so they begin in order.
- Requests that every owner will refuse are dropped, unless their session waits for the answer.
"""

from collections.abc import Callable, Hashable, Iterator
from functools import partial
from itertools import pairwise
from typing import assert_never

import attrs

from geolog.protocol.generations import WriterDivision
from geolog.protocol.writer_fence import may_fence
from geolog.protocol.writer_opening import (
    AskWriter,
    FenceWriter,
    OpeningEffect,
    OpeningLost,
    ReadPartitionCount,
    RestBeforeOpening,
    SessionOpened,
    WriterOpening,
)
from sim.model.node import LawBrokenError
from sim.model.opening_parts import (
    RECORD_KEY,
    RECORD_SEQ,
    Log,
    LoggedBatch,
    LoggedFence,
    ModelPartition,
    ModelSession,
    ModelStanding,
    Nonces,
    OpeningShape,
    Packet,
    copied,
    known_fence,
    standing_of,
    unheard,
)


@attrs.define
class OpeningState:
    """All of the model's world at one moment."""

    shape: OpeningShape
    partitions: tuple[ModelPartition, ...]
    sessions: tuple[ModelSession, ...] = ()
    packets: frozenset[Packet] = frozenset()
    takes_count: int = 0
    breaks_count: int = 0

    @classmethod
    def first(cls, shape: OpeningShape) -> "OpeningState":
        """The initial state: empty partitions, and no session."""
        return cls(shape, (ModelPartition(),) * shape.partitions_first)

    def digest(self) -> Hashable:
        """Equal for equal states."""
        return (
            self.partitions,
            tuple(session.key() for session in self.sessions),
            self.packets,
            self.takes_count,
            self.breaks_count,
        )

    @property
    def is_goal(self) -> bool:
        """Whether two sessions have opened, and the record is in the log."""
        opened = [one for one in self.sessions if one.opened is not None]
        return len(opened) > 1 and any(
            isinstance(entry, LoggedBatch) for one in self.partitions for entry in one.log
        )

    def settled(self) -> "OpeningState":
        """The same state, without requests that can change nothing any more."""
        packets = frozenset(one for one in self.packets if self._can_matter(one))
        return self if packets == self.packets else attrs.evolve(self, packets=packets)

    def _can_matter(self, packet: Packet) -> bool:
        match packet.request:
            case FenceWriter(_, fence) if not packet.is_awaited:
                return fence.epoch >= self.partitions[packet.partition].epoch()
            case LoggedBatch(epoch):
                return epoch >= self.partitions[packet.partition].epoch()
            case _:
                return True

    # Steps.

    def steps(self) -> Iterator[tuple[str, Callable[[], "OpeningState"]]]:
        """All possible next steps: words for each, and a function that makes the next state."""
        if len(self.partitions) < self.shape.partitions_max:
            yield "the stream grows", self._grow
        if len(self.sessions) < self.shape.sessions_count:
            yield f"session {len(self.sessions)} begins", self._begin
        for session in self.sessions:
            yield from self._session_steps(session)
        for packet in sorted(self.packets, key=Packet.words):
            yield from self._packet_steps(packet)
        for place, partition in enumerate(self.partitions):
            if partition.acknowledged < len(partition.log):
                words = f"partition {place} acknowledges entry {partition.acknowledged}"
                yield words, partial(self._acknowledge, place)
            if self.takes_count < self.shape.takes_max:
                for kept in range(partition.acknowledged, len(partition.log) + 1):
                    words = f"partition {place} gets an owner that finds {kept} entries"
                    yield words, partial(self._take, place, kept)

    def _session_steps(
        self, session: ModelSession
    ) -> Iterator[tuple[str, Callable[[], "OpeningState"]]]:
        name = f"session {session.number}"
        match session.effect:
            case ReadPartitionCount():
                yield f"{name} reads the number of partitions", partial(self._count, session)
            case RestBeforeOpening() if session.rests_count < self.shape.rests_max:
                yield f"{name} tries again", partial(self._rested, session)
            case SessionOpened(standings=standings) if not session.is_deposed:
                batch = session.place()
                assert batch is not None
                found = [one.generations for one in standings]
                division = WriterDivision(found, batch.partitions)
                place = RECORD_KEY % division.partitions_of(RECORD_SEQ)
                if standings[place].seq_highest < RECORD_SEQ:
                    packet = Packet(session.number, place, batch)
                    if packet not in self.packets:
                        yield f"{name} appends to {place}", partial(self._send, packet)
            case _:
                pass

    def _packet_steps(
        self, packet: Packet
    ) -> Iterator[tuple[str, Callable[[], "OpeningState"]]]:
        partition = self.partitions[packet.partition]
        words = packet.words()
        yield f"{words} arrives", partial(self._receive, packet)
        for log in partition.outdated:
            yield (
                f"{words} arrives at an earlier owner",
                partial(self._receive_late, packet, log),
            )
        if (
            isinstance(packet.request, FenceWriter)
            and packet.is_awaited
            and self.breaks_count < self.shape.breaks_max
        ):
            yield f"the answer to {words} is lost", partial(self._break, packet)

    def _grow(self) -> "OpeningState":
        return attrs.evolve(self, partitions=(*self.partitions, ModelPartition()))

    def _begin(self) -> "OpeningState":
        number = len(self.sessions)
        session = ModelSession(number, WriterOpening(Nonces(number + 1)))
        grown = attrs.evolve(self, sessions=(*self.sessions, session))
        return grown.told(number, lambda core: core.begin())

    def _count(self, session: ModelSession) -> "OpeningState":
        return self.told(
            session.number, lambda core: core.on_partition_count(len(self.partitions))
        )

    def _rested(self, session: ModelSession) -> "OpeningState":
        once_more = attrs.evolve(session, rests_count=session.rests_count + 1)
        return self._with_session(once_more).told(session.number, lambda core: core.on_rested())

    def _send(self, packet: Packet) -> "OpeningState":
        return attrs.evolve(self, packets=self.packets | {packet})

    def _break(self, packet: Packet) -> "OpeningState":
        """The request still arrives, and the session asks again."""
        lost = attrs.evolve(packet, is_awaited=False)
        return attrs.evolve(
            self, packets=self.packets | {lost}, breaks_count=self.breaks_count + 1
        )

    def _receive(self, packet: Packet) -> "OpeningState":
        """The owner of the partition takes a request."""
        partition = self.partitions[packet.partition]
        state = attrs.evolve(self, packets=self.packets - {packet})
        known = known_fence(partition.log)
        match packet.request:
            case AskWriter():
                return state.told(
                    packet.session, lambda core: core.on_asked(packet.partition, known.epoch)
                )
            case FenceWriter(_, fence):
                if not may_fence(known.epoch, known.nonce, fence.epoch, fence.nonce):
                    return state.refused(packet, known.epoch)
                entry = LoggedFence(fence, packet.session, packet.is_awaited)
                return state.logged(packet.partition, entry)
            case LoggedBatch() as batch:
                if batch.epoch != known.epoch:
                    return state.deposed(packet.session)
                if standing_of(partition.log).seq_highest >= RECORD_SEQ:
                    return state  # A repeat.
                return state.logged(packet.partition, batch)

    def _receive_late(self, packet: Packet, log: Log) -> "OpeningState":
        """An owner that has lost the partition gets a request; it can answer from memory."""
        state = attrs.evolve(self, packets=self.packets - {packet})
        known = known_fence(log)
        match packet.request:
            case AskWriter():
                return state.told(
                    packet.session, lambda core: core.on_asked(packet.partition, known.epoch)
                )
            case FenceWriter(_, fence):
                if not may_fence(known.epoch, known.nonce, fence.epoch, fence.nonce):
                    return state.refused(packet, known.epoch)
                # Its ledger acknowledges nothing any more: the session asks the next owner.
                return self if packet.is_awaited else state
            case LoggedBatch() as batch:
                if batch.epoch != known.epoch:
                    return state.deposed(packet.session)
                return state

    def refused(self, packet: Packet, epoch: int) -> "OpeningState":
        """The state after a fence was refused for this epoch."""
        if not packet.is_awaited:
            return self
        return self.told(packet.session, lambda core: core.on_refused(packet.partition, epoch))

    def deposed(self, number: int) -> "OpeningState":
        """The state after a session's record was refused for good."""
        return self._with_session(attrs.evolve(self.sessions[number], is_deposed=True))

    def logged(self, place: int, entry: LoggedFence | LoggedBatch) -> "OpeningState":
        """The state after an owner wrote an entry, which is not acknowledged yet."""
        partition = self.partitions[place]
        return self.with_partition(place, attrs.evolve(partition, log=(*partition.log, entry)))

    def _acknowledge(self, place: int) -> "OpeningState":
        partition = self.partitions[place]
        entry = partition.log[partition.acknowledged]
        before = partition.log[: partition.acknowledged]
        answered = entry
        if isinstance(entry, LoggedFence):
            answered = attrs.evolve(entry, is_awaited=False)
        behind = partition.log[partition.acknowledged + 1 :]
        state = self.with_partition(
            place,
            attrs.evolve(
                partition,
                log=(*before, answered, *behind),
                acknowledged=partition.acknowledged + 1,
            ),
        )
        if isinstance(entry, LoggedFence) and entry.is_awaited:
            standing = standing_of(before)
            return state.told(entry.session, lambda core: core.on_fenced(place, standing))
        return state

    def _take(self, place: int, kept: int) -> "OpeningState":
        """The next owner finds a prefix; sessions that wait for the rest ask again."""
        partition = self.partitions[place]
        memory = unheard(partition.log)
        state = attrs.evolve(
            self.with_partition(
                place,
                ModelPartition(memory[:kept], kept, (*partition.outdated, memory)),
            ),
            takes_count=self.takes_count + 1,
        )
        for entry in partition.log:
            if isinstance(entry, LoggedFence) and entry.is_awaited:
                state = state.told(entry.session, lambda core: core.on_answer_lost(place))
        return state

    def with_partition(self, place: int, partition: ModelPartition) -> "OpeningState":
        """The state with another state of this partition."""
        others = list(self.partitions)
        others[place] = partition
        return attrs.evolve(self, partitions=tuple(others))

    def _with_session(self, session: ModelSession) -> "OpeningState":
        others = list(self.sessions)
        others[session.number] = session
        return attrs.evolve(self, sessions=tuple(others))

    def told(
        self,
        number: int,
        tell: Callable[[WriterOpening[ModelStanding]], list[OpeningEffect[ModelStanding]]],
    ) -> "OpeningState":
        """The state after a session's core heard of an event, with what it asks for then."""
        session = self.sessions[number]
        core = copied(session.core)
        effect: OpeningEffect[ModelStanding] | None = None
        packets = set(self.packets)
        for one in tell(core):
            match one:
                case AskWriter(partition) | FenceWriter(partition):
                    packets.add(Packet(number, partition, one))
                case (
                    ReadPartitionCount() | RestBeforeOpening() | SessionOpened() | OpeningLost()
                ):
                    effect = one
                case _:
                    assert_never(one)
        after = attrs.evolve(session, core=core, effect=effect)
        return attrs.evolve(self._with_session(after), packets=frozenset(packets))

    # What must hold.

    def check(self) -> None:
        """Raise LawBrokenError if a session is not the only one, or the record is not."""
        opened = sorted(
            (one.opened for one in self.sessions if one.opened is not None),
            key=lambda one: one.fence.epoch,
        )
        for earlier, later in pairwise(opened):
            self._check_deposed(earlier, later)
        for one in opened:
            self._check_sees_all(one)
        places = [
            place
            for place, partition in enumerate(self.partitions)
            for entry in partition.log[: partition.acknowledged]
            if isinstance(entry, LoggedBatch)
        ]
        if len(places) > 1:
            raise LawBrokenError(f"16: the record is in the log twice, in partitions {places}")

    def _check_deposed(
        self, earlier: SessionOpened[ModelStanding], later: SessionOpened[ModelStanding]
    ) -> None:
        if len(later.standings) < len(earlier.standings):
            raise LawBrokenError(
                f"S8: epoch {later.fence.epoch} goes by {len(later.standings)} partitions, but"
                f" epoch {earlier.fence.epoch} by {len(earlier.standings)}"
            )
        for place in range(len(earlier.standings)):
            if self.partitions[place].epoch() <= earlier.fence.epoch:
                raise LawBrokenError(
                    f"S7: epoch {later.fence.epoch} is open, but epoch"
                    f" {earlier.fence.epoch} can still append to partition {place}"
                )

    def _check_sees_all(self, opened: SessionOpened[ModelStanding]) -> None:
        for place, partition in enumerate(self.partitions):
            for entry in partition.log[: partition.acknowledged]:
                if not isinstance(entry, LoggedBatch) or entry.epoch >= opened.fence.epoch:
                    continue
                is_seen = place < len(opened.standings)
                if not is_seen or opened.standings[place].seq_highest < RECORD_SEQ:
                    raise LawBrokenError(
                        f"S7: epoch {opened.fence.epoch} opened without the record that epoch"
                        f" {entry.epoch} has in partition {place}"
                    )
