"""Sends acknowledged entries of relayed streams to the relays of their home.

Each process has one. It keeps a connection to each of the first relays of its region, in the
order of their joining, and a bounded queue for each. A relay that is away gets nothing: it
reads the log. No append waits for anything here.

The coordinator among them tells how far targets are of partitions that somebody follows.

Rules: PROTOCOL H26, T4 and T8.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import attrs
import trio

from geolog.protocol.entry_multicast import MulticastQueue, MulticastStatistics, SentEntries
from geolog.protocol.stream_state import PartitionName
from geolog.transport.message_socket import MessageSocket, MessageTransport
from geolog.transport.seam import Address
from geolog.wire.entry import EncodedEntry
from geolog.wire.multicast import (
    MULTICAST_BYTES_MAX,
    MULTICAST_PATH,
    SUBPROTOCOL_MULTICAST,
    SUBPROTOCOL_MULTICAST_OF_ENTRIES,
    MulticastAsk,
    MulticastEntry,
    MulticastHeld,
    MulticastHello,
    MulticastLog,
    MulticastProgress,
    decode_multicast,
    encode_multicast,
)
from topology.errors import DamagedBytesError, GeologError

_log = logging.getLogger(__name__)

FindRelays = Callable[[str], Awaitable[Sequence[Address]]]
"""Tells the addresses of the relays of a region that are up: the coordinator, then the others
in the order of their joining."""

_JOINED_BYTES_MAX = 256 << 10

NAMES_MAX = 4096
"""Logs that were named on a connection, after which it is opened again once it is old: those of
streams that were deleted since would be remembered for good."""

RENEW_S = 3600.0
"""How old a connection must be for that."""


@attrs.frozen(kw_only=True)
class MulticastConfig:
    """Bounds of the multicast of one process to the relays of its region."""

    relays_max: int = 2
    """Relays that get entries: the coordinator, and those that are next in line."""

    queued_bytes_max: int = 8 << 20
    """Bytes on their way to one relay. Above it the oldest entries are dropped, and the relay
    reads them from the log."""

    look_s: float = 1.0
    """How often to look for relays."""

    redial_s: float = 0.5
    """Pause before a relay is dialled again."""


@attrs.frozen
class _Acknowledged:
    name: PartitionName
    encoded: EncodedEntry


class MulticastPort:
    """One partition's way to the relays, at its owner."""

    def __init__(self, name: PartitionName, multicast: "RelayMulticast") -> None:
        self._name = name
        self._multicast = multicast
        self._sent: SentEntries[EncodedEntry] = SentEntries()

    def __repr__(self) -> str:
        return f"MulticastPort({self._name}, {self._sent!r})"

    def on_ledger(self) -> None:
        """The owner goes on in another ledger."""
        self._sent.on_ledger()

    def on_sent(self, encoded: EncodedEntry) -> None:
        """The owner has sent an entry to the open ledger."""
        self._sent.on_sent(encoded.header.entry, encoded)

    def on_acknowledged(self, lac: int) -> None:
        """The open ledger's entries up to this one are acknowledged."""
        for encoded in self._sent.on_acknowledged(lac):
            self._multicast.publish(self._name, encoded)


class ProgressListener(Protocol):
    """Follows how far the targets of a partition are."""

    @property
    def held_target(self) -> str:
        """The target because of which appends are refused; empty if they are not."""
        ...

    def on_progress(self, told: MulticastProgress) -> None:
        """A coordinator tells the place of one target."""
        ...


@attrs.define(eq=False)
class _Relay:
    address: Address
    queue: MulticastQueue[_Acknowledged]
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    is_connected: bool = False
    has_more: trio.Event = attrs.field(factory=trio.Event)
    tells_progress: bool = False
    """Whether this connection has a version in which it does."""
    numbers: dict[PartitionName, int] = attrs.field(factory=dict)
    """Of the logs that were named on this connection."""
    names: list[PartitionName] = attrs.field(factory=list)
    """Those logs, in the order of their numbers, from 1."""
    asked: dict[PartitionName, str] = attrs.field(factory=dict)
    """The logs of which it was asked, and the target that holds each, as it was told."""

    def begin(self, *, tells_progress: bool) -> None:
        """A connection begins: nothing was said on it."""
        self.is_connected, self.tells_progress = True, tells_progress
        self.numbers, self.names, self.asked = {}, [], {}
        self.has_more.set()

    def number(self, name: PartitionName, messages: list[bytes]) -> int:
        """The number of a log; if it is new on this connection, it is named first."""
        number = self.numbers.get(name)
        if number is None:
            self.names.append(name)
            number = self.numbers[name] = len(self.names)
            messages.append(
                encode_multicast(MulticastLog(number, str(name.stream), name.life, name.number))
            )
        return number


class RelayMulticast:
    """The multicast of one process; `run` keeps its connections."""

    def __init__(
        self,
        *,
        cluster: str,
        region: str | None,
        sender: str,
        messages: MessageTransport,
        find_relays: FindRelays,
        config: MulticastConfig | None = None,
    ) -> None:
        self._region = region
        self._hello = MulticastHello(cluster, region or "", sender)
        self._messages = messages
        self._find_relays = find_relays
        self._config = config or MulticastConfig()
        self._relays: dict[Address, _Relay] = {}
        self._followed: dict[PartitionName, list[ProgressListener]] = {}
        self._is_wanted = trio.Event()

    def __repr__(self) -> str:
        return f"RelayMulticast({self._region}, {len(self._relays)} relays)"

    def port(self, name: PartitionName) -> MulticastPort:
        """The way of a relayed partition that this process owns."""
        self._is_wanted.set()
        return MulticastPort(name, self)

    def publish(self, name: PartitionName, encoded: EncodedEntry) -> None:
        """Queue an acknowledged entry for each relay that is connected."""
        encoded = encoded.as_relayed()
        for relay in self._relays.values():
            if relay.is_connected:
                relay.queue.push(_Acknowledged(name, encoded), encoded.length_bytes)
                relay.has_more.set()

    def follow(self, name: PartitionName, listener: ProgressListener) -> None:
        """Be told how far the targets of a partition are, until `leave`."""
        self._followed.setdefault(name, []).append(listener)
        for relay in self._relays.values():
            relay.asked.pop(name, None)  # Asked again, it tells all again.
        self._is_wanted.set()
        self.wake()

    def leave(self, name: PartitionName, listener: ProgressListener) -> None:
        """Be told nothing more."""
        listeners = self._followed.get(name, [])
        if listener in listeners:
            listeners.remove(listener)
        if not listeners:
            self._followed.pop(name, None)
        self.wake()

    def wake(self) -> None:
        """Tell the relays what a listener has to tell."""
        for relay in self._relays.values():
            relay.has_more.set()

    def statistics(self) -> dict[str, MulticastStatistics]:
        """Counts for each relay, by its address."""
        return {str(one.address): one.queue.statistics() for one in self._relays.values()}

    async def run(self) -> None:
        """Keep connections to the first relays, once something is relayed; never returns."""
        await self._is_wanted.wait()
        if self._region is None:
            return
        async with trio.open_nursery() as nursery:
            while True:
                try:
                    found = await self._find_relays(self._region)
                except GeologError as error:  # Those that are known go on.
                    _log.debug("the relays of %s cannot be found: %s", self._region, error)
                else:
                    self._keep(found[: self._config.relays_max], nursery)
                await trio.sleep(self._config.look_s)

    def _keep(self, wanted: Sequence[Address], nursery: trio.Nursery) -> None:
        for address in [one for one in self._relays if one not in wanted]:
            self._relays.pop(address).scope.cancel(reason="it is not among the first any more")
        for address in wanted:
            if address not in self._relays:
                relay = _Relay(address, MulticastQueue(self._config.queued_bytes_max))
                self._relays[address] = relay
                nursery.start_soon(self._serve, relay, name=f"multicast to {address}")

    async def _serve(self, relay: _Relay) -> None:
        with relay.scope:
            while True:
                try:
                    async with self._messages.open(
                        relay.address,
                        MULTICAST_PATH,
                        subprotocols=(
                            SUBPROTOCOL_MULTICAST,
                            SUBPROTOCOL_MULTICAST_OF_ENTRIES,
                        ),
                        message_bytes_max=MULTICAST_BYTES_MAX,
                    ) as socket:
                        await self._send_all(relay, socket)
                except* GeologError as errors:
                    _log.debug("multicast to %s: %s", relay.address, errors.exceptions)
                finally:
                    relay.is_connected = False
                    relay.queue.drop_all()
                await trio.sleep(self._config.redial_s)

    async def _send_all(self, relay: _Relay, socket: MessageSocket) -> None:
        await socket.send(encode_multicast(self._hello))
        relay.begin(tells_progress=socket.subprotocol == SUBPROTOCOL_MULTICAST)
        renewed_s = trio.current_time() + RENEW_S
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._hear, relay, socket)
            while len(relay.names) <= NAMES_MAX or trio.current_time() < renewed_s:
                await relay.has_more.wait()
                relay.has_more = trio.Event()
                if questions := self._questions(relay):
                    await socket.send(b"".join(questions))
                while taken := relay.queue.take(_JOINED_BYTES_MAX):
                    await socket.send(b"".join(_encoded(relay, taken)))
            nursery.cancel_scope.cancel(reason="too many names are old")

    def _questions(self, relay: _Relay) -> list[bytes]:
        """Ask about logs that are followed, and tell which of them are held."""
        messages: list[bytes] = []
        if not relay.tells_progress:
            return messages
        for name in self._followed:
            if name not in relay.asked:
                log = relay.number(name, messages)
                messages.append(encode_multicast(MulticastAsk(log)))
                relay.asked[name] = ""
        for name, told in relay.asked.items():
            held = max((one.held_target for one in self._followed.get(name, ())), default="")
            if held != told:
                log = relay.number(name, messages)
                messages.append(encode_multicast(MulticastHeld(log, held)))
                relay.asked[name] = held
        return messages

    async def _hear(self, relay: _Relay, socket: MessageSocket) -> None:
        """Take what the relay tells, until it leaves."""
        while True:
            for message in decode_multicast(await socket.receive()):
                if not isinstance(message, MulticastProgress):
                    raise DamagedBytesError(f"a relay sent {type(message).__name__}")
                if not 1 <= message.log <= len(relay.names):
                    raise DamagedBytesError(f"{message} is of a log that was not named")
                for listener in self._followed.get(relay.names[message.log - 1], ()):
                    listener.on_progress(message)


def _encoded(relay: _Relay, taken: list[_Acknowledged]) -> list[bytes]:
    """The messages for these entries; logs that are new on this connection are named first."""
    messages: list[bytes] = []
    for one in taken:
        log = relay.number(one.name, messages)
        messages.append(encode_multicast(MulticastEntry(log, one.encoded)))
    return messages
