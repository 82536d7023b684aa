"""Bytes of appends that a proxy has taken and not answered, over all its sessions.

Theory of operation. A message counts from the moment its session takes it; until then it is
unread, which has a bound of its own. At the bound sessions stop taking messages. They wait in
the order in which they came, and one takes its message before the next may: so the bound is
passed by one message, and not by one for each session. Answers have a bound of their own, see
`UntakenAnswers`.

Appends also count for their partition and their client (`AppendAdmission`). Frames and lines
above those bounds are refused. Sealed batches wait instead, as their clients have credit
and are held back anyway: unread while their client has its share (`next_of`), and with
their channel, or in the hand of their session, while their partition has (`wait_partition`).

Answers free the bytes without any reading, and a client that takes no answers loses its
session, so no session waits for another's client for long.
"""

import trio

from geolog.transport.message_socket import ServedSocket
from regions.proxy.changes import Changes
from regions.proxy.protocol.append_admission import AppendAdmission, Comeback, Comebacks
from topology.errors import OverCapacityError

Message = str | bytes

REFUSED_BYTES_MAX = 64 << 20
"""Bytes of frames that were refused and have no answer; then their sessions take no more."""
_REFUSED_BYTES_MAX_CLIENT = 16 << 20
"""The same, of one client."""

_WAITING_PART = 4
_WAITING_PART_CLIENT = 8
"""Batches may wait for their partitions without their sessions up to these parts of the bound,
of all clients and of one: so a partition that stands still cannot fill the proxy."""


class InFlightBytes:
    """A bound that sessions keep together, and the shares of it."""

    def __init__(self, max_bytes: int, admission: AppendAdmission) -> None:
        self.max_bytes = max_bytes
        """The bound."""
        self._admission = admission
        self._bytes = 0
        self._changed = Changes()
        self._turn = trio.Lock()
        self._freed: dict[str, trio.Event] = {}
        """Of the partitions and clients for which batches wait."""
        self._comebacks = Comebacks()
        self._waiting_bytes = 0
        """Of batches that wait for their partition."""
        self._waiting_by_client: dict[str, int] = {}
        self._refused_bytes = 0
        self._refused_by_client: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"InFlightBytes({self._bytes} of {self.max_bytes})"

    @property
    def bytes(self) -> int:
        """Bytes in flight now."""
        return self._bytes

    @property
    def refusals_count(self) -> int:
        """Frames and lines refused because too much was unanswered."""
        return self._admission.refusals_count

    # All together.

    def take(self, count: int) -> None:
        """Note bytes that were read."""
        self._bytes += count

    def give_back(self, count: int) -> None:
        """Note bytes that were answered, or whose session has ended."""
        self._bytes -= count
        assert self._bytes >= 0, "more bytes were given back than taken"
        self._changed.tell()

    async def wait_changed(self) -> None:
        """Wait until some were given back."""
        await self._changed.wait()

    async def next_message(self, socket: ServedSocket) -> tuple[Message, float]:
        """The next message of a session, once there is room for it; its length counts then.

        Also when it came. Errors as of `MessageSocket.receive`.
        """
        await socket.wait_message()
        await self._wait_room()
        arrived_s = socket.next_arrived_s
        message = await socket.receive()
        self.take(len(message))
        return message, trio.current_time() if arrived_s is None else arrived_s

    def has_next(self, socket: ServedSocket) -> bool:
        """Whether `next_message` has one at once."""
        is_full = self._bytes >= self.max_bytes or self._turn.locked()
        return socket.next_arrived_s is not None and not is_full

    async def _wait_room(self) -> None:
        """Wait in turn. The next one looks at the bound only once this task waits again."""
        if self._bytes >= self.max_bytes or self._turn.locked():
            async with self._turn:
                while self._bytes >= self.max_bytes:
                    await self.wait_changed()

    # Of frames that were refused. Batches never wait for these: answers to them come in the
    # order of the frames, some of which may have become batches of this proxy.

    @property
    def refused_bytes(self) -> int:
        """Bytes of frames that were refused and have no answer yet."""
        return self._refused_bytes

    def take_refused(self, client: str, count: int) -> None:
        """Count a frame that was refused until it is answered."""
        self._refused_bytes += count
        of_client = self._refused_by_client.get(client, 0)
        self._refused_by_client[client] = of_client + count

    def give_back_refused(self, client: str, count: int) -> None:
        """Note one that was answered, or whose session has ended."""
        self._refused_bytes -= count
        self._refused_by_client[client] -= count
        if not self._refused_by_client[client]:
            del self._refused_by_client[client]

    def has_room_for_refused(self, client: str) -> bool:
        """Whether a client may be refused more.

        If not, its sessions whose refused frames have no answer yet have to wait for that. All
        others go on: they may be of a partition that is not held up.
        """
        of_client = self._refused_by_client.get(client, 0)
        return of_client < _REFUSED_BYTES_MAX_CLIENT and self._refused_bytes < REFUSED_BYTES_MAX

    # Of one partition and client.

    def refusal_of(
        self,
        partition: str,
        client: str,
        size_bytes: int,
        *,
        waited_s: float,
        comeback: Comeback,
    ) -> OverCapacityError | None:
        """Why to refuse a frame of this size, which was taken; None to append it.

        See `AppendAdmission.refusal_of`.
        """
        return self._admission.refusal_of(
            partition,
            client,
            size_bytes,
            proxy_bytes=self._bytes - size_bytes,
            waited_s=waited_s,
            now_s=trio.current_time(),
            comeback=comeback,
            batches_wait=partition in self._freed,
        )

    def put_off(self, comeback: Comeback) -> None:
        """Choose when a session may come back whose frame was refused for another reason."""
        self._admission.put_off(comeback, trio.current_time())

    def take_comeback(self, client: str) -> Comeback:
        """When a session that begins may send again what was refused to the one before it."""
        return self._comebacks.take(client, trio.current_time())

    def leave_comeback(self, client: str, comeback: Comeback) -> None:
        """Keep that of a session that has ended for the next one of its client."""
        self._comebacks.leave(client, comeback, trio.current_time())

    def is_calm(self, partition: str, client: str) -> bool:
        """Whether there is so much room that nobody needs to wait until it is called back."""
        return self._admission.is_calm(partition, client)

    async def next_of(self, socket: ServedSocket, client: str) -> Message:
        """As `next_message`, once the client has room, too; it counts for the client then."""
        await socket.wait_message()
        await self._wait_room()
        while self._admission.full_of(None, client) is not None:
            await self._wait_share(None, client)
            await self._wait_room()
        message = await socket.receive()
        self.take(len(message))
        self.take_share(None, client, len(message))
        return message

    def is_partition_full(self, partition: str) -> bool:
        """Whether a batch for it has to wait, as others may do already."""
        return partition in self._freed or self._admission.full_of(partition, None) is not None

    def may_wait(self, client: str) -> bool:
        """Whether batches of a client may wait for their partition without their session."""
        of_client = self._waiting_by_client.get(client, 0)
        return (
            self._waiting_bytes < self.max_bytes // _WAITING_PART
            and of_client < self.max_bytes // _WAITING_PART_CLIENT
        )

    def take_waiting(self, client: str, count: int) -> None:
        """Count a batch that waits for its partition."""
        self.take(count)
        self.take_share(None, client, count)
        self._waiting_bytes += count
        self._waiting_by_client[client] = self._waiting_by_client.get(client, 0) + count

    def give_back_waiting(self, client: str, count: int) -> None:
        """Note that it waits no more: it counts for its partition, or its session has ended."""
        if not count:
            return
        self.give_back_share(None, client, count)
        self._waiting_bytes -= count
        self._waiting_by_client[client] -= count
        if not self._waiting_by_client[client]:
            del self._waiting_by_client[client]

    async def wait_partition(self, partition: str) -> None:
        """Wait until the partition has room for another batch."""
        await self._wait_share(partition, None)

    async def _wait_share(self, partition: str | None, client: str | None) -> None:
        while (full := self._admission.full_of(partition, client)) is not None:
            await self._freed.setdefault(full, trio.Event()).wait()

    def take_share(self, partition: str | None, client: str, count: int) -> None:
        """Count bytes that were taken for their client and, if it is known, partition."""
        self._admission.take(partition, client, count)

    def give_back_share(self, partition: str | None, client: str, count: int) -> None:
        """Note bytes, counted for these, that were answered or whose session has ended."""
        for one in self._admission.give_back(partition, client, count, trio.current_time()):
            freed = self._freed.pop(one, None)
            if freed is not None:
                freed.set()
        self.give_back(count)
