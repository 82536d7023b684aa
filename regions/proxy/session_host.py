"""State that the sessions of one proxy share."""

import difflib
import random
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence

import attrs
import trio

from geolog.client.log import Log
from geolog.partition.partition_opener import PartitionOpener
from geolog.partition.partition_writer import PartitionWriter
from geolog.protocol.stream_pattern import StreamPattern
from geolog.protocol.stream_state import StreamName, StreamRecord
from geolog.transport.message_socket import MessageSocket, ServedSocket, SocketClosedError
from geolog.transport.seam import Address
from geolog.transport.served_websocket import PACE_BYTES
from geolog.wire.session.codes import Code
from geolog.wire.session.messages import AppendId, ErrorAnswer
from regions.proxy.client_connections import ClientConnections
from regions.proxy.config import ProxyConfig
from regions.proxy.held_partitions import HeldPartitions
from regions.proxy.in_flight_bytes import InFlightBytes
from regions.proxy.latest_streams import LatestStreams
from regions.proxy.origins import Origins
from regions.proxy.protocol.client_pace import ClientPace
from regions.proxy.traffic import Traffic
from regions.proxy.untaken_answers import UntakenAnswers
from topology.errors import (
    ClosedError,
    FencedError,
    GeologError,
    HandedOverError,
    NoSuchStreamError,
    OverCapacityError,
    UnavailableError,
)

ANSWER_TAKEN_S = 30.0
"""How long a client may take to read an answer, besides a second for each `PACE_BYTES`."""

READ_TAKEN_S = 300.0
"""How long a client may take to read a record: a person may be paging through them."""

CHANNELS_MAX = 100_000
"""Channels of a proxy: each takes a few tasks."""

_UNKNOWN_COST = 5
_PATTERN_COST = 100
"""Requests to ZooKeeper for a name that is unknown, and for a pattern, at least."""

_NEARBY_COST = 0.1
"""Likewise for a look at a nearby server, of a client that is over its pace already."""
_KNOWN_NAMES_MAX = 10_000
"""Streams that are remembered as known: they cost no pace."""

_SESSION_ID_BITS = 64
_COMPARED_MAX = 25
"""Names before and behind an unknown one, in the alphabet, that may be meant."""


@attrs.frozen(kw_only=True)
class SessionHost:
    """The proxy, as its sessions see it."""

    config: ProxyConfig
    log: Log
    opener: PartitionOpener
    held: HeldPartitions
    rng: random.Random
    now_us: Callable[[], int]
    in_flight: InFlightBytes
    answers: UntakenAnswers
    """To frames, and to repeated batches."""
    origins: Origins
    traffic: Traffic = attrs.field(factory=Traffic)
    channels: ClientConnections = attrs.field(init=False)
    """Channels of geolog's own clients, in all sessions."""
    pace: ClientPace = attrs.field(factory=ClientPace)
    nearby_pace: ClientPace = attrs.field(factory=ClientPace)
    """Of looks at a nearby server: ten times as many."""
    known_names: OrderedDict[StreamName, None] = attrs.field(factory=OrderedDict)
    """Streams that were found, those found last at the end."""
    latest: LatestStreams = attrs.field(init=False)
    """Streams as they are now."""
    draining: trio.Event = attrs.field(factory=trio.Event)
    """Set when the proxy takes no more appends."""

    @channels.default
    def _no_channels(self) -> ClientConnections:
        return ClientConnections(CHANNELS_MAX, self.config.client_share, "channels")

    @latest.default
    def _latest_streams(self) -> LatestStreams:
        return LatestStreams(self.opener.upkeep.catalog.read_latest)

    def new_session_id(self) -> str:
        """A random id, which names the session in logs."""
        return f"{self.rng.getrandbits(_SESSION_ID_BITS):016x}"

    def charge(self, client: str, cost: float) -> None:
        """Charge a client for a request that asks ZooKeeper so often. OverCapacityError."""
        if self.config.client_share < 1:  # Else all may come from one address.
            refusal = self.pace.refusal_of(client, cost, trio.current_time())
            if refusal is not None:
                raise refusal

    async def find_stream(
        self, name: StreamName, *, client: str, is_latest: bool = False
    ) -> StreamRecord:
        """The stream's settings. NoSuchStreamError names one that may be meant.

        Unknown names are dear, so a client may ask for few of them: OverCapacityError. A stream
        that is known is found whatever its client, or another one at its address, has asked.
        """
        catalog = self.opener.upkeep.catalog
        self._check_nearby(name, client)
        nearby = await catalog.find_nearby(name)
        if nearby is not None:
            self.known_names[name] = None
            self.known_names.move_to_end(name)
            if len(self.known_names) > _KNOWN_NAMES_MAX:
                self.known_names.popitem(last=False)
        if nearby is not None and not is_latest:
            return nearby
        if nearby is None:
            self.charge(client, _UNKNOWN_COST)
        try:
            return await self.latest.read(name)
        except NoSuchStreamError as error:
            known = await catalog.names_in(name.namespace)
            if name.name in known:
                raise  # It is being created or deleted.
            at = bisect_left(known, name.name)
            # Those that begin alike: comparing with all of a large namespace would take long.
            alike = known[max(0, at - _COMPARED_MAX) : at + _COMPARED_MAX]
            found = difflib.get_close_matches(name.name, alike, n=1)
            if not found:
                raise
            meant = StreamName(name.namespace, found[0])
            raise NoSuchStreamError(f"{error}; did you mean {str(meant)!r}?") from None

    def _check_nearby(self, name: StreamName, client: str) -> None:
        """OverCapacityError if the client is far over its pace, and the name may be any."""
        now_s = trio.current_time()
        if self.config.client_share == 1 or name in self.known_names:
            return
        if self.pace.refusal_of(client, 0, now_s) is not None:
            refusal = self.nearby_pace.refusal_of(client, _NEARBY_COST, now_s)
            if refusal is not None:
                raise refusal

    async def is_single_partition(
        self, name: StreamName | StreamPattern, *, client: str
    ) -> bool:
        """Whether what is read has one partition. NoSuchStreamError likewise."""
        if isinstance(name, StreamPattern):  # Reading tells whether it matches a stream.
            self.charge(client, _PATTERN_COST)
            return False
        return (await self.find_stream(name, client=client)).partitions == 1

    async def why_lost(self, owner: PartitionWriter) -> GeologError:
        """Why this proxy cannot append to the partition any more, and who can."""
        failure = owner.failure
        if failure is None:
            return UnavailableError(f"{owner.name} moves to another proxy")
        if not isinstance(failure, FencedError | ClosedError | HandedOverError):
            return failure
        try:
            stream = await self.opener.upkeep.catalog.read_latest(owner.name.stream)
            if stream.moving_to:
                return failure
            name = stream.partition(owner.name.number)
            await self.held.check_place(name, stream.home, trusts_metadata=True)
        except GeologError as error:
            return error
        return UnavailableError(f"this proxy has lost {owner.name}: {failure}")


def failure_of(
    error: GeologError, id_: AppendId | None, *, location: str | None = None
) -> ErrorAnswer:
    """The answer that tells a client of an error, and where to go instead."""
    return ErrorAnswer(
        id=id_,
        code=Code.MOVED if location is not None else error.code,
        error=str(error),
        outcome=error.outcome,
        retriable=error.retriable or location is not None,
        location=location,
        retry_after_s=error.retry_after_s if isinstance(error, OverCapacityError) else None,
    )


async def send_answers(socket: ServedSocket, frames: Sequence[str | bytes]) -> None:
    """Send several answers at once, likewise."""
    if len(frames) == 1:
        await send_answer(socket, frames[0])
        return
    taken_s = ANSWER_TAKEN_S + sum(map(len, frames)) / PACE_BYTES
    with trio.move_on_after(taken_s) as scope:
        await socket.send_all(frames)
    if scope.cancelled_caught:
        raise _not_taken(taken_s)


async def send_answer(
    socket: MessageSocket, frame: str | bytes, *, taken_s: float = ANSWER_TAKEN_S
) -> None:
    """Send an answer; a client that does not take it in time is taken as gone.

    Its appends would otherwise count as bytes in flight for ever, and stop all other sessions;
    what it reads would stay in memory. A long answer may take longer.
    """
    taken_s += len(frame) / PACE_BYTES
    with trio.move_on_after(taken_s) as scope:
        await socket.send(frame)
    if scope.cancelled_caught:
        raise _not_taken(taken_s)


def _not_taken(taken_s: float) -> SocketClosedError:
    return SocketClosedError(None, f"it took no answer for {taken_s:.0f} s")


def location_of(address: Address, target: str) -> str:
    """The same path and query at another proxy."""
    return f"ws://{address}{target}"
