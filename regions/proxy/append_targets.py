"""Where the records of an append session go: to an owner in this process, or to other proxies.

A session of one partition that this proxy owns hands its records to that owner. A session of a
stream of several partitions, or one that asked for it, is forwarded: the proxy writes on its
behalf through the proxies that own the partitions, itself included. A session that asked for it
is forwarded from then on when this proxy loses the partition to another one. A session whose
partition was given up because nobody appended has it taken again, or is forwarded if another
proxy takes it.

Rules: PROTOCOL S28 and S33.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)

from geolog.client.writing.partition_batcher import WriterConfig
from geolog.client.writing.writer import Writer, open_linger
from geolog.client.writing.writer_pending import AckLevel
from geolog.client.writing.writer_session import open_session
from geolog.partition.partition_writer import PartitionWriter
from geolog.protocol.session_home import SessionHome
from geolog.protocol.stream_state import StreamRecord
from geolog.wire.session.paths import AppendPath
from regions.proxy.held_partitions import MovedError
from regions.proxy.session_host import SessionHost
from topology.errors import (
    FencedError,
    GeologError,
    HandedOverError,
    RestingError,
    UnavailableError,
)

_WINDOW_BYTES_MIN = 32 << 20


class AppendTarget(ABC):
    """The destination of one session's records."""

    name: str
    """The partition, or the whole stream."""
    owner: str | None = None
    """The process that owns the partition; None if the session is forwarded."""
    epoch: int | None = None
    """That owner's epoch."""

    @property
    def counted_as(self) -> str:
        """The name for which the bytes of its frames count."""
        return self.name

    @abstractmethod
    def open_writer(self, writer_id: str | None) -> AbstractAsyncContextManager[Writer]:
        """Open a writer, with a session of its own if it has an id."""

    @abstractmethod
    def want_received(self) -> None:
        """Find out of records when they are in memory, as far as that is possible."""

    @property
    @abstractmethod
    def failure(self) -> GeologError | None:
        """Why nothing more can be appended, if so."""

    @property
    def successor(self) -> "AppendTarget | None":
        """The target from now on, if this one is lost and its session goes on elsewhere."""
        return None

    async def open_successor(
        self,
        stack: AsyncExitStack,  # noqa: ARG002 - of those that open something.
    ) -> "AppendTarget":
        """That target, opened in the stack; there must be one."""
        assert self.successor is not None, f"{self} goes on"
        return self.successor

    @abstractmethod
    async def why_lost(self) -> GeologError:
        """The same after a failure, with who can append instead, if that can be found out."""


class OwnedTarget(AppendTarget):
    """A partition that this proxy owns."""

    def __init__(
        self,
        host: SessionHost,
        stream: StreamRecord,
        owner: PartitionWriter,
        *,
        is_whole: bool,
        may_forward: bool,
    ) -> None:
        """Append to what this proxy owns.

        is_whole: whether the client named the stream, which has this one partition.
        may_forward: whether to forward appends if another process owns the partition later.
        """
        self._host = host
        self._may_forward = may_forward
        self._stream = stream
        self._owner = owner
        self._is_whole = is_whole
        self.name = str(owner.name)
        self.owner = owner.owner.owner
        self.epoch = owner.epoch

    def __repr__(self) -> str:
        return f"OwnedTarget({self._owner.name})"

    def want_received(self) -> None:
        """Have the owner ask for it."""
        self._owner.want_received()

    @property
    def failure(self) -> GeologError | None:
        """Why the owner failed, if it did."""
        return self._owner.failure

    @property
    def successor(self) -> AppendTarget | None:
        """The proxies: whichever owns the partition next, a writer opened there finds it."""
        goes_on = isinstance(self._owner.failure, RestingError) or (
            self._may_forward and isinstance(self._owner.failure, FencedError | HandedOverError)
        )
        if not goes_on:
            return None
        number = None if self._is_whole else self._owner.name.number
        return ForwardedTarget(self._host, self._stream, number)

    async def open_successor(self, stack: AsyncExitStack) -> AppendTarget:
        """This proxy again, if it takes a partition that was given up."""
        if isinstance(self._owner.failure, RestingError):
            number = self._owner.name.number
            with suppress(
                GeologError
            ):  # The way through proxies finds out what to do about it.
                return OwnedTarget(
                    self._host,
                    self._stream,
                    await stack.enter_async_context(self._host.held.use(self._stream, number)),
                    is_whole=self._is_whole,
                    may_forward=self._may_forward,
                )
        return await super().open_successor(stack)

    async def why_lost(self) -> GeologError:
        """Why this proxy lost the partition, and who has it."""
        return await self._host.why_lost(self._owner)

    @asynccontextmanager
    async def open_writer(self, writer_id: str | None) -> AsyncIterator[Writer]:
        """Open a writer to the owner in this process."""
        session = None
        if writer_id is not None:
            session = await open_session(
                writer_id,
                [self._owner],
                home=SessionHome(self._stream.life, self._stream.session_epoch),
                is_whole=self._is_whole,
                count_partitions=self._count_partitions,
                rng=self._host.rng,
            )
        writer = Writer(
            [self._owner],
            WriterConfig(
                linger_s=self._host.config.linger_s,
                in_flight_bytes=_window_bytes(self._host),
            ),
            session=session,
            ack=AckLevel.RECEIVED,  # For appends that ask; others wait until they are durable.
            home_epoch=self._stream.home_epoch,
            now_us=self._host.now_us,
        )
        async with open_linger(writer):
            yield writer

    async def _count_partitions(self) -> int:
        latest = await self._host.opener.upkeep.catalog.read_same_latest(self._stream)
        if latest.partitions > 1:
            raise UnavailableError(
                f"{self._stream.name} has {latest.partitions} partitions now: open a new"
                " session"
            )
        return latest.partitions


class ForwardedTarget(AppendTarget):
    """A stream, or one partition of it, that is written through the proxies that own it."""

    def __init__(self, host: SessionHost, stream: StreamRecord, number: int | None) -> None:
        self._host = host
        whole = str(stream.name) if stream.partitions > 1 else f"{stream.name}#0"
        self.name = whole if number is None else f"{stream.name}#{number}"
        self._path = str(stream.name) if number is None else self.name
        self._writers: list[Writer] = []

    def __repr__(self) -> str:
        return f"ForwardedTarget({self.name})"

    @property
    def counted_as(self) -> str:
        """Not the partition.

        If this proxy takes it, these frames become batches that count for the partition. They
        would wait for the frames, and the frames wait for them.
        """
        return f"forwarding to {self.name}"

    def want_received(self) -> None:
        """Do nothing: other proxies answer when records are durable."""

    @property
    def failure(self) -> GeologError | None:
        """The failure of a writer that cannot go on."""
        failures = (writer.failure for writer in self._writers)
        return next((one for one in failures if one is not None), None)

    async def why_lost(self) -> GeologError:
        """The failure: it names the owner already."""
        assert self.failure is not None, f"{self.name} can be written"
        return self.failure

    @asynccontextmanager
    async def open_writer(self, writer_id: str | None) -> AsyncIterator[Writer]:
        """Open a writer through the proxies."""
        async with self._host.log.open_writer(
            self._path,
            writer_id=writer_id,
            linger_s=self._host.config.linger_s,
            in_flight_bytes=_window_bytes(self._host),
        ) as writer:
            self._writers.append(writer)
            yield writer


@asynccontextmanager
async def open_target(
    host: SessionHost, path: AppendPath, *, client: str
) -> AsyncIterator[AppendTarget]:
    """The target of a path, for the length of the block.

    MovedError if another proxy takes the appends and the path does not ask to be forwarded.
    """
    stream = await host.find_stream(path.stream, client=client)
    target: AppendTarget = ForwardedTarget(host, stream, path.partition)
    async with AsyncExitStack() as stack:
        if path.partition is not None or stream.partitions == 1:
            use = host.held.use(stream, path.partition or 0, avoid=path.avoid)
            try:
                owner = await stack.enter_async_context(use)
            except MovedError:
                if path.redirect == "follow":
                    raise
            else:
                target = OwnedTarget(
                    host,
                    stream,
                    owner,
                    is_whole=path.partition is None,
                    may_forward=path.redirect == "forward",
                )
        yield target


def _window_bytes(host: SessionHost) -> int:
    return max(2 * host.config.credit_bytes, _WINDOW_BYTES_MIN)
