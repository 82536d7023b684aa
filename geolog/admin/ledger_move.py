"""Moving the slots of one ledger from a replaced instance to its successor.

Fragment by fragment the successor gets every copy that it should have, and confirms them. Only
then does it take the slot, by one compare-and-set of the ledger's record.

Rules: PROTOCOL C3.
"""

import attrs
import trio

from geolog.admin.cluster_access import ClusterAccess
from geolog.admin.placement.fragment_change import FragmentChange
from geolog.ledger.copying.copier import Copier
from geolog.ledger.ledger_metadata import NoSuchLedgerError, VersionedLedger
from geolog.ledger.writing.ledger_placement import adherence_as_recorded
from geolog.metadata.nodes import NodeRecord
from geolog.protocol.copying import FragmentExtent, final_extents, with_member
from geolog.protocol.ids import InstanceId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState, Member
from topology.placement import adherence_of
from topology.ring.window_rule import Adherence, rank_of
from topology.stream_policy import PolicyKind

_ATTEMPTS_MAX = 3
"""How often to try a ledger whose nodes do not answer."""

_RETRY_S = 1.0
"""Pause between tries: a link may be down for a moment, a node may just be starting."""


@attrs.frozen(kw_only=True)
class LedgerRemaining:
    """A ledger that still has the old instance as a member, and the reason."""

    ledger: int
    stream: str
    state: str
    why: str
    may_pass: bool
    """Whether waiting may help: nodes are away, or a writer has not replaced the member yet."""


@attrs.frozen
class _Hindrance:
    """The reason why a fragment cannot be moved now."""

    why: str
    may_pass: bool = False


class LedgerMove:
    """Moves one ledger's slots from instances that are gone to their successor."""

    def __init__(
        self,
        access: ClusterAccess,
        copier: Copier,
        ledger: LedgerId,
        gone: set[InstanceId],
        successor: NodeRecord,
    ) -> None:
        self._access = access
        self._change = FragmentChange(access, copier)
        self._ledger = ledger
        self._gone = gone
        self._new = Member(successor.instance, successor.node_id, successor.location)
        self.fragments_changed = 0
        self.warnings: list[str] = []

    async def run(self) -> LedgerRemaining | None:
        """Move as many slots as possible; what remains, if anything."""
        try:
            read, hindrances = await self._move_fragments()
            for _ in range(_ATTEMPTS_MAX - 1):
                if not any(one.may_pass for one in hindrances.values()):
                    break
                await trio.sleep(_RETRY_S)
                read, hindrances = await self._move_fragments()
        except NoSuchLedgerError:
            return None  # It was deleted.
        return self._remaining(read.record, hindrances)

    async def _move_fragments(self) -> tuple[VersionedLedger, dict[int, _Hindrance]]:
        """Go through all final fragments; the new record, and the hindrances by fragment."""
        hindrances: dict[int, _Hindrance] = {}
        while True:
            read = await self._access.ledgers.read_latest(self._ledger)
            extent = next(
                (
                    one
                    for one in final_extents(read.record)
                    if one.index not in hindrances and self._slot_in(one) is not None
                ),
                None,
            )
            if extent is None:
                return read, hindrances
            hindrance = await self._move(read, extent)
            if hindrance is not None:
                hindrances[extent.index] = hindrance

    def _slot_in(self, extent: FragmentExtent) -> int | None:
        """The first slot of an old instance in the fragment."""
        slots = [extent.slot_of(instance) for instance in self._gone]
        return min((slot for slot in slots if slot is not None), default=None)

    def _remaining(
        self, record: LedgerRecord, hindrances: dict[int, _Hindrance]
    ) -> LedgerRemaining | None:
        last_members = {member.instance for member in record.fragments[-1].ensemble}
        is_open = record.state is not LedgerState.CLOSED and bool(last_members & self._gone)
        if not hindrances and not is_open:
            return None
        whys = [f"fragment {index}: {one.why}" for index, one in sorted(hindrances.items())]
        if is_open:
            whys.append(
                f"its last fragment is {record.state.value}: its writer replaces the member, or"
                " the end of the segment closes it; `geolog ledger recover"
                f" {record.ledger}` closes it now"
            )
        return LedgerRemaining(
            ledger=record.ledger,
            stream=record.stream,
            state=record.state.value,
            why="; ".join(whys),
            may_pass=all(one.may_pass for one in hindrances.values()),
        )

    async def _move(self, read: VersionedLedger, extent: FragmentExtent) -> _Hindrance | None:
        """Move one slot of one fragment; the hindrance, if it cannot be moved now."""
        slot = self._slot_in(extent)
        assert slot is not None
        gone = extent.fragment.ensemble[slot].instance
        if extent.slot_of(self._new.instance) is not None:
            return _Hindrance(
                f"node {self._new.node_id} is already a member; name another (--with NODE_ID)"
            )
        hindrance = self._judge_placement(
            read.record, extent, with_member(extent, gone, self._new)
        )
        if hindrance is not None:
            return hindrance
        changes = {slot: self._new}
        outcome = await self._change.make(
            read, extent, changes, answering=(), given_up=self._gone
        )
        self.warnings += outcome.warnings
        if outcome.is_made:
            self.fragments_changed += 1
        if outcome.is_made or outcome.is_overtaken:
            return None  # If the record changed, look at it again.
        if outcome.is_refused:
            return _Hindrance(f"{outcome.why}; name another node (--with NODE_ID)")
        return _Hindrance(outcome.why, may_pass=outcome.may_pass)

    def _judge_placement(
        self, record: LedgerRecord, before: FragmentExtent, after: FragmentExtent
    ) -> _Hindrance | None:
        """Warn if placement gets worse; refuse it if a write set would have no ack set."""
        if not _holds_acks(record, after) and _holds_acks(record, before):
            return _Hindrance(
                f"with node {self._new.node_id} in {self._new.location.region} it would not"
                " span enough regions; name another node (--with NODE_ID)"
            )
        own = self._access.pool.nodes.own_policies
        was = adherence_as_recorded(record, before.fragment, own)
        will_be = adherence_as_recorded(record, after.fragment, own)
        if rank_of(will_be) < rank_of(was):
            self.warnings.append(
                f"ledger {record.ledger}: with node {self._new.node_id} in"
                f" {self._new.location}, fragment {before.index} {_lost_by(record, will_be)}"
            )
        return None


def _holds_acks(record: LedgerRecord, extent: FragmentExtent) -> bool:
    """Whether every write set has an ack set, regardless of the policy."""
    regions = [member.location.region for member in extent.fragment.ensemble]
    return adherence_of(record.quorum, regions) is not Adherence.FAIL


def _lost_by(record: LedgerRecord, will_be: Adherence) -> str:
    """The loss in placement, as the end of a warning."""
    if record.placement.policy is PolicyKind.REGION_AWARE:
        return "would not keep an ack set after losing any one region"
    return f"would meet its policy {record.placement} less well: {will_be.value}"
