"""One client's connection: frames in, answers out.

Theory of operation. The node acts on frames one at a time, in order, and no frame waits for
another. The journal's callbacks answer, in order, the requests that wait for the disk. Reads
take turns in a lane of their own. Followers are woken. The connection takes no further frames
while too many answers wait for this client, or too many of its bytes wait for the disk. Bytes
that are not a frame of the protocol end the connection: nothing after them can be trusted.
"""

from collections.abc import Callable

import attrs
import trio

from geolog.protocol.ids import Epoch
from geolog.protocol.messages import (
    Add,
    AddsReceived,
    Cancel,
    Fence,
    Follow,
    Hello,
    HelloAnswer,
    Message,
    OpenLedger,
    Probe,
    PushLac,
    Read,
    Reason,
    Refused,
    SettleDoubt,
    Status,
    StatusRequest,
)
from geolog.transport.seam import ByteStream
from geolog.wire.codec import PROTOCOL_VERSION, decode, encode, encode_adds_synced
from geolog.wire.frame import FrameReader
from geolog.wire.limits import FRAME_BYTES_MAX
from regions.storage.add_answers import AddAnswers
from regions.storage.config import StorageConfig
from regions.storage.doubt import settle_doubt
from regions.storage.outbox import Budget, Outbox
from regions.storage.read_lane import ReadLane, ReadPermits
from regions.storage.service import StorageService
from regions.storage.store import Store
from topology.errors import DamagedBytesError

_STRANGER_FRAME_BYTES_MAX = 4096
"""Largest frame that a client may send before its hello."""


_FRAMES_PER_TURN = 256
"""Frames to take from one connection before others get a turn, if that many came at once."""


class BrokenProtocolError(DamagedBytesError):
    """The other side sent bytes that no client of this protocol sends."""


@attrs.frozen
class Hosted:
    """State shared by all connections of a node."""

    config: StorageConfig
    service: StorageService
    outgoing: Budget
    reads: ReadPermits
    status: Callable[[], str]


class ClientConnection:
    """An accepted connection. `run` serves it until either side ends it."""

    def __init__(self, stream: ByteStream, hosted: Hosted) -> None:
        self._stream = stream
        self._hosted = hosted
        self._reader = FrameReader(frame_bytes_max=_STRANGER_FRAME_BYTES_MAX)
        self._outbox = Outbox(
            stream,
            hosted.outgoing,
            waiting_bytes_max=hosted.config.outgoing_bytes_max,
            stall_s=hosted.config.outgoing_stall_s,
        )
        self._reads = ReadLane(
            hosted.service,
            self._outbox,
            hosted.outgoing,
            hosted.reads,
            places_max=hosted.config.reads_max,
            paced_bytes_max=hosted.config.outgoing_bytes_max // 2,
        )
        stores = hosted.service.stores
        self._answers = AddAnswers(self, [store.journal for store in stores])
        self._ordinal_last = 0
        self._is_welcome = False
        self._has_said_hello = trio.Event()

    def __repr__(self) -> str:
        return f"ClientConnection({self._stream.peer}, {self._ordinal_last} adds)"

    @property
    def peer(self) -> str:
        """Name of the other side, for people."""
        return self._stream.peer

    async def run(self) -> None:
        """Serve until the client leaves. Raises what broke the connection."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._outbox.run)
                nursery.start_soon(self._reads.run)
                nursery.start_soon(self._end_without_hello)
                await self._serve()
                nursery.cancel_scope.cancel(reason="the client has left")
        finally:
            self._begin_writes()
            self._hosted.service.forget(self)
            self._reads.close()
            self._outbox.close()
            self._stream.close()

    def send_nowait(self, message: Message) -> None:
        """Send an answer, after all earlier ones."""
        self._outbox.put_nowait(encode(message))

    def admit_read(self) -> bool:
        """Reserve a place for one read, which must then begin; False if none is left."""
        return self._reads.admit()

    def await_fence(self, read: Read) -> None:
        """An admitted read will begin when its fence is on disk."""
        self._reads.await_fence(read.request)

    def begin_read(self, read: Read) -> None:
        """Answer an admitted read."""
        self._reads.begin(read)

    def cancel_read(self, request: int) -> bool:
        """End an admitted read soon; False if there is none."""
        return self._reads.cancel(request)

    def send_received_nowait(self, through: int) -> None:
        """Say that all adds up to this ordinal are in memory, except refused ones."""
        self._outbox.put_nowait(encode(AddsReceived(through)))

    def send_synced_nowait(self, through: int) -> None:
        """Say that all adds up to this ordinal are on disk, except refused ones."""
        self._outbox.put_nowait([encode_adds_synced(through)])

    async def _serve(self) -> None:
        while count := await self._stream.receive_into(self._reader.buffer()):
            self._reader.received(count)
            for number, frame in enumerate(self._reader.frames(), start=1):
                await self._on_message(decode(frame))
                if not self._outbox.has_room:
                    self._begin_writes()
                    await self._outbox.wait_room()
                if number % _FRAMES_PER_TURN == 0:
                    self._begin_writes()
                    await trio.lowlevel.checkpoint()
            self._begin_writes()
            self._answers.tell_received()
            if self._has_said_hello.is_set() and not self._is_welcome:
                await self._outbox.wait_empty()
                return
        self._reader.end()

    async def _on_message(self, message: Message) -> None:
        if isinstance(message, Hello):
            self._on_hello(message)
            return
        if not self._is_welcome:
            raise BrokenProtocolError(f"{type(message).__name__} before hello")
        match message:
            case Add():
                self._check_ordinal(message)
                store = self._hosted.service.on_add(message, self, self._answers)
                await self._wait_room(store)
            case OpenLedger() | Fence() | Probe():
                service = self._hosted.service
                service.on_request(message, self)
                await self._wait_room(service.store_of(message.ledger))
            case Read() | Follow() | PushLac():
                self._hosted.service.on_request(message, self)
            case Cancel(request):
                self._hosted.service.on_cancel(request, self)
            case SettleDoubt():
                service = self._hosted.service
                settle_doubt(
                    message,
                    service.instance,
                    service.start_number,
                    service.stores,
                    self.send_nowait,
                )
                for store in service.stores:
                    await self._wait_room(store)
            case StatusRequest(request):
                self.send_nowait(Status(request, self._hosted.status()))
            case _:
                raise BrokenProtocolError(f"a node does not accept {type(message).__name__}")

    def _begin_writes(self) -> None:
        """Begin to write what the adds left to the journals, before this task waits."""
        for store in self._hosted.service.stores:
            store.journal.begin_nowait()

    async def _wait_room(self, store: Store) -> None:
        """Stop reading while too many bytes wait for the disk."""
        if store.journal.is_full:
            self._begin_writes()
            self._answers.tell_received()
            await store.journal.wait_room()

    def _on_hello(self, hello: Hello) -> None:
        if self._has_said_hello.is_set():
            raise BrokenProtocolError("second hello on this connection")
        self._has_said_hello.set()
        config = self._hosted.config
        if hello.protocol_version != PROTOCOL_VERSION:
            why = (
                f"this node speaks version {PROTOCOL_VERSION} of the protocol, the client"
                f" {hello.protocol_version}: run releases with the same one"
            )
            self.send_nowait(Refused(hello.request, Reason.UNSUPPORTED, Epoch(0), why))
        elif hello.cluster != config.cluster:
            why = f"this node belongs to cluster {config.cluster!r}"
            self.send_nowait(Refused(hello.request, Reason.WRONG_CLUSTER, Epoch(0), why))
        else:
            self._is_welcome = True
            self._reader.allow(FRAME_BYTES_MAX)
            self.send_nowait(
                HelloAnswer(
                    hello.request,
                    PROTOCOL_VERSION,
                    self._hosted.service.instance,
                    config.location,
                    config.in_flight_bytes_max,
                )
            )

    def _check_ordinal(self, add: Add) -> None:
        if add.ordinal != self._ordinal_last + 1:
            raise BrokenProtocolError(
                f"add {add.ordinal} of this connection came after add {self._ordinal_last}"
            )
        self._ordinal_last = add.ordinal

    async def _end_without_hello(self) -> None:
        with trio.move_on_after(self._hosted.config.handshake_timeout_s):
            await self._has_said_hello.wait()
            return
        raise BrokenProtocolError("no hello in time")
