"""Requests to nodes and their answers, as read off the wire at the nodes' side.

Theory of operation. Each connection to a node is followed from its beginning, in both
directions: a request is noted when it is received, an answer when it leaves. Facts that matter
to laws come out in the order in which they were said. Moments are counted in messages. An
answer may be older than it looks, because it waits behind others, but it is never older than
its question. A node that has answered an add has the entry from then on.
"""

import struct
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

import attrs
from crc32c import crc32c

from geolog.protocol.ids import NO_EPOCH, EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.messages import (
    Add,
    AddRefused,
    AddsSynced,
    Answer,
    DoubtSettled,
    Fence,
    Fenced,
    Follow,
    HelloAnswer,
    LedgerOpened,
    Message,
    OpenLedger,
    Probe,
    ProbeAnswer,
    Read,
    ReadAnswer,
    Reason,
    Refused,
    SettleDoubt,
)
from geolog.wire.codec import FrameType, decode
from geolog.wire.entry import MAGIC_PLACEHOLDER
from geolog.wire.frame import Frame, FrameReader
from sim.fakes.memory_transport import Buffer, MemoryStream
from sim.world.world import World

_FRONT = struct.Struct("<4xI2xH")
"""The front of an entry: the checksum of its header, and its flags."""
_LENGTH = struct.Struct("<16xI")
"""Likewise: the length of its batches."""

Question = OpenLedger | Fence | Read | Follow | Probe | SettleDoubt

_PASSED_OVER = frozenset(
    {
        FrameType.HELLO,
        FrameType.ADDS_RECEIVED,
        FrameType.CANCEL,
        FrameType.PUSH_LAC,
        FrameType.STATUS_REQUEST,
        FrameType.STATUS,
    }
)


@attrs.frozen
class AddReceived:
    """An add has reached a node, which may store it, have it already, or refuse it."""

    instance: InstanceId
    ledger: LedgerId
    entry: EntryId
    lac: EntryId
    is_recovery: bool


@attrs.frozen
class EntryStored:
    """A node has said that it has an entry on disk."""

    instance: InstanceId
    ledger: LedgerId
    entry: EntryId
    body_crc: int
    is_recovery: bool
    taken_at: int
    """When the add reached the node."""
    at: int
    header_crc: int | None = None
    """If it is local-only: the checksum of its header, which its placeholder has, too."""
    is_placeholder: bool = False
    batches_bytes: int = 0
    """Length of its batches."""


@attrs.frozen
class Said:
    """A node has answered a question about an entry."""

    instance: InstanceId
    ledger: LedgerId
    entry: EntryId
    answer: Answer
    asked_at: int
    """When the question reached the node."""
    at: int
    body_crc: int | None = None
    """The checksum of the bytes that it served, if it served any."""
    is_to_recovery: bool = False
    header_crc: int | None = None
    """As of `EntryStored`."""


@attrs.frozen
class Mistaken:
    """A node has answered a request for another node, instead of refusing it."""

    instance: InstanceId
    meant: InstanceId
    question: str


@attrs.frozen
class Promised:
    """A node has answered that it takes nothing below an epoch of a ledger, or is fenced."""

    instance: InstanceId
    ledger: LedgerId
    epoch: Epoch
    is_fenced: bool
    at: int = 0


@attrs.frozen
class FenceRefused:
    """A node has refused a fence."""

    instance: InstanceId
    ledger: LedgerId
    reason: Reason


@attrs.frozen
class DoubtEnded:
    """A node's losses to damage have been repaired, as far as anybody needs them."""

    instance: InstanceId


Fact = AddReceived | EntryStored | Said | Promised | FenceRefused | Mistaken | DoubtEnded


class WireLaw(Protocol):
    """A law about requests and answers."""

    def breaches(self, facts: Sequence[Fact]) -> Iterator[str]:
        """Compare the facts since the last look with earlier ones."""
        ...


@attrs.frozen
class _Sent:
    """An add on its way."""

    ordinal: int
    ledger: LedgerId
    entry: EntryId
    body_crc: int
    is_recovery: bool
    taken_at: int
    header_crc: int | None
    is_placeholder: bool
    batches_bytes: int


class Wire:
    """Listens at all nodes of a world, from now on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lines: dict[MemoryStream, _Line] = {}
        self._begun: set[int] = set()
        self._over: set[MemoryStream] = set()
        self._facts: list[Fact] = []
        self._moment = 0
        self._observe_further = world.network.observe
        world.network.observe = self._observe

    def take(self) -> list[Fact]:
        """The facts since the last call."""
        facts, self._facts = self._facts, []
        return facts

    def _observe(self, what: str, stream: MemoryStream, piece: Buffer) -> None:
        self._observe_further(what, stream, piece)
        match what:
            case "connect":
                self._begun.add(stream.connection)
            case "close" | "reset":
                self._lines.pop(stream, None)
                self._over.add(stream)  # Nobody hears what is still said there.
            case "send" | "deliver" if stream.host in self._world.nodes:
                self._hear(what, stream, piece)

    def _hear(self, what: str, stream: MemoryStream, piece: Buffer) -> None:
        if stream.connection not in self._begun or stream in self._over:
            return
        line = self._lines.get(stream)
        if line is None:
            line = self._lines[stream] = _Line()
        for message in line.messages(piece, is_answer=what == "send"):
            self._moment += 1
            self._facts += line.on_message(message, self._moment)


class _Line:
    """One connection, at the node's side."""

    def __init__(self) -> None:
        self._instance = InstanceId("")
        self._requests, self._answers = FrameReader(), FrameReader()
        self._asked: dict[int, tuple[Question, int]] = {}
        self._adds: deque[_Sent] = deque()
        self._refused: set[int] = set()

    def messages(self, piece: Buffer, *, is_answer: bool) -> Iterator[Message]:
        """The messages that these bytes complete."""
        for frame in _frames(self._answers if is_answer else self._requests, piece):
            if frame.type not in _PASSED_OVER:
                yield decode(frame)

    def on_message(self, message: Message, at: int) -> Iterator[Fact]:
        """The facts that follow from a message."""
        match message:
            case Add():
                self._adds.append(_sent(message, at))
                yield AddReceived(
                    self._instance,
                    message.ledger,
                    message.entry,
                    message.lac,
                    message.is_recovery,
                )
            case AddRefused(ordinal):
                self._refused.add(ordinal)
            case AddsSynced(through):
                yield from self._on_synced(through, at)
            case HelloAnswer():
                self._instance = message.instance
            case OpenLedger() | Fence() | Read() | Follow() | Probe() | SettleDoubt():
                self._asked[message.request] = message, at
            case Refused():
                yield from self._on_refused(message)
            case ReadAnswer() | ProbeAnswer() | LedgerOpened() | Fenced() | DoubtSettled():
                yield from self._on_answer(message, at)

    def _on_synced(self, through: int, at: int) -> Iterator[Fact]:
        while self._adds and self._adds[0].ordinal <= through:
            sent = self._adds.popleft()
            if sent.ordinal in self._refused:
                self._refused.discard(sent.ordinal)
                continue
            yield EntryStored(
                self._instance,
                sent.ledger,
                sent.entry,
                sent.body_crc,
                sent.is_recovery,
                sent.taken_at,
                at,
                sent.header_crc,
                sent.is_placeholder,
                sent.batches_bytes,
            )

    def _on_refused(self, refused: Refused) -> Iterator[Fact]:
        question, _ = self._asked.pop(refused.request, (None, 0))
        match question:
            case Fence(ledger=ledger):
                yield FenceRefused(self._instance, ledger, refused.reason)
            case Read(ledger=ledger, fence_epoch=epoch) if epoch > NO_EPOCH:
                yield FenceRefused(self._instance, ledger, refused.reason)

    def _on_answer(
        self,
        answer: ReadAnswer | ProbeAnswer | LedgerOpened | Fenced | DoubtSettled,
        at: int,
    ) -> Iterator[Fact]:
        if answer.request not in self._asked:
            return  # Only a client that reuses numbers makes two answers look like one's.
        question, asked_at = self._asked[answer.request]
        if not isinstance(answer, ReadAnswer) or answer.is_last:
            del self._asked[answer.request]
        if question.instance != self._instance:
            yield Mistaken(self._instance, question.instance, type(question).__name__)
        match answer, question:
            case LedgerOpened(), OpenLedger(_, ledger, epoch):
                yield Promised(self._instance, ledger, epoch, is_fenced=False, at=at)
            case Fenced(), Fence(_, ledger, epoch):
                yield Promised(self._instance, ledger, epoch, is_fenced=True, at=at)
            case ReadAnswer(), Read() | Follow():
                fence_epoch = question.fence_epoch if isinstance(question, Read) else NO_EPOCH
                is_to_recovery = fence_epoch > NO_EPOCH
                if is_to_recovery:
                    yield Promised(
                        self._instance, question.ledger, fence_epoch, is_fenced=True, at=at
                    )
                for place, each in enumerate(answer.entries):
                    yield Said(
                        self._instance,
                        question.ledger,
                        EntryId(answer.first + place),
                        each.answer,
                        asked_at,
                        at,
                        body_crc=crc32c(each.body) if each.answer is Answer.HAVE else None,
                        is_to_recovery=is_to_recovery,
                        header_crc=_header_crc_if_local_only(each.body),
                    )
            case ProbeAnswer(), Probe():
                for place, one in enumerate(answer.answers):
                    entry = EntryId(question.first + place)
                    yield Said(self._instance, question.ledger, entry, one, asked_at, at)
            case DoubtSettled(), SettleDoubt():
                yield DoubtEnded(self._instance)


def _sent(add: Add, at: int) -> _Sent:
    return _Sent(
        add.ordinal,
        add.ledger,
        add.entry,
        add.body_crc,
        add.is_recovery,
        at,
        _header_crc_if_local_only(add.body),
        add.body[: len(MAGIC_PLACEHOLDER)] == MAGIC_PLACEHOLDER,
        _LENGTH.unpack_from(add.body)[0] if len(add.body) >= _LENGTH.size else 0,
    )


def _header_crc_if_local_only(body: bytes | memoryview) -> int | None:
    """The checksum of an entry's header if its flags say that it is local-only."""
    if len(body) < _FRONT.size:
        return None
    header_crc, flags = _FRONT.unpack_from(body)
    return header_crc if flags else None


def _frames(reader: FrameReader, piece: Buffer) -> Iterator[Frame]:
    unread = memoryview(piece)
    while unread:
        room = reader.buffer()
        count = min(len(room), len(unread))
        room[:count] = unread[:count]
        reader.received(count)
        unread = unread[count:]
        yield from reader.frames()
