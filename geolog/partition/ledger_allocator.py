"""Where a partition's next ledger comes from, and where its last one goes.

Nodes are chosen, the record is made, the members are made ready: then a ledger is one multi
from being written. One that is done with is watched for a moment more, to see whether all of
its copies arrive.
"""

import random
from collections.abc import Collection
from contextlib import suppress
from functools import partial

import trio

from geolog.catalog.partition_config import PartitionConfig
from geolog.ledger.ledger_metadata import LedgerMetadata, VersionedLedger
from geolog.ledger.nodes.cluster_nodes import ClusterSnapshot
from geolog.ledger.nodes.node_choice import choose_nodes
from geolog.ledger.nodes.node_pool import NodePool
from geolog.ledger.writing.ensemble_keeper import EnsembleKeeper
from geolog.ledger.writing.ledger_writer import LedgerListener, LedgerWriter
from geolog.ledger.writing.replacement_finder import ReplacementFinder
from geolog.metadata.repair_queue import RepairReason
from geolog.partition.prepared_ledger import EarlyLedger, NullListener, PreparedLedger
from geolog.protocol.ids import NO_ENTRY, EntryId, InstanceId
from geolog.protocol.ledger_state import Fragment
from geolog.protocol.stream_state import PartitionName, StreamRecord
from topology.errors import GeologError, NotEnoughNodesError
from topology.policy import Placement, PlacementRequest
from topology.promise import policy_keeping, promise_broken
from topology.ring.window_rule import Adherence
from topology.stream_policy import policy_of
from topology.survive import Loss
from topology.switches import PlacementSwitches

_DISCARD_S = 2.0
"""How long forgetting a ledger may take; if metadata is away it stays, and harms nobody."""


class LedgerAllocator:
    """Makes ledgers for one partition."""

    def __init__(
        self,
        name: PartitionName,
        stream: StreamRecord,
        *,
        ledgers: LedgerMetadata,
        pool: NodePool,
        region: str | None,
        rng: random.Random,
        nursery: trio.Nursery,
        config: PartitionConfig,
        wants_received: bool = False,
    ) -> None:
        self._name = name
        self._quorum = stream.quorum
        self._terms = stream.placement
        self._survive = stream.survive
        self._loss = Loss.parse(stream.survive) if stream.survive else None
        self._ledgers = ledgers
        self._pool = pool
        self._region = region
        self._rng = rng
        self._nursery = nursery
        self._config = config
        self._wants_received = wants_received
        self._writers: list[LedgerWriter] = []
        self.is_undecided = False
        """Whether the search for a better ensemble was cut off when one was last looked for."""
        self._early: EarlyLedger | None = None
        self._finder = ReplacementFinder(
            pool, region=region, rng=rng, patience_s=2 * config.member_patience_s
        )

    def close(self) -> None:
        """Close all writers of ledgers that were made here."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    def keeper(self, ledger: VersionedLedger, writer: LedgerWriter) -> EnsembleKeeper:
        """Who keeps a ledger that was made here writable, from when it is OPEN."""
        return EnsembleKeeper(
            ledger,
            writer,
            ledgers=self._ledgers,
            finder=self._finder,
            add_timeout_s=self._config.add_timeout_s,
            member_away_s=self._config.better_ledger_s,
            patience_s=self._config.member_patience_s,
        )

    async def prepare(
        self, listener: LedgerListener, *, avoid: Collection[InstanceId] = ()
    ) -> PreparedLedger:
        """Make the next ledger; members in `avoid`, or out of reach, only if there is no other.

        NotEnoughNodesError when no ensemble can be placed, or too few of it answer.
        """
        seen = await self._pool.nodes.look(self._region)
        avoided = {*avoid, *self._finder.avoided()}
        try:
            placement = await self._place(seen, avoided)
        except NotEnoughNodesError:
            if not avoided:
                raise
            placement = await self._place(seen, ())
        return await self._prepare_at(placement, seen, listener)

    def prepare_early_nowait(self) -> None:
        """Begin to make the first ledger before there is an owner to write it."""
        self._early = EarlyLedger(partial(self._prepare_first, NullListener()), self.discard)
        self._nursery.start_soon(self._early.run, name=f"early ledger of {self._name}")

    async def give_up(self) -> None:
        """There is no owner, and will be none: forget the ledger that was made early."""
        await self.discard_early()
        self.close()

    async def discard_early(self) -> None:
        """Forget the ledger that was made early, if no owner wrote it."""
        if self._early is not None:
            await self._early.give_up()

    async def prepare_first(self, listener: LedgerListener) -> PreparedLedger:
        """The first ledger of an owner: the one that was made early, if it lacks no member.

        Who has taken the partition over knows by then which nodes are away: then another is
        made, if there are nodes for it.
        """
        early = None if self._early is None else await self._early.take()
        if early is None:
            return await self._prepare_first(listener)
        if early.writer.instances_missing():
            try:
                whole = await self._prepare_first(listener)
            except NotEnoughNodesError:
                if not early.writer.can_go_on():
                    raise
            else:
                self.discard_soon(early)
                return whole
        early.writer.tell(listener)
        return early

    async def _prepare_first(self, listener: LedgerListener) -> PreparedLedger:
        """Make a ledger for an owner who does not know yet which nodes are away.

        It is tried again as long as that tells of nodes that are better avoided.
        """
        while True:
            avoided = self._finder.avoided()
            try:
                return await self.prepare(listener)
            except NotEnoughNodesError:
                if self._finder.avoided() <= avoided:
                    raise

    async def prepare_better(
        self,
        listener: LedgerListener,
        *,
        than: Fragment,
        adherence: Adherence,
        avoid: Collection[InstanceId],
    ) -> PreparedLedger | None:
        """Make the next ledger if one fits that is placed better, with all members up.

        That is one that adheres strictly, or keeps what the stream was promised to survive, and
        `than`, which adheres so, does not; or one of no forbidden region instead of one with
        such. None when there is none without the members in `avoid` and those out of reach.
        """
        seen = await self._pool.nodes.look(self._region)
        try:
            placement = await self._place(seen, {*avoid, *self._pool.unreachable()})
        except NotEnoughNodesError:
            return None
        found = Fragment(EntryId(0), tuple(seen.member(node) for node in placement.nodes))
        is_better = self._rank(found, placement.adherence) > self._rank(than, adherence)
        if not is_better and not self.is_forbidden(than):
            return None
        prepared = await self._prepare_at(placement, seen, listener)
        if prepared.writer.instances_missing():
            await self.discard(prepared)
            return None
        return prepared

    def is_forbidden(self, fragment: Fragment) -> bool:
        """Whether a member of the ensemble stands in a region where nothing new is placed."""
        forbidden = self._pool.nodes.switches.forbidden_regions
        return any(member.location.region in forbidden for member in fragment.ensemble)

    def keeps_promise(self, fragment: Fragment) -> bool:
        """Whether an ensemble survives as many regions as the stream was promised to.

        A policy's STRICT speaks of the loss of one. What was chosen while a region was away may
        be strict, and yet not survive another region and a node.
        """
        if self._loss is None or self._loss.kind != "region":
            return True
        places = tuple(member.location for member in fragment.ensemble)
        return promise_broken(self._loss, self._quorum, places) is None

    def _rank(self, fragment: Fragment, adherence: Adherence) -> int:
        if adherence is not Adherence.STRICT:
            return 0
        return 2 if self.keeps_promise(fragment) else 1

    @property
    def switches(self) -> PlacementSwitches:
        """What is forbidden now."""
        return self._pool.nodes.switches

    async def _prepare_at(
        self,
        placement: Placement,
        seen: ClusterSnapshot,
        listener: LedgerListener,
    ) -> PreparedLedger:
        members = tuple(seen.member(node) for node in placement.nodes)
        ledger = await self._ledgers.allocate(
            self._quorum,
            Fragment(EntryId(0), members),
            stream=str(self._name),
            placement=self._terms,
        )
        writer = LedgerWriter(
            self._pool,
            ledger.record,
            listener,
            nursery=self._nursery,
            lac=NO_ENTRY,
            wants_received=self._wants_received,
        )
        self._writers = [one for one in self._writers if not one.is_closed] + [writer]
        prepared = PreparedLedger(
            ledger, writer, placement.adherence, made_s=trio.current_time()
        )
        try:
            await writer.open(patience_s=self._config.member_patience_s)
        except GeologError:
            self._finder.avoid(writer.instances_missing())
            await self.discard(prepared)
            raise
        return prepared

    async def discard(self, prepared: PreparedLedger) -> None:
        """Forget a ledger that will not be activated: tried again and again, they add up."""
        prepared.writer.close()
        with trio.move_on_after(_DISCARD_S), suppress(GeologError):
            await self._ledgers.forget(prepared.ledger)

    def discard_soon(self, prepared: PreparedLedger) -> None:
        """The same, without waiting for it."""
        prepared.writer.close()
        self._nursery.start_soon(self.discard, prepared)

    async def retire(self, writer: LedgerWriter, last_entry: EntryId) -> None:
        """See whether all copies arrive of a ledger that was CLOSED; if not, that is noted."""
        try:
            await writer.wait_copies(last_entry, patience_s=self._config.copies_patience_s)
        finally:
            writer.close()
            if writer.copies_missing(last_entry):
                self._ledgers.report_nowait(writer.record.ledger, RepairReason.COPIES_MISSING)

    def retire_soon(self, writer: LedgerWriter, last_entry: EntryId) -> None:
        """The same, without waiting for it."""
        self._nursery.start_soon(self.retire, writer, last_entry)

    async def _place(self, seen: ClusterSnapshot, avoided: Collection[InstanceId]) -> Placement:
        quorum = self._quorum
        request = PlacementRequest(
            ensemble_size=quorum.ensemble_size,
            write_quorum=quorum.write_quorum,
            ack_quorum=quorum.ack_quorum,
            exclude=seen.excluded(avoided),
            now_s=seen.now_s,
        )
        policy = policy_of(self._terms, quorum, seen.place)
        keeping = policy_keeping(policy, self._survive)
        if keeping is not policy:
            with suppress(NotEnoughNodesError):
                new_ensemble = partial(keeping.new_ensemble, seen.members, request)
                placed = await choose_nodes(quorum.ensemble_size, new_ensemble, self._rng)
                if placed.adherence is Adherence.STRICT:
                    self.is_undecided = False
                    return placed
        new_ensemble = partial(policy.new_ensemble, seen.members, request)
        placed = await choose_nodes(quorum.ensemble_size, new_ensemble, self._rng)
        self.is_undecided = placed.is_undecided
        return placed
