"""Opens partitions as their owner, for direct writers and for proxies.

Rules: PROTOCOL H15, H17 and O19.
"""

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import attrs

from geolog.background import open_background
from geolog.catalog.offers import Offer
from geolog.catalog.partition_config import PartitionConfig
from geolog.partition.hand_over import HandedOver, hand_over
from geolog.partition.mirror_opening import open_mirror
from geolog.partition.mirror_resync import (
    MirrorResync,
    check_no_gap,
    insist_on_resync,
    planned_resync,
)
from geolog.partition.mirror_writer import MirrorListener, MirrorWriter, last_watermark
from geolog.partition.offer import open_offer
from geolog.partition.owner import OwnedPartitions, open_partition_writers
from geolog.partition.partition_writer import PartitionWriter
from geolog.partition.relay_multicast import RelayMulticast
from geolog.partition.repeated_batch import ReadBack
from geolog.partition.stream_upkeep import StreamUpkeep, run_retention
from geolog.protocol.retention import RetentionPolicy
from geolog.protocol.stream_state import PartitionName, StreamRecord
from geolog.protocol.watermark import Watermark
from topology.errors import (
    InvalidArgumentError,
    SealedError,
    UnavailableError,
)
from topology.stream_policy import PolicyKind


@attrs.frozen(kw_only=True)
class PartitionOpener:
    """Owns streams or single partitions, and trims records past their retention meanwhile."""

    who: str
    """The process's name in owner records."""
    upkeep: StreamUpkeep
    read_back: ReadBack
    config: PartitionConfig
    rng: random.Random
    multicast: RelayMulticast | None = None
    """The way of relayed streams to the relays of this region; None for none."""

    def open_offer(self) -> AbstractAsyncContextManager[Offer]:
        """Take over partitions that others hand to this process, while the block lasts.

        A partition that was given is this process's at once; `open` starts to write it.
        """
        return open_offer(self.upkeep.takeover.owners, self.upkeep.partitions.offers, self.who)

    async def hand_over(
        self, successors: Mapping[PartitionWriter, Sequence[Offer]]
    ) -> HandedOver:
        """Give each partition to the first of its successors that is still there.

        The caller bounds the time, and then ends the block in which the writers were opened.
        """
        return await hand_over(
            successors,
            owners=self.upkeep.takeover.owners,
            offers=self.upkeep.partitions.offers,
        )

    def open_mirror(
        self, stream: StreamRecord, name: PartitionName, listener: MirrorListener
    ) -> AbstractAsyncContextManager[MirrorWriter]:
        """Own a mirror of the stream while the block lasts; see `open_mirror`."""
        return open_mirror(
            name,
            stream,
            listener,
            who=self.who,
            takeover=self.upkeep.takeover,
            config=self.config,
        )

    async def resync_mirrors(
        self, stream: StreamRecord, region: str, numbers: Sequence[int], *, accept_gap: bool
    ) -> list[MirrorResync]:
        """Begin mirrors of these partitions again with what their homes have left.

        See `insist_on_resync`, and its errors. ConflictError, and nothing is done, if records
        would be missing in any of them and that is not accepted.
        """
        takeover, who = self.upkeep.takeover, self.who
        if not accept_gap:
            partitions = self.upkeep.partitions
            check_no_gap(
                stream,
                [await planned_resync(stream, region, one, partitions) for one in numbers],
            )
        return [
            await insist_on_resync(
                stream, region, one, takeover, who=who, accept_gap=accept_gap
            )
            for one in numbers
        ]

    async def end_sealed_mirror(self, mirror: PartitionName) -> Watermark | None:
        """The last entry of a mirror that is sealed; None if it has none.

        The owner that sealed it may have died before it closed the last row: that is done now.
        """
        takeover = self.upkeep.takeover
        sealed = await takeover.partitions.owners.seal(mirror)
        await takeover.end_open_segment(mirror, sealed, is_mirror=True)
        return await last_watermark(mirror, takeover)

    def check_is_at_home(self, stream: StreamRecord) -> None:
        """InvalidArgumentError unless this process is where the stream can be owned."""
        region = self.upkeep.takeover.region
        if stream.home in (None, region):
            return
        where = f"is in {region}"
        if region is None:
            where = "does not know its region (GEOLOG_REGION names it)"
        raise InvalidArgumentError(
            f"{stream.name} can be owned in its home {stream.home} alone, and this process"
            f" {where}: append through a write proxy, or from {stream.home}"
        )

    @asynccontextmanager
    async def open(
        self, stream: StreamRecord, number: int | None, *, wants_received: bool
    ) -> AsyncIterator[OwnedPartitions]:
        """Own a stream, or one partition of it, while the block lasts.

        SealedError, FencedError, NoSuchStreamError, NotEnoughNodesError; UnknownPolicyError if
        this process does not know the placement policy of the stream. InvalidArgumentError if
        this process is not at the home of a `regional` stream.
        """
        if stream.moving_to:
            before = stream.home
            stream = await self.upkeep.partitions.home_moves.give_up_abandoned(stream)
            if stream.home != before:
                raise UnavailableError(
                    f"the home of {stream.name} has just moved from {before} to {stream.home}"
                )
        self.check_is_at_home(stream)
        if stream.is_sealed:
            raise SealedError(f"{stream.name} is sealed: it takes no more records")
        if stream.placement.policy is PolicyKind.OWN:  # Before the earlier owner is fenced.
            self.upkeep.takeover.replicas.pool.nodes.own_policies.find(stream.placement.own)
        policy = RetentionPolicy(
            retention_s=stream.retention_s, retention_bytes=stream.retention_bytes
        )
        async with (
            open_background() as nursery,
            open_partition_writers(
                stream,
                number,
                who=self.who,
                catalog=self.upkeep.catalog,
                takeover=self.upkeep.takeover,
                config=self.config,
                wants_received=wants_received,
                now_us=self.upkeep.now_us,
                read_back=self.read_back,
                multicast=self.multicast,
            ) as owned,
        ):
            if stream.home is not None:
                nursery.start_soon(owned.follow_stream)
            if not policy.keeps_all:
                nursery.start_soon(
                    partial(
                        run_retention,
                        self.upkeep,
                        lambda: [one.name for one in owned.in_order],
                        policy,
                        every_s=self.config.retention_every_s,
                    )
                )
            yield owned
