"""Takes the multicast of owners, and puts entries into the feeds of their partitions.

A connection that breaks the protocol, or is of another cluster or region, is closed; its owner
dials again, and the readers of the log go on meanwhile.

An owner may ask how far the targets of a log are: the coordinator tells what they themselves
told it, whenever that or the log's tail has moved. Of a target that stays silent it tells,
after a while, what that told an earlier coordinator.

Rules: PROTOCOL T4, T5 and T8.
"""

import logging
from collections.abc import Callable, Iterator

import attrs
import trio

from geolog.background import open_background
from geolog.protocol.stream_state import PartitionName
from geolog.transport.message_socket import MessageSocket, SocketClosedError
from geolog.wire.multicast import (
    SUBPROTOCOL_MULTICAST,
    MulticastAsk,
    MulticastEntry,
    MulticastHeld,
    MulticastHello,
    MulticastLog,
    MulticastMessage,
    MulticastProgress,
    decode_multicast,
    encode_multicast,
)
from geolog.wire.session.codes import Code, close_code
from relay.bridge.home_feed import HomeFeed, HomeFeeds
from topology.errors import DamagedBytesError, GeologError, NotPermittedError

_log = logging.getLogger(__name__)


_TELL_S = 0.02
"""Progress that is made meanwhile is told together."""

_SILENT_S = 5.0
"""A target that has told this coordinator nothing for so long is away: its place is the one
that an earlier coordinator was told."""

_LOOK_S = 1.0
"""How often to look for feeds of logs that were asked about; a new stream has none yet."""


@attrs.define(eq=False)
class _Sender:
    """One connection, and the logs that it has named."""

    hello: MulticastHello | None = None
    names: dict[int, PartitionName] = attrs.field(factory=dict)
    asked: dict[int, HomeFeed | None] = attrs.field(factory=dict)
    """Logs of which it wants to be told, and their feeds, if they are there."""
    told: dict[tuple[int, str], MulticastProgress] = attrs.field(factory=dict)
    """The last that it was told of each target."""
    epoch_since: tuple[int, float] | None = None
    """The epoch in which this relay coordinates, and when the connection saw that."""
    held: dict[int, str] = attrs.field(factory=dict)
    """Logs to which it refuses appends, and the targets because of which it does."""
    has_news: trio.Event = attrs.field(factory=trio.Event)

    def wake(self) -> None:
        """Something has moved."""
        self.has_news.set()

    def watch(self, log: int, feed: HomeFeed | None) -> None:
        """Follow this feed of a log, and no other."""
        before = self.asked.get(log)
        if before is feed:
            return
        if before is not None:
            before.followers.remove(self.wake)
            before.held.pop(self, None)
        if feed is not None:
            feed.followers.append(self.wake)
            if log in self.held:
                feed.held[self] = self.held[log]
        self.asked[log] = feed

    def end(self) -> None:
        """Follow nothing any more."""
        for log in self.asked:
            self.watch(log, None)


class MulticastInlet:
    """The multicasts of the owners of one region, at one of its relays."""

    def __init__(self, feeds: HomeFeeds, *, relay_epoch: Callable[[], int | None]) -> None:
        """relay_epoch: in which this relay coordinates; None while it does not."""
        self._feeds = feeds
        self._relay_epoch = relay_epoch
        self.received_count = 0
        """Entries that came, whatever became of them."""
        self.failures: list[str] = []
        """Why connections were closed, the last few."""

    def __repr__(self) -> str:
        return f"MulticastInlet({self._feeds.region}, {self.received_count} received)"

    async def serve(self, socket: MessageSocket) -> None:
        """Take entries, and tell how far targets are, until the owner leaves."""
        sender = _Sender()
        try:
            async with open_background() as nursery:
                if socket.subprotocol == SUBPROTOCOL_MULTICAST:
                    nursery.start_soon(self._tell, sender, socket)
                await self._take_all(sender, socket)
        except SocketClosedError:
            pass
        except GeologError as error:
            _log.warning("multicast of %s: closed (%s)", sender.hello, error)
            self.failures.append(str(error))
            del self.failures[:-16]
            is_damaged = isinstance(error, DamagedBytesError)
            self._feeds.damaged_multicasts_count += is_damaged
            code = Code.BAD_MESSAGE if is_damaged else error.code
            await socket.close(close_code(code), str(error))
        finally:
            sender.end()

    async def _take_all(self, sender: _Sender, socket: MessageSocket) -> None:
        while True:
            touched: dict[HomeFeed, None] = {}
            for message in decode_multicast(await socket.receive()):
                feed = self._take(sender, message)
                if feed is not None:
                    touched[feed] = None
            for feed in touched:
                feed.on_multicast_taken()

    # Progress of targets.

    async def _tell(self, sender: _Sender, socket: MessageSocket) -> None:
        while True:
            with trio.move_on_after(_LOOK_S):
                await sender.has_news.wait()
            sender.has_news = trio.Event()
            news = b"".join(encode_multicast(one) for one in self._news(sender))
            if news:
                await socket.send(news)
            await trio.sleep(_TELL_S)

    def _news(self, sender: _Sender) -> Iterator[MulticastProgress]:
        relay_epoch, now_s = self._relay_epoch(), trio.current_time()
        if relay_epoch is None:
            sender.epoch_since = None
        elif sender.epoch_since is None or sender.epoch_since[0] != relay_epoch:
            sender.epoch_since = relay_epoch, now_s
        for log in list(sender.asked):
            feed = self._feeds.by_name.get(sender.names[log])
            sender.watch(log, feed)
            if sender.epoch_since is None or feed is None:
                continue
            epoch, since_s = sender.epoch_since
            epoch_min = 0 if now_s > since_s + _SILENT_S else epoch
            for target in feed.record.relay_to:
                progress = _progress(log, feed, target, epoch_min)
                if progress is None and (log, target) in sender.told:
                    progress = _taken_back(log, feed, target, epoch)
                if progress is not None and sender.told.get((log, target)) != progress:
                    sender.told[(log, target)] = progress
                    yield progress

    def _on_asked(self, sender: _Sender, log: int) -> None:
        sender.asked.setdefault(log, None)
        for told in [one for one in sender.told if one[0] == log]:
            del sender.told[told]  # The owner that asks again knows nothing.
        sender.wake()

    def _on_held(self, sender: _Sender, message: MulticastHeld) -> None:
        feed = sender.asked.get(message.log)
        if message.target:
            sender.held[message.log] = message.target
        else:
            sender.held.pop(message.log, None)
        if feed is not None and message.target:
            feed.held[sender] = message.target
        elif feed is not None:
            feed.held.pop(sender, None)

    # Entries.

    def _take(self, sender: _Sender, message: MulticastMessage) -> HomeFeed | None:
        if isinstance(message, MulticastHello):
            self._check(message)
            sender.hello = message
            return None
        if sender.hello is None:
            raise DamagedBytesError(
                f"a multicast begins with {type(message).__name__}, not with a hello"
            )
        if isinstance(message, MulticastLog):
            sender.names[message.log] = message.name
            return None
        if isinstance(message, MulticastProgress):
            raise DamagedBytesError("an owner tells the progress of targets")
        name = sender.names.get(message.log)
        if name is None:
            raise DamagedBytesError(
                f"{type(message).__name__} is of log {message.log}, which was not named"
            )
        if isinstance(message, MulticastAsk):
            self._on_asked(sender, message.log)
            return None
        if isinstance(message, MulticastHeld):
            self._on_held(sender, message)
            return None
        return self._place(name, message)

    def _check(self, hello: MulticastHello) -> None:
        cluster = self._feeds.log.cluster
        if (hello.cluster, hello.region) != (cluster, self._feeds.region):
            raise NotPermittedError(
                f"this is a relay of cluster {cluster!r} in {self._feeds.region!r}, the owner"
                f" is of {hello.cluster!r} in {hello.region!r}"
            )

    def _place(self, name: PartitionName, message: MulticastEntry) -> HomeFeed | None:
        self.received_count += 1
        feed = self._feeds.by_name.get(name)
        if feed is None or not feed.has_begun:
            return None  # Its reader begins by itself.
        feed.on_multicast(message.encoded)
        return feed


def _taken_back(
    log: int, feed: HomeFeed, target: str, relay_epoch: int
) -> MulticastProgress | None:
    """Says that nothing is known of a target, of which a place was told before.

    Its mirror is another one by now, or differs from the home.
    """
    standing = feed.targets.get(target)
    if standing is not None and standing.heard is not None:
        return None  # It is older than this coordinator, and counts until the target tells.
    return MulticastProgress(
        log=log,
        target=target,
        relay_epoch=relay_epoch,
        durable_next=0,
        tail_next=0,
        lag_bytes=0,
        since_us=0,
    )


def _progress(
    log: int, feed: HomeFeed, target: str, epoch_min: int
) -> MulticastProgress | None:
    """The place of a target; None unless it told it to a coordinator of such an epoch."""
    standing = feed.targets.get(target)
    heard = None if standing is None else standing.heard
    if heard is None or heard.relay_epoch < epoch_min:
        return None
    lag = feed.history.at_most(heard.durable_next)
    return MulticastProgress(
        log=log,
        target=target,
        relay_epoch=heard.relay_epoch,
        durable_next=heard.durable_next,
        tail_next=heard.durable_next if lag is None else heard.durable_next + lag.records,
        lag_bytes=0 if lag is None else lag.bytes,
        since_us=0 if lag is None else lag.since_us or 0,
    )
