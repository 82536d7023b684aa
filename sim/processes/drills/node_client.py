"""A client of one storage node that speaks the bare protocol and checks the node's answers.

It sends without waiting, as a writer does, and records the answers in `NodePromises`. When the
node goes away, which may happen at any moment, `run` returns after taking all answers received.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TypeVar

import attrs
import trio
from crc32c import crc32c

from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.messages import (
    Add,
    AddRefused,
    AddsSynced,
    Fence,
    Fenced,
    Hello,
    HelloAnswer,
    LedgerOpened,
    Message,
    OpenLedger,
    Probe,
    ProbeAnswer,
    Read,
    ReadAnswer,
    Refused,
)
from geolog.transport.seam import ByteStream, ConnectionFailedError
from geolog.wire.codec import PROTOCOL_VERSION, decode, encode
from geolog.wire.frame import FrameReader
from sim.processes.drills.node_promises import NodePromises, body_of, next_large_ledger

A = TypeVar("A", bound=Message)

CLUSTER = "default"
_UNANSWERED_MAX = 64
_READ_BYTES_MAX = 1 << 20
_LEDGERS_OPEN_MAX = 4
_ENTRIES_MAX = 60
"""A ledger with more entries is fenced soon and replaced by a new one."""


class NodeGoneError(ConnectionFailedError):
    """The node closed the connection: it was killed, lost power, or refused the client."""


@attrs.define
class _WriterSide:
    """The client's own state of a ledger."""

    epoch: int = 1
    entry_next: int = 0
    is_fenced: bool = False


class NodeClient:
    """Successive connections to one node, with one record of its promises."""

    def __init__(self, promises: NodePromises, rng: Random) -> None:
        self.promises = promises
        self._rng = rng
        self._writers: dict[LedgerId, _WriterSide] = {}
        self._answered = trio.Event()
        self._stream: ByteStream | None = None
        self.use(None)

    def use(self, stream: ByteStream | None) -> None:
        """Switch to this connection; requests on the previous one remain unanswered."""
        self._instance = InstanceId("0" * 32)
        self._stream = stream
        self._ordinal = 0
        self._request = 0
        self._adds: deque[tuple[Add, bool]] = deque()
        """Unanswered adds, each with whether it may be answered as synced."""
        self._on_answer: dict[int, Callable[[Message], None]] = {}
        self._is_welcome = self._is_gone = False

    async def wait_welcome(self) -> None:
        """Wait until requests can be sent. NodeGoneError."""
        while not self._is_welcome:
            await self._wait_answered()

    async def reopen(self) -> None:
        """Reopen ledgers that are not fenced: an earlier open may have had no effect."""
        for ledger, writer in self._writers.items():
            if not writer.is_fenced:
                await self._open(ledger)

    async def run(self) -> None:
        """Take answers over the connection until it ends."""
        stream, reader = self._stream, FrameReader()
        assert stream is not None
        try:
            await self._send(Hello(0, PROTOCOL_VERSION, CLUSTER))
            while count := await stream.receive_into(reader.buffer()):
                reader.received(count)
                for frame in reader.frames():
                    message = decode(frame)
                    if isinstance(message, HelloAnswer):
                        self._instance = message.instance
                        self._is_welcome = True
                    self._on_message(message)
                self._tell_answered()
        except ConnectionFailedError:
            pass  # Its earlier answers are recorded.
        finally:
            self._is_gone = True
            self._tell_answered()
            stream.close()

    async def act(self) -> None:
        """Send one random request. NodeGoneError."""
        while len(self._adds) + len(self._on_answer) >= _UNANSWERED_MAX:
            await self._wait_answered()
        open_ones = [ledger for ledger, each in self._writers.items() if not each.is_fenced]
        if (len(open_ones) < _LEDGERS_OPEN_MAX and self._rng.random() < 0.3) or not open_ones:
            await self._open(LedgerId(max(self._writers, default=0) + 1))
            return
        ledger = self._rng.choice(open_ones)
        drawn = self._rng.random()
        if drawn < 0.72:
            await self._add(ledger, self._writers[ledger].entry_next)
        elif drawn < 0.82:
            await self._add(ledger, self._any_entry(ledger))
        elif drawn < 0.88:
            await self._add_late()
        elif drawn < 0.94 or self._writers[ledger].entry_next > _ENTRIES_MAX:
            await self._fence(ledger)
        else:
            await self._recover_some()

    async def fill(self, *, bytes_min: int) -> None:
        """Add `bytes_min` bytes of large entries to a new ledger and wait for all answers."""
        ledger = next_large_ledger(max(self._writers, default=0))
        await self._open(ledger)
        sent_bytes = 0
        while sent_bytes < bytes_min:
            entry = self._writers[ledger].entry_next
            await self._add(ledger, entry)
            await self.wait_all_answered()
            sent_bytes += len(body_of(ledger, entry))

    async def ask_again(self) -> None:
        """Send recovery reads of sent entries, and repeat some adds; wait for all answers.

        This covers some random ledgers and the newest ones, whose last answers may be missing.
        """
        ledgers = list(self._writers)
        asked = {*self._drawn(ledgers, 3), *ledgers[-_LEDGERS_OPEN_MAX:]}
        for ledger in sorted(asked):
            writer = self._writers[ledger]
            if self._rng.random() < 0.5:
                await self._add(ledger, max(writer.entry_next - 1, 0))
            await self._read_fencing(ledger, 0, writer.entry_next + 1)
            if writer.entry_next:
                await self._add(ledger, self._any_entry(ledger), is_recovery=True)
        await self.wait_all_answered()

    async def check(self) -> None:
        """Check every ledger against its promises."""
        for ledger, writer in self._writers.items():
            promised = self.promises.of(ledger)
            count = writer.entry_next + 2
            probe = Probe(self._number(), ledger, EntryId(0), count, self._instance)
            probed = await self._ask(probe, ProbeAnswer)
            self.promises.problems += promised.probe_problems(probed)
            entry = 0
            while entry < count:
                read = Read(
                    self._number(),
                    ledger,
                    EntryId(entry),
                    count - entry,
                    _READ_BYTES_MAX,
                    1,
                    Epoch(0),
                    self._instance,
                )
                answer = await self._ask(read, ReadAnswer)
                self.promises.problems += promised.read_problems(answer, promised.entries)
                entry += max(len(answer.entries), 1)

    async def wait_all_answered(self) -> None:
        """Wait until every request is answered. NodeGoneError."""
        while self._adds or self._on_answer:
            await self._wait_answered()

    async def _open(self, ledger: LedgerId) -> None:
        writer = self._writers.setdefault(ledger, _WriterSide())
        epoch = writer.epoch
        request = OpenLedger(self._number(), ledger, Epoch(epoch), self._instance)

        def on_answer(answer: Message) -> None:
            if isinstance(answer, LedgerOpened):
                self.promises.of(ledger).on_epoch(epoch, is_fenced=False)

        await self._request_of(request, request.request, on_answer)

    async def _add(self, ledger: LedgerId, entry: int, *, is_recovery: bool = False) -> None:
        writer, promised = self._writers[ledger], self.promises.of(ledger)
        writer.entry_next = max(writer.entry_next, entry + 1)
        body = body_of(ledger, entry)
        lac = -1
        # The node need not journal the LAC of an add whose entry it already has.
        while entry not in promised.sent and lac + 1 in promised.entries and lac + 1 < entry:
            lac += 1
        promised.sent.add(entry)
        self._ordinal += 1
        add = Add(
            self._ordinal,
            ledger,
            EntryId(entry),
            Epoch(writer.epoch),
            EntryId(lac),
            is_recovery=is_recovery,
            wants_received=False,
            instance=self._instance,
            body=body,
            body_crc=crc32c(body),
        )
        self._adds.append((add, is_recovery or not promised.is_fenced))
        await self._send(add)

    async def _add_late(self) -> None:
        """Add to a fenced ledger, if there is one: the node must refuse it."""
        fenced = [ledger for ledger, each in self._writers.items() if each.is_fenced]
        if fenced:
            ledger = self._rng.choice(fenced)
            await self._add(ledger, self._writers[ledger].entry_next)

    async def _fence(self, ledger: LedgerId) -> None:
        writer = self._writers[ledger]
        writer.is_fenced = True
        writer.epoch += 1
        epoch = writer.epoch
        request = Fence(self._number(), ledger, Epoch(epoch), self._instance)

        def on_answer(answer: Message) -> None:
            if isinstance(answer, Fenced):
                self.promises.of(ledger).on_epoch(epoch, is_fenced=True)

        await self._request_of(request, request.request, on_answer)

    async def _recover_some(self) -> None:
        """Send a recovery read of a few entries and a recovery add of one that was sent."""
        ledger = self._rng.choice(list(self._writers))
        entry = self._any_entry(ledger)
        await self._read_fencing(ledger, entry, self._rng.randint(1, 4))
        if self._writers[ledger].entry_next:
            await self._add(ledger, self._any_entry(ledger), is_recovery=True)

    async def _read_fencing(self, ledger: LedgerId, first: int, count: int) -> None:
        writer = self._writers[ledger]
        if not writer.is_fenced:
            writer.is_fenced = True
            writer.epoch += 1
        epoch, promised = writer.epoch, self.promises.of(ledger)
        owed = frozenset(promised.entries)
        request = Read(
            self._number(),
            ledger,
            EntryId(first),
            count,
            _READ_BYTES_MAX,
            1,
            Epoch(epoch),
            self._instance,
        )

        def on_answer(answer: Message) -> None:
            if isinstance(answer, ReadAnswer):
                in_flight = {int(add.entry) for add, _ in self._adds if add.ledger == ledger}
                self.promises.problems += promised.on_recovery_read(
                    answer, epoch, in_flight, owed
                )

        await self._request_of(request, request.request, on_answer)

    async def _ask(self, request: Probe | Read, kind: type[A]) -> A:
        answers: list[Message] = []
        await self._request_of(request, request.request, answers.append)
        while not answers:
            await self._wait_answered()
        answer = answers[0]
        if not isinstance(answer, kind):
            self.promises.problems.append(f"{request!r} was answered by {answer!r}")
            raise NodeGoneError("the node refused a read or probe")
        return answer

    async def _request_of(
        self, message: Message, number: int, on_answer: Callable[[Message], None]
    ) -> None:
        self._on_answer[number] = on_answer
        await self._send(message)

    async def _send(self, message: Message) -> None:
        assert self._stream is not None
        try:
            await self._stream.send(encode(message))
        except ConnectionFailedError as error:
            raise NodeGoneError(str(error)) from error

    async def _wait_answered(self) -> None:
        if self._is_gone:
            raise NodeGoneError("the node closed the connection")
        await self._answered.wait()

    def _on_message(self, message: Message) -> None:
        match message:
            case AddsSynced(through):
                while self._adds and self._adds[0][0].ordinal <= through:
                    self._on_synced(*self._adds.popleft())
            case AddRefused(ordinal):
                kept = [each for each in self._adds if each[0].ordinal != ordinal]
                self._adds = deque(kept)
            case LedgerOpened(request) | Fenced(request):
                self._on_answer.pop(request)(message)
            case ReadAnswer(request) | ProbeAnswer(request) | Refused(request):
                self._on_answer.pop(request)(message)
            case _:
                assert isinstance(message, HelloAnswer), message

    def _on_synced(self, add: Add, may_be_stored: bool) -> None:  # noqa: FBT001 - of a pair.
        if not may_be_stored and add.entry not in self.promises.of(add.ledger).entries:
            self.promises.problems.append(
                f"entry {add.entry} of ledger {add.ledger} was accepted after the fence"
            )
        self.promises.of(add.ledger).on_synced(
            add.entry, add.epoch, add.lac, is_recovery=add.is_recovery
        )

    def _tell_answered(self) -> None:
        answered, self._answered = self._answered, trio.Event()
        answered.set()

    def _number(self) -> int:
        self._request += 1
        return self._request

    def _any_entry(self, ledger: LedgerId) -> int:
        return self._rng.randrange(max(self._writers[ledger].entry_next, 1))

    def _drawn(self, ledgers: list[LedgerId], count: int) -> list[LedgerId]:
        return self._rng.sample(ledgers, min(count, len(ledgers)))
