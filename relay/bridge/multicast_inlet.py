"""Takes the multicast of owners, and puts entries into the feeds of their partitions.

A connection that breaks the protocol, or is of another cluster or region, is closed; its owner
dials again, and the readers of the log go on meanwhile.

Rules: PROTOCOL T4 and T5.
"""

import logging

import attrs

from geolog.protocol.stream_state import PartitionName
from geolog.transport.message_socket import MessageSocket, SocketClosedError
from geolog.wire.multicast import (
    MulticastEntry,
    MulticastHello,
    MulticastLog,
    MulticastMessage,
    decode_multicast,
)
from geolog.wire.session.codes import Code, close_code
from relay.bridge.home_feed import HomeFeed, HomeFeeds
from topology.errors import DamagedBytesError, GeologError, NotPermittedError

_log = logging.getLogger(__name__)


@attrs.define
class _Sender:
    """One connection, and the logs that it has named."""

    hello: MulticastHello | None = None
    names: dict[int, PartitionName] = attrs.field(factory=dict)


class MulticastInlet:
    """The multicasts of the owners of one region, at one of its relays."""

    def __init__(self, feeds: HomeFeeds) -> None:
        self._feeds = feeds
        self.received_count = 0
        """Entries that came, whatever became of them."""
        self.failures: list[str] = []
        """Why connections were closed, the last few."""

    def __repr__(self) -> str:
        return f"MulticastInlet({self._feeds.region}, {self.received_count} received)"

    async def serve(self, socket: MessageSocket) -> None:
        """Take entries until the owner leaves."""
        sender = _Sender()
        try:
            while True:
                touched: dict[HomeFeed, None] = {}
                for message in decode_multicast(await socket.receive()):
                    feed = self._take(sender, message)
                    if feed is not None:
                        touched[feed] = None
                for feed in touched:
                    feed.on_multicast_taken()
        except SocketClosedError:
            pass
        except GeologError as error:
            _log.warning("multicast of %s: closed (%s)", sender.hello, error)
            self.failures.append(str(error))
            del self.failures[:-16]
            is_damaged = isinstance(error, DamagedBytesError)
            code = Code.BAD_MESSAGE if is_damaged else error.code
            await socket.close(close_code(code), str(error))

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
        name = sender.names.get(message.log)
        if name is None:
            raise DamagedBytesError(f"an entry is of log {message.log}, which was not named")
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
