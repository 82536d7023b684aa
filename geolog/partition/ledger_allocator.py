"""Making a partition's next ledgers, and watching over those that were just closed.

To make a ledger: choose nodes, write its record, open it at its members. After that, one multi
makes it the open ledger. A closed ledger is watched a little longer, until all of its copies
have arrived or the wait is over.
"""

import random
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from functools import partial
from typing import TypeVar

import attrs
import trio

from geolog.catalog.partition_config import PartitionConfig
from geolog.ledger.ledger_metadata import LedgerMetadata, VersionedLedger
from geolog.ledger.nodes.cluster_nodes import ClusterSnapshot
from geolog.ledger.nodes.node_choice import choose_nodes
from geolog.ledger.replicas.replicas import Replicas
from geolog.ledger.writing.ensemble_keeper import EnsembleKeeper
from geolog.ledger.writing.greeting import greet_members
from geolog.ledger.writing.ledger_writer import LedgerListener, LedgerWriter
from geolog.ledger.writing.replacement_finder import ReplacementFinder
from geolog.metadata.repair_queue import RepairReason
from geolog.partition.prepared_ledger import AllocatedLedger, EarlyLedger, PreparedLedger
from geolog.protocol.ids import NO_ENTRY, EntryId, InstanceId
from geolog.protocol.ledger_state import Fragment
from geolog.protocol.stream_state import PartitionName, StreamRecord
from topology.errors import GeologError, NotEnoughNodesError
from topology.membership import NodeUse
from topology.policies.in_region import InRegion
from topology.policy import Placement, PlacementRequest
from topology.promise import policy_keeping, promise_broken
from topology.ring.window_rule import Adherence
from topology.stream_policy import policy_of
from topology.survive import Loss
from topology.switches import PlacementSwitches

_DISCARD_S = 2.0
"""Bound on forgetting a ledger. If metadata is away the record stays, and does no harm."""

_Made = TypeVar("_Made")


class LedgerAllocator:
    """Makes ledgers for one partition."""

    def __init__(
        self,
        name: PartitionName,
        stream: StreamRecord,
        *,
        ledgers: LedgerMetadata,
        replicas: Replicas,
        region: str | None,
        rng: random.Random,
        nursery: trio.Nursery,
        config: PartitionConfig,
        wants_received: bool = False,
    ) -> None:
        self._name = name
        self._quorum = stream.quorum
        self._terms = stream.placement_of(name)
        self._survive = stream.survive
        self._loss = Loss.parse(stream.survive) if stream.survive else None
        self._ledgers = ledgers
        self._pool = replicas.pool
        self._region = region
        self._rng = rng
        self._nursery = nursery
        self._config = config
        self._wants_received = wants_received
        self._writers: list[LedgerWriter] = []
        self.is_undecided = False
        """Whether the last search for an ensemble was cut off before it found a STRICT one."""
        self._early: EarlyLedger | None = None
        self._replicas = replicas.within(config.member_patience_s)
        self._finder = ReplacementFinder(
            replicas, region=region, rng=rng, patience_s=2 * config.member_patience_s
        )

    def close(self) -> None:
        """Close the writers of all ledgers that were made here."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    def want_received(self) -> None:
        """Ask members of all ledgers made here for answers from memory, too."""
        self._wants_received = True
        for writer in self._writers:
            writer.want_received()

    def keeper(self, ledger: VersionedLedger, writer: LedgerWriter) -> EnsembleKeeper:
        """The object that keeps a ledger made here writable, once it is OPEN."""
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
        """Make the next ledger; use members in `avoid`, or out of reach, only if needed.

        NotEnoughNodesError if no ensemble can be placed, or too few of its members answer.
        """
        return await self._open(await self._allocate(avoid), listener)

    def prepare_early_nowait(self) -> None:
        """Start to make the first ledger, before there is an owner to write it."""
        make = partial(self._first, self._greet_early)
        self._early = EarlyLedger(make, self._forget)
        self._nursery.start_soon(self._early.run, name=f"early ledger of {self._name}")

    async def give_up(self) -> None:
        """Forget the ledger that was made early: the partition was not taken over."""
        await self.discard_early()
        self.close()

    async def discard_early(self) -> None:
        """Forget the ledger that was made early, unless an owner has taken it."""
        if self._early is not None:
            await self._early.give_up()

    async def prepare_first(self, listener: LedgerListener) -> PreparedLedger:
        """The first ledger of an owner: the early one if all its members are there.

        By now the owner knows which nodes are away. If a member of the early ledger is missing,
        it makes another ledger, provided that there are nodes for it.
        """
        early = None if self._early is None else await self._early.take()
        if early is None:
            return await self._first(partial(self.prepare, listener))
        if early.instances_missing():
            with suppress(NotEnoughNodesError):
                whole = await self._first(partial(self.prepare, listener))
                self._nursery.start_soon(self._forget, early.ledger)
                return whole
        return await self._open(early, listener)

    async def _first(self, make: Callable[[], Awaitable[_Made]]) -> _Made:
        """Make a ledger for an owner that does not yet know which nodes are away.

        Retries for as long as each failure reveals more nodes to avoid.
        """
        while True:
            avoided = self._finder.avoided()
            try:
                return await make()
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
        """Make the next ledger if a better placement exists, with all members up; else None.

        Better than `than`, whose adherence is `adherence`: STRICT where `than` is not, or
        keeping the stream's promise where `than` does not, or free of forbidden regions where
        `than` is not. Members in `avoid`, and nodes out of reach, are not used.
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
        prepared = await self._open(await self._allocate_at(placement, seen), listener)
        if prepared.writer.instances_missing():
            await self.discard(prepared)
            return None
        return prepared

    def is_forbidden(self, fragment: Fragment) -> bool:
        """Whether a member of the ensemble is in a region where placement is forbidden."""
        forbidden = self._pool.nodes.switches.forbidden_regions
        return any(member.location.region in forbidden for member in fragment.ensemble)

    def keeps_promise(self, fragment: Fragment) -> bool:
        """Whether an ensemble survives losing as many regions as the stream was promised.

        STRICT speaks of losing one region only. An ensemble that was chosen while a region was
        away may be STRICT, and still not survive losing another region and a node.
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
        """The regions where placement is forbidden at present."""
        return self._pool.nodes.switches

    async def _allocate(self, avoid: Collection[InstanceId] = ()) -> AllocatedLedger:
        seen = await self._pool.nodes.look(self._region)
        avoided = {*avoid, *self._finder.avoided()}
        try:
            placement = await self._place(seen, avoided)
        except NotEnoughNodesError:
            if not avoided:
                raise
            placement = await self._place(seen, ())
        return await self._allocate_at(placement, seen)

    async def _allocate_at(
        self, placement: Placement, seen: ClusterSnapshot
    ) -> AllocatedLedger:
        members = tuple(seen.member(node) for node in placement.nodes)
        ledger = await self._ledgers.allocate(
            self._quorum,
            Fragment(EntryId(0), members),
            stream=str(self._name),
            placement=self._terms,
        )
        return AllocatedLedger(ledger, placement.adherence, trio.current_time())

    async def _greet_early(self) -> AllocatedLedger:
        """Make a ledger, and tell its members of it."""
        allocated = await self._allocate()
        record = allocated.ledger.record
        ensemble = record.fragments[-1].ensemble
        known_over = await greet_members(self._replicas, record, ensemble)
        greeted = attrs.evolve(allocated, known_over=known_over)
        if not greeted.can_go_on():
            missing = greeted.instances_missing()
            self._finder.avoid(missing)
            await self._forget(allocated.ledger)
            raise NotEnoughNodesError(
                f"ledger {record.ledger} cannot be written: no answer from"
                f" {', '.join(one.node_id for one in ensemble if one.instance in missing)}"
            )
        return greeted

    async def _open(
        self, allocated: AllocatedLedger, listener: LedgerListener
    ) -> PreparedLedger:
        writer = LedgerWriter(
            self._pool,
            allocated.ledger.record,
            listener,
            nursery=self._nursery,
            lac=NO_ENTRY,
            wants_received=self._wants_received,
            known_over=allocated.known_over,
        )
        self._writers = [one for one in self._writers if not one.is_closed] + [writer]
        prepared = PreparedLedger(
            allocated.ledger, writer, allocated.adherence, allocated.made_s
        )
        try:
            await writer.open(patience_s=self._config.member_patience_s)
        except GeologError:
            self._finder.avoid(writer.instances_missing())
            await self.discard(prepared)
            raise
        return prepared

    async def discard(self, prepared: PreparedLedger) -> None:
        """Forget a ledger that will not be activated: unused records would add up."""
        prepared.writer.close()
        await self._forget(prepared.ledger)

    async def _forget(self, ledger: VersionedLedger) -> None:
        with trio.move_on_after(_DISCARD_S), suppress(GeologError):
            await self._ledgers.forget(ledger)

    def discard_soon(self, prepared: PreparedLedger) -> None:
        """Discard it in the background."""
        prepared.writer.close()
        self._nursery.start_soon(self.discard, prepared)

    async def retire(self, writer: LedgerWriter, last_entry: EntryId) -> None:
        """Wait until all copies of a CLOSED ledger have arrived; if some do not, queue it."""
        try:
            await writer.wait_copies(last_entry, patience_s=self._config.copies_patience_s)
        finally:
            writer.close()
            if writer.copies_missing(last_entry):
                self._ledgers.report_nowait(writer.record.ledger, RepairReason.COPIES_MISSING)

    def retire_soon(self, writer: LedgerWriter, last_entry: EntryId) -> None:
        """Retire it in the background."""
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
        try:
            placed = await choose_nodes(quorum.ensemble_size, new_ensemble, self._rng)
        except NotEnoughNodesError as error:
            usable = (
                seen.members.only_in(policy.region)
                if isinstance(policy, InRegion)
                else seen.members
            )
            if full_count := usable.count_of(NodeUse.READONLY):
                raise type(error)(
                    f"{error}; {full_count} more are up but read-only, as nodes are whose disks"
                    " are nearly full: free space on them (geolog node ls), or add nodes"
                ) from None
            raise
        self.is_undecided = placed.is_undecided
        return placed
