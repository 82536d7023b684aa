"""The partitions that a proxy owns: taken at the first append, given up when long idle.

Rules: PROTOCOL S24, S25, S26 and S28.
"""

import logging
import math
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import assert_never

import attrs
import trio

from geolog.background import open_background
from geolog.catalog.offers import Offer
from geolog.metadata.proxies import (
    ProxyRecord,
    is_proxys_name,
    list_live_proxies,
    region_of_proxy,
)
from geolog.metadata.seam import Metadata
from geolog.partition.partition_opener import PartitionOpener
from geolog.partition.partition_writer import PartitionWriter
from geolog.protocol.owner_balance import OwnerCandidate, ranking
from geolog.protocol.stream_state import PartitionName, StreamRecord
from regions.proxy.early_takeovers import EarlyTakeovers
from regions.proxy.peers import Peers
from regions.proxy.protocol.ownership import (
    AtProxy,
    Here,
    HomeAway,
    LastOwner,
    Nowhere,
    NowhereYet,
    ProxiesSeen,
    place_of_appends,
)
from topology.errors import (
    FencedError,
    GeologError,
    OwnedDirectlyError,
    RegionUnavailableError,
    RestingError,
    UnavailableError,
    first_of,
)

_log = logging.getLogger(__name__)

_LOOKS_PER_IDLE_TIME = 10

_HAND_OVER_AGAIN_S = 0.05
_MOVE_S = 10.0
"""Time limit of one round of moves."""


class MovedError(GeologError):
    """Another proxy owns the partition, or is to take it: send the same request there."""

    code = 302
    retriable = True

    def __init__(self, name: PartitionName, proxy: ProxyRecord) -> None:
        super().__init__(
            f"proxy {proxy.proxy_id} at {proxy.address} takes the appends to {name}"
        )
        self.address = proxy.address
        self.http = proxy.http
        """Where it takes HTTP requests, if it does."""


@attrs.define(eq=False)
class _Held:
    """A partition that this proxy owns, or is about to own."""

    stream: StreamRecord
    name: PartitionName
    opened: trio.Event = attrs.field(factory=trio.Event)
    """Set when there is a writer, or an error."""
    writer: PartitionWriter | None = None
    error: GeologError | None = None
    users_count: int = 0
    idle_since_s: float = math.inf
    sequence_seen: int = -1
    """The next sequence when it was last looked at."""
    is_resting: bool = False
    """Whether it is being given up because nobody appends."""
    to_end: trio.Event = attrs.field(factory=trio.Event)

    @property
    def is_usable(self) -> bool:
        """Whether it is being opened, or takes appends."""
        return self.error is None and (self.writer is None or self.writer.failure is None)

    def is_idle_since(self, oldest_s: float) -> bool:
        """Whether nobody has appended, or come or gone, since then."""
        writer = self.writer
        if writer is None:
            return False
        if writer.sequence_next != self.sequence_seen or not writer.is_idle:
            self.sequence_seen = writer.sequence_next
            self.idle_since_s = trio.current_time()
        return self.idle_since_s <= oldest_s


@attrs.frozen(kw_only=True)
class HeldStatistics:
    """The partitions of one proxy."""

    owned_count: int
    handed_over_count: int
    """Partitions given to other proxies, while draining or to balance."""
    taken_early_count: int
    """Permits for partitions of proxies that looked dead."""


class HeldPartitions:
    """Opens and closes the writers of partitions; sessions share them."""

    def __init__(
        self,
        *,
        metadata: Metadata,
        cluster: str,
        region: str,
        opener: PartitionOpener,
        peers: Peers,
        early: EarlyTakeovers,
        idle_release_s: float,
        nursery: trio.Nursery,
    ) -> None:
        self._metadata = metadata
        self._cluster = cluster
        self._region = region
        self._owners = opener.upkeep.partitions.owners
        self._offers = opener.upkeep.partitions.offers
        self._opener = opener
        self._peers = peers
        self._early = early
        self._idle_release_s = idle_release_s
        self._nursery = nursery
        self._held: dict[PartitionName, _Held] = {}
        self._changed = trio.Event()
        self.takeovers_count = 0
        """Partitions that this proxy has taken since it began."""
        self._handed_over_count = 0

    def __len__(self) -> int:
        return len(self._held)

    def statistics(self) -> HeldStatistics:
        """Counts so far."""
        return HeldStatistics(
            owned_count=len(self._held),
            handed_over_count=self._handed_over_count,
            taken_early_count=self._early.count,
        )

    @property
    def owners(self) -> list[PartitionWriter]:
        """The writers of the partitions that it owns now."""
        return [held.writer for held in self._held.values() if held.writer is not None]

    @asynccontextmanager
    async def use(
        self, stream: StreamRecord, number: int, *, avoid: Collection[str] = ()
    ) -> AsyncIterator[PartitionWriter]:
        """The writer of a partition, for the length of the block; it may fail meanwhile.

        avoid: addresses of proxies that the client cannot use now. MovedError if the partition
        is another proxy's, FencedError if another process owns it.
        """
        if stream.moving_to:
            moves = self._opener.upkeep.partitions.home_moves
            stream = await moves.give_up_abandoned(stream)
        held = await self._find_or_open(stream, stream.partition(number), avoid)
        held.users_count += 1
        try:
            await held.opened.wait()
            if isinstance(held.error, FencedError):
                # Another process was faster. It has the partition now, or has lost it, too.
                await self.check_place(held.name, stream.home, trusts_metadata=True)
                raise UnavailableError(f"another takeover overtook this one: {held.error}")
            if held.error is not None:
                raise held.error
            assert held.writer is not None
            held.idle_since_s = trio.current_time()
            yield held.writer
        finally:
            held.users_count -= 1
            held.idle_since_s = trio.current_time()

    async def _find_or_open(
        self, stream: StreamRecord, name: PartitionName, avoid: Collection[str]
    ) -> _Held:
        held = self._usable(name)
        if held is None:
            here = await self.check_place(name, stream.home, avoid=avoid)
            may_take = not here.is_early or await self._early.ask(name)
            held = self._usable(name)  # Another session may have been faster.
            if held is None and not may_take:
                # The owner may live after all: only this proxy does not hear it.
                await self.check_place(name, stream.home, avoid=avoid, trusts_metadata=True)
                raise UnavailableError(
                    f"the owner of {name} does not answer; wait until its ZooKeeper session is"
                    " over, because the partition was taken early just before"
                )
        if held is None:
            held = self._held[name] = _Held(stream, name)
            self._nursery.start_soon(self._hold, held, name=f"owner of {name}")
        return held

    def _usable(self, name: PartitionName) -> _Held | None:
        held = self._held.get(name)
        return held if held is not None and held.is_usable else None

    async def check_place(
        self,
        name: PartitionName,
        home: str | None,
        *,
        avoid: Collection[str] = (),
        trusts_metadata: bool = False,
    ) -> Here:
        """Raise the error of appends that are not for this proxy.

        home: that of a `regional` stream.
        trusts_metadata: suspect no proxy that metadata shows.
        """
        owner = (await self._owners.read_latest(name)).record
        proxies = {
            each.owner: each for each in await list_live_proxies(self._metadata, self._cluster)
        }
        last = LastOwner(
            record=owner,
            is_alive=await self._owners.is_owner_alive(owner),
            is_proxy=is_proxys_name(owner.owner),
            region=region_of_proxy(owner.owner),
        )
        seen = ProxiesSeen(
            here=self._opener.who,
            presence=self._opener.upkeep.takeover.owners.presence,
            region=self._region,
            listed=list(map(candidate_of, proxies.values())),
            avoided=[one.owner for one in proxies.values() if str(one.address) in avoid],
            suspected=() if trusts_metadata else self._peers.suspected,
        )
        place = place_of_appends(str(name), last, seen, home)
        match place:
            case Here():
                return place
            case AtProxy(process):
                raise MovedError(name, proxies[process])
            case NowhereYet():
                raise UnavailableError(f"{owner.owner} is leaving, and owns {name} still")
            case HomeAway() if any(one.region == home for one in proxies.values()):
                raise UnavailableError(
                    f"no write proxy in {place.home}, the home of {name.stream}, could be used"
                    " just now"
                )
            case HomeAway():
                raise RegionUnavailableError(
                    f"no write proxy is up in {place.home}, the home of {name.stream}: its"
                    " appends are taken there alone"
                )
            case Nowhere():
                raise OwnedDirectlyError(
                    f"{owner.owner} writes {name} directly: append there, or end it, and send"
                    " again"
                )
            case _:
                assert_never(place)

    async def _hold(self, held: _Held) -> None:
        """Own the partition until it fails, or is given up."""
        try:
            async with self._opener.open(
                held.stream, held.name.number, wants_received=False
            ) as owned:
                held.writer = owned.in_order[0]
                self.takeovers_count += 1
                held.idle_since_s = trio.current_time()
                held.opened.set()
                _log.info("%s: owned, epoch %d", held.name, held.writer.epoch)
                await self._wait_end(held, held.writer)
                await self._end(held.writer)
        except* GeologError as errors:
            held.error = first_of(errors)
            _log.info("%s: not owned any more: %s", held.name, held.error)
        except* Exception as errors:  # noqa: BLE001 - one partition must not end the others.
            _log.error("%s: met a bug; it is given up", held.name, exc_info=errors)
            held.error = UnavailableError(f"{held.name}: its proxy met a bug")
        finally:
            held.opened.set()
            if self._held.get(held.name) is held:
                del self._held[held.name]
            changed, self._changed = self._changed, trio.Event()
            changed.set()

    async def _wait_end(self, held: _Held, writer: PartitionWriter) -> None:
        async with open_background() as nursery:

            async def end_when_failed() -> None:
                await writer.wait_ended()
                held.to_end.set()

            nursery.start_soon(end_when_failed)
            await held.to_end.wait()

    async def _end(self, writer: PartitionWriter) -> None:
        """Refuse appends, which clients then send elsewhere, and answer the others."""
        if writer.failure is None:
            try:
                await writer.end()
            finally:
                writer.on_handed_over()

    async def run_release(self) -> None:
        """Give up partitions that are long idle; never returns.

        Their sessions stay. They find that the owner has failed with RestingError, and have the
        partition taken again at the next append.
        """
        while True:
            await trio.sleep(self._idle_release_s / _LOOKS_PER_IDLE_TIME)
            oldest_s = trio.current_time() - self._idle_release_s
            for held in list(self._held.values()):
                if held.is_idle_since(oldest_s) and not held.is_resting:
                    held.is_resting = True
                    self._nursery.start_soon(self._give_up, held)

    async def _give_up(self, held: _Held) -> None:
        """End the writer as for a hand-over, so that no append is lost that comes right now."""
        writer = held.writer
        assert writer is not None
        try:
            with trio.move_on_after(_MOVE_S):
                await writer.end(RestingError(f"{held.name} rests: the next append takes it"))
        except GeologError as error:
            _log.info("%s: not given up: %s", held.name, error)
        finally:
            writer.on_handed_over()
            held.is_resting = False

    async def hand_over_all(self) -> None:
        """Give the partitions to other proxies that offer to take them, as far as there are.

        Those that stay, because their appends got no answer in time, are tried again: in the
        end the sessions close, and would leave such appends unknown. The caller bounds that.
        """
        while working := self._working():
            offers = {one.owner: one for one in await self._offers.list_live()}
            proxies = await list_live_proxies(self._metadata, self._cluster)
            candidates = [candidate_of(each) for each in proxies if each.owner in offers]
            if not candidates:
                return
            regions = {one.process: one.region for one in candidates}
            await self._hand_over(
                {
                    writer: [
                        offers[one]
                        for one in ranking(str(name), self._region, candidates)
                        if writer.home in (None, regions[one])
                    ]
                    for name, writer in working
                }
            )
            await trio.sleep(_HAND_OVER_AGAIN_S)

    async def hand_over(self, targets: Mapping[str, Offer]) -> None:
        """Give some partitions away, each to its target."""
        with trio.move_on_after(_MOVE_S):
            await self._hand_over(
                {
                    writer: [targets[str(name)]]
                    for name, writer in self._working()
                    if str(name) in targets
                }
            )

    def _working(self) -> list[tuple[PartitionName, PartitionWriter]]:
        return [
            (held.name, held.writer)
            for held in self._held.values()
            if held.writer is not None and held.writer.failure is None
        ]

    def used_lately(self, within_s: float) -> list[str]:
        """The names of the partitions that sessions use, or have used within this time."""
        oldest_s = trio.current_time() - within_s
        return [
            str(held.name)
            for held in self._held.values()
            if held.is_usable and (held.users_count or held.idle_since_s > oldest_s)
        ]

    async def _hand_over(self, wishes: Mapping[PartitionWriter, Sequence[Offer]]) -> None:
        done = await self._opener.hand_over(wishes)
        self._handed_over_count += len(done.given)
        _log.info("%d of %d partitions handed over", len(done.given), len(wishes))

    async def give_up_all(self) -> None:
        """Give up all partitions; return when their ledgers are closed."""
        while self._held:
            for held in self._held.values():
                held.to_end.set()
            await self.wait_changed()

    async def wait_changed(self) -> None:
        """Wait until a partition was given up, or lost."""
        await self._changed.wait()


def candidate_of(proxy: ProxyRecord) -> OwnerCandidate:
    """The proxy, as a ranking wants it."""
    return OwnerCandidate(
        process=proxy.owner,
        region=proxy.region,
        is_draining=proxy.is_draining,
    )
