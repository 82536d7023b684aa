"""A session's end of the connection to the owner of one partition.

If the connection breaks, or the owner does not answer, the link connects again, to the owner
that was there last. A session that opens is told that an answer was lost. An open one is not:
the link sends all batches without an answer again, in order. It gives up after a while.
"""

from collections.abc import Callable
from contextlib import suppress
from random import Random

import attrs
import trio

from geolog.partition.batch_sink import AnswerListener, Opened, SentBatch, answered
from geolog.protocol.home_record import Lineage
from geolog.protocol.owner_answers import (
    FirstPlace,
    OwnerAnswer,
    OwnerEnded,
    Placed,
    Repeated,
    RepeatedRecords,
    answer_of_error,
)
from geolog.protocol.stream_state import FIRST_HOME_EPOCH, PartitionName
from geolog.protocol.writer_standing import WriterFence, WriterStanding
from geolog.transport.seam import ConnectionFailedError, Transport
from geolog.wire.batch import SealedBatch
from geolog.wire.batch_terms import BatchTerms
from sim.world.sessions.line import (
    Delivery,
    Greeting,
    Introduction,
    Line,
    LineAnswer,
    LineError,
    LinePlace,
    RecordComparison,
    Welcome,
)
from sim.world.sessions.owning import OwnerPlaces
from topology.errors import GeologError, OutcomeUnknownError, UnavailableError

_RETRY_S = 0.1
_CONNECTED_WITHIN_S = 1.0
_ANSWERED_WITHIN_S = 3.0
_GIVES_UP_AFTER_S = 8.0
_FENCE_REST_S_MAX = 0.5


@attrs.define(eq=False)
class LinkedBatch(SentBatch):
    """A batch on its way."""

    sealed: SealedBatch
    terms: BatchTerms
    since_s: float
    sent_s: float = 0.0
    """When it was sent last."""

    def on_answer(self, found: WriterStanding | LinePlace | GeologError) -> None:
        """Take the answer in."""
        match found:
            case LinePlace(dlsn, sequence):
                self.tell(Placed(dlsn.segment, dlsn.entry, dlsn.slot, sequence))
            case GeologError():
                self.tell(answer_of_error(found))
            case _:
                raise AssertionError(f"{found} is no place")

    def tell(self, answer: OwnerAnswer) -> None:
        """Give it its answer."""
        self.finish(answer)
        if self.listener is not None:
            self.listener.on_answers()


@attrs.define(eq=False)
class _Question:
    """A request whose answer a task waits for."""

    found: WriterStanding | LinePlace | GeologError | None = None
    done: trio.Event = attrs.field(factory=trio.Event)

    def on_answer(self, found: WriterStanding | LinePlace | GeologError) -> None:
        """Take the answer in."""
        self.found = found
        self.done.set()


class LinkedRecords(RepeatedRecords):
    """Records that the log has; each is compared when its answer is needed."""

    def __init__(self, link: "OwnerLink", sealed: SealedBatch, terms: BatchTerms) -> None:
        self._link = link
        self._sent = sealed
        self._terms = terms

    def __repr__(self) -> str:
        return f"LinkedRecords({self._link.name})"

    async def answer(self, row: int) -> FirstPlace:
        """Where the record in this row was appended first."""
        found = await self._link.ask(
            lambda number: RecordComparison(number, self._sent, self._terms, row)
        )
        assert isinstance(found, LinePlace)
        return FirstPlace(found.dlsn, found.sequence)


class OwnerLink:
    """One partition, as a session elsewhere reaches it."""

    def __init__(
        self,
        name: PartitionName,
        places: OwnerPlaces,
        transport: Transport,
        nursery: trio.Nursery,
        rng: Random,
    ) -> None:
        """`rng`: decides how long each fence waits before it is sent."""
        self.name = name
        self.opened = Opened(
            None, FIRST_HOME_EPOCH, FIRST_HOME_EPOCH, Lineage(FIRST_HOME_EPOCH)
        )
        self._failure: GeologError | None = None
        self._has_failed = trio.Event()
        self._places = places
        self._transport = transport
        self._nursery = nursery
        self._rng = rng
        self._line: Line | None = None
        self._number = 0
        self._unanswered: dict[int, LinkedBatch | _Question] = {}
        self._seq_highest = -1  # In the log, as far as answers tell.

    def __repr__(self) -> str:
        return f"OwnerLink({self.name}, {len(self._unanswered)} unanswered)"

    # The seam.

    async def wait_ended(self) -> OwnerEnded:
        """Wait until the link has failed."""
        await self._has_failed.wait()
        assert self._failure is not None
        return OwnerEnded(self._failure, self._failure)

    def home_epoch_of(self, _segment: int) -> int:
        """The first: homes of these streams do not move."""
        return FIRST_HOME_EPOCH

    async def hello(self, writer_id: bytes, fence: WriterFence | None) -> WriterStanding:
        """Ask where the writer stands; with a fence, begin its session.

        OutcomeUnknownError if the answer was lost; a question is then asked again.
        """
        if fence is not None:  # Two sessions that open at once then often choose one epoch.
            await trio.sleep(self._rng.uniform(0.0, _FENCE_REST_S_MAX))
        while True:
            try:
                with trio.fail_after(_ANSWERED_WITHIN_S):
                    found = await self.ask(lambda number: Greeting(number, writer_id, fence))
            except trio.TooSlowError:
                self._break()
            except (OutcomeUnknownError, UnavailableError):
                await trio.sleep(_RETRY_S)
            else:
                assert isinstance(found, WriterStanding)
                self._seq_highest = found.seq_highest
                return found
            if fence is not None:
                raise OutcomeUnknownError(f"{self.name}: the answer to a fence was lost")

    def begin(self) -> None:
        """The session is open: keep the connection to whatever process owns the partition."""
        self._nursery.start_soon(self._keep)

    async def _keep(self) -> None:
        """Connect and send again, for as long as batches without an answer are not too old."""
        while self._failure is None:
            await trio.sleep(_RETRY_S)
            waiting = [one for one in self._unanswered.values() if isinstance(one, LinkedBatch)]
            if not waiting:
                continue
            now_s = trio.current_time()
            if now_s > waiting[0].since_s + _GIVES_UP_AFTER_S:
                self._fail(OutcomeUnknownError(f"{self.name}: no owner answers"))
            elif self._line is None:
                with suppress(UnavailableError):
                    await self._connect()
            elif now_s > waiting[0].sent_s + _ANSWERED_WITHIN_S:
                self._break()

    def _fail(self, error: GeologError) -> None:
        self._failure = error
        self._has_failed.set()
        self._break()
        batches, self._unanswered = list(self._unanswered.values()), {}
        for one in batches:
            assert isinstance(one, LinkedBatch)
            one.tell(OwnerEnded(error, error))

    def append(
        self, sealed: SealedBatch, terms: BatchTerms, listener: AnswerListener | None
    ) -> SentBatch:
        """Send a batch, or compare it if the log has its seqs."""
        sealed = attrs.evolve(sealed, data=bytes(sealed.data))
        assert terms.writer is not None
        if terms.writer.seqs.first <= self._seq_highest:
            return answered(Repeated(LinkedRecords(self, sealed, terms)))
        if self._failure is not None:
            return answered(OwnerEnded(self._failure, self._failure))
        batch = LinkedBatch(sealed, terms, trio.current_time(), listener=listener)
        self._deliver(batch)
        return batch

    def _deliver(self, batch: LinkedBatch) -> None:
        """Send a batch, if there is a connection; else `_connect` does so later."""
        self._number += 1
        self._unanswered[self._number] = batch
        batch.sent_s = trio.current_time()
        if self._line is not None:
            self._line.send_nowait(Delivery(self._number, batch.sealed, batch.terms))

    async def ask(self, request: Callable[[int], object]) -> WriterStanding | LinePlace:
        """Send a request and wait for its answer."""
        await self._connect()
        assert self._line is not None
        question = _Question()
        self._number += 1
        self._unanswered[self._number] = question
        self._line.send_nowait(request(self._number))
        await question.done.wait()
        assert question.found is not None
        if isinstance(question.found, GeologError):
            raise question.found
        return question.found

    # The connection.

    async def _connect(self) -> None:
        """Connect to the last owner, unless connected. UnavailableError."""
        if self._line is not None:
            return
        address = self._places.find(self.name.number)
        if address is None:
            raise UnavailableError(f"{self.name} has no owner yet")
        with trio.move_on_after(_CONNECTED_WITHIN_S):
            line = Line(await self._transport.connect(address))
            connected = trio.Event()
            self._nursery.start_soon(self._run, line, connected)
            await connected.wait()
            if self._has(line):
                return
        raise UnavailableError(f"{address} does not own {self.name}")

    async def _run(self, line: Line, connected: trio.Event) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send_all, line, nursery.cancel_scope)
                line.send_nowait(Introduction(self.name.number))
                with suppress(ConnectionFailedError):
                    welcome = await line.receive()
                    assert isinstance(welcome, Welcome)
                    if self._line is None:
                        self.opened = Opened(
                            welcome.transaction_id,
                            FIRST_HOME_EPOCH,
                            FIRST_HOME_EPOCH,
                            Lineage(FIRST_HOME_EPOCH),
                        )
                        self._line = line
                        self._deliver_again()
                        connected.set()
                    while self._has(line):
                        self._on_answer(await line.receive())
                nursery.cancel_scope.cancel(reason="the connection broke")
        finally:
            line.close()
            connected.set()
            if self._has(line):
                self._break()

    def _has(self, line: Line) -> bool:
        return self._line is line

    def _deliver_again(self) -> None:
        unanswered, self._unanswered = self._unanswered, {}
        for one in unanswered.values():
            assert isinstance(one, LinkedBatch), "a question is not kept"
            self._deliver(one)

    async def _send_all(self, line: Line, scope: trio.CancelScope) -> None:
        with suppress(ConnectionFailedError):
            await line.run()
        scope.cancel(reason="the connection broke")

    def _on_answer(self, answer: object) -> None:
        assert isinstance(answer, LineAnswer)
        waits = self._unanswered.pop(answer.number)
        found = answer.found.error() if isinstance(answer.found, LineError) else answer.found
        if isinstance(waits, LinkedBatch) and isinstance(found, LinePlace):
            assert waits.terms.writer is not None
            self._seq_highest = waits.terms.writer.seqs.last
        waits.on_answer(found)

    def _break(self) -> None:
        """Give the connection up. Questions are lost with it; batches are not."""
        line, self._line = self._line, None
        if line is not None:
            line.close()
        lost = OutcomeUnknownError(f"{self.name}: the connection broke")
        for number, one in list(self._unanswered.items()):
            if isinstance(one, _Question):
                del self._unanswered[number]
                one.on_answer(lost)
