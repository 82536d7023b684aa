"""The reads of one connection: answered in turns, piece by piece, next to its other requests.

Theory of operation. If no read is waiting and memory can answer, the requesting task answers at
once. All other reads wait in a queue for one task, `run`. It takes the first read, fetches one
answer, sends it, and puts the rest of a streamed read at the end of the queue. So the reads of
one connection take turns, one answer each, and its adds, opens and fences wait for none of
them.

Bounds. A read holds a permit until its last answer; permits are limited for each connection and
for the node. A read without a permit is refused with BUSY. An answer is fetched only when
little waits in the outbox, and after its bytes were counted in the budget of the whole node.

Cancelled reads. A read that waits for its turn ends at once. A read that waits for its fence,
or for the disk, is marked, and ends when that is done, without the bytes. Fences are never
undone. Answers that are in the outbox already are sent. Either way the last answer gives the
permit back, so it is given back once.

Rules: PROTOCOL N17.
"""

from typing import Protocol

import attrs
import trio

from geolog.protocol.ids import NO_EPOCH
from geolog.protocol.messages import Message, Read, Reason, Refused
from geolog.wire.codec import encode
from regions.storage.outbox import Budget, Outbox
from regions.storage.protocol.turns import Turns


@attrs.frozen
class Answered:
    """One answer to a read, and the rest of the read; None after the last answer."""

    message: Message
    rest: Read | None


class ReadSource(Protocol):
    """Supplies the entries."""

    def read_in_memory(self, read: Read) -> Answered | None:
        """One answer; None if it needs the disk."""
        ...

    async def read(self, read: Read) -> Answered:
        """One answer."""
        ...

    def answer_bytes_max(self, read: Read) -> int:
        """Maximum bytes of entries in one answer, unless a single entry is larger."""
        ...


class ReadPermits:
    """A bounded number of permits."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self.taken_count = 0

    def take(self) -> bool:
        """Take a permit; False if none is left."""
        if self.taken_count >= self._count_max:
            return False
        self.taken_count += 1
        return True

    def give_back(self, count: int = 1) -> None:
        """Return permits."""
        self.taken_count -= count
        assert self.taken_count >= 0


class ReadLane:
    """Gives each read its turn. `run` does the work that has to wait."""

    def __init__(
        self,
        source: ReadSource,
        outbox: Outbox,
        budget: Budget,
        places_of_all: ReadPermits,
        *,
        places_max: int,
        paced_bytes_max: int,
    ) -> None:
        self._source = source
        self._outbox = outbox
        self._budget = budget
        self._places_of_all = places_of_all
        self._places = ReadPermits(places_max)
        self._paced_bytes_max = paced_bytes_max
        self._turns = Turns()
        # Reads that wait for their fence or the disk: whether each was cancelled meanwhile.
        self._under_way: dict[int, bool] = {}
        self._is_reading = False
        self._is_closed = False
        self._has_turns = trio.Event()

    def __repr__(self) -> str:
        return f"ReadLane({len(self._turns)} of {self._places.taken_count} wait for a turn)"

    def admit(self) -> bool:
        """Reserve a place for one read, which must then begin; False if none is left."""
        if self._is_closed or not self._places.take():
            return False
        if not self._places_of_all.take():
            self._places.give_back()
            return False
        return True

    def await_fence(self, request: int) -> None:
        """An admitted read begins when its fence is on disk; it may be cancelled before."""
        self._under_way[request] = False

    def begin(self, read: Read) -> None:
        """Answer an admitted read, at once if memory can."""
        if self._is_closed:
            return
        if self._under_way.pop(read.request, False):
            self._send(Answered(cancelled(read.request), None))
            return
        if not self._turns and not self._is_reading and self._has_room:
            answered = self._source.read_in_memory(read)
            if answered is not None:
                self._send(answered)
                return
        self._wait_for_turn(read)

    async def run(self) -> None:
        """Answer the waiting reads in turn; never returns."""
        while True:
            if not self._turns:
                self._has_turns = trio.Event()
                await self._has_turns.wait()
            await self._wait_room()
            if not self._turns:
                continue  # All of them were cancelled meanwhile.
            read = self._turns.take()
            answered = self._source.read_in_memory(read)
            if answered is None:
                answered = await self._read_counted(read)
            self._send(answered)
            await trio.lowlevel.checkpoint()  # However fast this client takes its answers.

    def cancel(self, request: int) -> bool:
        """End this read soon, if it is not answered yet; False if there is no such read."""
        if self._turns.drop(request):
            self._send(Answered(cancelled(request), None))
        elif request in self._under_way:
            self._under_way[request] = True
        else:
            return False
        return True

    def close(self) -> None:
        """Drop all waiting reads and return their permits."""
        self._is_closed = True
        self._turns.clear()
        self._places_of_all.give_back(self._places.taken_count)
        self._places.give_back(self._places.taken_count)

    @property
    def _has_room(self) -> bool:
        return self._outbox.waiting_bytes < self._paced_bytes_max and self._budget.has_room

    async def _wait_room(self) -> None:
        while not self._has_room:
            await self._outbox.wait_below(self._paced_bytes_max)
            await self._budget.wait_room()

    async def _read_counted(self, read: Read) -> Answered:
        """Read from disk, counting the answer's bytes as waiting to be sent from the start."""
        counted_bytes = self._source.answer_bytes_max(read)
        self._budget.take(counted_bytes)
        self._is_reading = True
        self._under_way[read.request] = False
        try:
            answered = await self._source.read(read)
        finally:
            is_cancelled = self._under_way.pop(read.request, False)
            self._is_reading = False
            self._budget.give_back(counted_bytes)
        return Answered(cancelled(read.request), None) if is_cancelled else answered

    def _send(self, answered: Answered) -> None:
        self._outbox.put_nowait(encode(answered.message))
        if answered.rest is not None:
            self._wait_for_turn(answered.rest)
        else:
            self._places.give_back()
            self._places_of_all.give_back()

    def _wait_for_turn(self, read: Read) -> None:
        self._turns.put(read)
        self._has_turns.set()


def cancelled(request: int) -> Refused:
    """The last message of a request that was cancelled."""
    return Refused(request, Reason.CANCELLED, NO_EPOCH, "cancelled by the client")
