"""A sink of batches that answers when a test tells it to, and a writer over it."""

import attrs
import trio

from geolog.client.writing.open_batch import WriterSession
from geolog.client.writing.partition_batcher import WriterConfig
from geolog.client.writing.writer import Writer
from geolog.partition.batch_sink import AnswerListener, Opened, SentBatch, answered
from geolog.protocol.append_failure import told_of_record
from geolog.protocol.home_record import Lineage
from geolog.protocol.ids import Sequence
from geolog.protocol.owner_answers import AppendRefused, OwnerAnswer, OwnerEnded, Placed
from geolog.protocol.session_home import SessionHome
from geolog.protocol.stream_state import FIRST_HOME_EPOCH, PartitionName, StreamName
from geolog.protocol.writer_standing import WriterFence, WriterStanding
from geolog.wire.batch import Batch, SealedBatch, open_batch
from geolog.wire.batch_terms import BatchTerms
from topology.errors import ConflictError, GeologError, OutcomeUnknownError


@attrs.define(eq=False)
class Taken(SentBatch):
    """A batch that the sink holds until the test answers it."""

    sealed: SealedBatch
    terms: BatchTerms
    place: Placed
    at_s: float = attrs.field(factory=trio.current_time)

    @property
    def batch(self) -> Batch:
        return open_batch(self.sealed.data)


class FakeSink:
    """Takes batches like an owner; the test says when and how they are answered."""

    def __init__(self) -> None:
        self.name = PartitionName(StreamName("a", "b"))
        self.opened = Opened(
            None, FIRST_HOME_EPOCH, FIRST_HOME_EPOCH, Lineage(FIRST_HOME_EPOCH)
        )
        self._ended: OwnerEnded | None = None
        self._has_ended = trio.Event()
        self.taken: list[Taken] = []
        self.listener: AnswerListener | None = None
        self._answered_count = 0

    @property
    def is_idle(self) -> bool:
        return self._answered_count == len(self.taken)

    async def wait_ended(self) -> OwnerEnded:
        await self._has_ended.wait()
        assert self._ended is not None
        return self._ended

    def home_epoch_of(self, _segment: int) -> int:
        return FIRST_HOME_EPOCH

    async def hello(self, writer_id: bytes, fence: WriterFence | None) -> WriterStanding:
        raise AssertionError("tests make sessions of their own")

    def append(
        self, sealed: SealedBatch, terms: BatchTerms, listener: AnswerListener | None
    ) -> SentBatch:
        if self._ended is not None:
            failure = self._ended.failure
            told = told_of_record(failure, is_numbered=terms.writer is not None)
            return answered(OwnerEnded(failure, told))
        if terms.expect_sequence is not None:
            return answered(AppendRefused(ConflictError("another sequence is due")))
        self.listener = listener
        first = sum(one.sealed.record_count for one in self.taken)
        place = Placed(1, len(self.taken), 0, Sequence(first))
        self.taken.append(Taken(sealed, terms, place, listener=listener))
        return self.taken[-1]

    def answer(self, count: int = 1, answer: OwnerAnswer | None = None) -> None:
        """Answer the next batches so; None: they are in the log."""
        for one in self.taken[self._answered_count : self._answered_count + count]:
            one.finish(one.place if answer is None else answer)
        self._answered_count += count
        if self.listener is not None:
            self.listener.on_answers()

    def fail(self, failure: GeologError) -> None:
        """Fail like a fenced owner: batches in flight are unknown, later ones refused."""
        self._ended = OwnerEnded(failure, failure)
        self._has_ended.set()
        unknown = OwnerEnded(failure, OutcomeUnknownError("unknown"))
        self.answer(len(self.taken) - self._answered_count, unknown)

    def values(self) -> list[list[bytes]]:
        """The values of all batches taken."""
        return [one.batch.values() for one in self.taken]


def a_session(sinks_count: int = 1) -> WriterSession:
    """The first session of a named writer."""
    standing = WriterStanding(
        home_epoch=1, epoch=1, seq_highest=-1, generations=(), remembered=()
    )
    return WriterSession(
        b"till-7",
        1,
        sinks_count,
        SessionHome("life", FIRST_HOME_EPOCH),
        (standing,) * sinks_count,
    )


def a_writer(sink: FakeSink, **config: float) -> Writer:
    bounds = {name: int(value) for name, value in config.items() if name != "linger_s"}
    return Writer(
        [sink],
        WriterConfig(linger_s=config.get("linger_s", 0.01), **bounds),
        home_epoch=1,
        now_us=lambda: int(trio.current_time() * 1e6),
    )
