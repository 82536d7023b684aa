"""One ledger at one storage node: what the node promises about it, and hence what it refuses.

Theory of operation. A message comes in; effects go out, to be performed in order.
`PersistOpen`, `PersistFence` and `PersistEntry` hand a record to the journal. A synced answer
may leave the node only after a sync that covers everything persisted before it, by this list of
effects or an earlier one. So a repeated request is never answered before the first is durable,
even while the first is still in flight. State changes when the record is handed over, not when
it is synced: later decisions follow it in the journal, and a node whose journal fails answers
nobody.

The replica does not hold the ledger's entries. It asks `held` what the node has of an entry.

Invariants.
1. `epoch_highest` and `lac` never fall; `is_fenced` never turns false (laws 6, 7, 12).
2. No add below `epoch_highest` is persisted. Once fenced, only recovery's adds are persisted,
   at any epoch.
3. Replaying the persisted records in journal order with `restore_…` gives the same state,
   except for a LAC that only `PushLac` or a repeated add carried.
4. A recovery add never moves the LAC.
5. A `Follow` reads nothing above the LAC.
6. Every request for a deleted ledger is refused (planted bug 10).
7. A ledger that was let go stays fenced, and its missing entries are never answered ABSENT: the
   node once had them (laws 5, 6, 7).

Rules: PROTOCOL N1 to N14.
"""

from collections.abc import Callable
from typing import assert_never

import attrs

from geolog.protocol.ids import NO_ENTRY, EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.messages import (
    Add,
    AddRefused,
    Answer,
    Fence,
    Fenced,
    Follow,
    LedgerOpened,
    Message,
    OpenLedger,
    Probe,
    PushLac,
    Read,
    ReadAnswer,
    Reason,
    Refused,
)

NO_EPOCH = Epoch(0)
"""Below the first epoch: the epoch of a ledger that the node does not know."""


@attrs.frozen
class Held:
    """The node's copy of one entry. Length and checksum identify the bytes, if it has any."""

    answer: Answer
    body_length: int = 0
    body_crc: int = 0


NOTHING_HELD = Held(Answer.ABSENT)


@attrs.frozen
class PersistOpen:
    """Journal that the ledger is known under this epoch; `is_first`: it surely was unknown."""

    ledger: LedgerId
    epoch: Epoch
    is_first: bool


@attrs.frozen
class PersistFence:
    """Journal that the ledger is fenced under this epoch; `is_first`: it surely was unknown.

    `is_let_go`: the node also gives up the ledger's entries.
    """

    ledger: LedgerId
    epoch: Epoch
    is_first: bool
    is_let_go: bool = False


@attrs.frozen
class PersistEntry:
    """Journal the entry of this add, under the add's epoch and with its LAC."""

    add: Add


@attrs.frozen
class Reply:
    """Answer at once: the answer does not depend on the disk."""

    message: Message


@attrs.frozen
class ReplySynced:
    """Answer once everything persisted so far is on disk."""

    message: Message


@attrs.frozen
class AcknowledgeAdd:
    """Count the add as stored once everything persisted so far is on disk."""

    ordinal: int


@attrs.frozen
class AnswerRead:
    """Look the entries up and answer; if `is_synced`, once all persisted so far is on disk."""

    read: Read
    is_synced: bool


@attrs.frozen
class AwaitLac:
    """Retry when the LAC is reached, the ledger fenced, or the time up, and answer then."""

    follow: Follow


@attrs.frozen
class AnswerProbe:
    """Look the answers up now, and send them once everything persisted so far is on disk.

    So HAVE means a copy that survives power loss. A probe for the LAC alone is answered at
    once.
    """

    probe: Probe


Effect = (
    PersistOpen
    | PersistFence
    | PersistEntry
    | Reply
    | ReplySynced
    | AcknowledgeAdd
    | AnswerRead
    | AwaitLac
    | AnswerProbe
)

LedgerRequest = OpenLedger | Fence | Add | Read | Follow | Probe | PushLac
"""Requests of a client about one ledger."""


@attrs.frozen
class NodeLimits:
    """Restrictions of the node as a whole."""

    is_read_only: bool = False
    """The disk is nearly full: no new entries or ledgers; fences and reads go on."""


NO_LIMITS = NodeLimits()


@attrs.define
class LedgerReplica:
    """One node's state of one ledger. It knows nothing until the first open or fence."""

    ledger: LedgerId
    instance: InstanceId
    epoch_highest: Epoch = NO_EPOCH
    is_fenced: bool = False
    lac: EntryId = NO_ENTRY
    entry_highest: EntryId = NO_ENTRY
    is_in_doubt: bool = False
    """Damage may have taken records of this ledger: a higher epoch, a fence, or entries."""
    is_let_go: bool = False
    """Its entries were given up here because others hold them; copies may be brought again."""
    is_deleted: bool = False
    """Deleted here. All is refused, for ever, because no fence of it outlives the deletion."""

    @property
    def is_known(self) -> bool:
        """Whether an open or a fence ever named the ledger here."""
        return self.epoch_highest > NO_EPOCH

    def on(
        self,
        request: LedgerRequest,
        held: Callable[[LedgerId, EntryId], Held],
        limits: NodeLimits = NO_LIMITS,
    ) -> list[Effect]:
        """Handle one request. The instance is checked before anything else (planted bug 11)."""
        if request.instance != self.instance:
            return self._refuse(request, Reason.WRONG_INSTANCE)
        if isinstance(request, OpenLedger | Fence) and request.epoch <= NO_EPOCH:
            return self._refuse(request, Reason.UNSUPPORTED)
        if self.is_deleted:
            return self._refuse(request, Reason.NO_SUCH_LEDGER)
        match request:
            case Add():
                return self._on_add(request, held, limits)
            case OpenLedger():
                return self._on_open(request, limits)
            case Fence():
                return self._on_fence(request)
            case Read():
                return self._on_read(request)
            case Follow():
                return self._on_follow(request)
            case Probe():
                return [AnswerProbe(request)]
            case PushLac():
                return self._on_push_lac(request)
            case _:
                assert_never(request)

    def let_go(self, epoch: Epoch) -> list[Effect]:
        """Give up the entries of a CLOSED ledger that other nodes hold; `epoch` is its last.

        Its fence and epoch stay. Afterwards only adds that bring copies as recovery does are
        taken.
        """
        assert epoch >= self.epoch_highest, f"epoch {epoch} is not the last epoch of {self}"
        if self.is_let_go and epoch == self.epoch_highest:
            return []
        self.restore_let_go(epoch)
        return [PersistFence(self.ledger, epoch, is_first=False, is_let_go=True)]

    def restore_let_go(self, epoch: Epoch) -> None:
        """Replay that the ledger was let go."""
        self.restore_fence(epoch)
        self.is_let_go = True

    def restore_open(self, epoch: Epoch) -> None:
        """Replay a `PersistOpen` from the journal."""
        self._raise_epoch(epoch)

    def restore_fence(self, epoch: Epoch) -> None:
        """Replay a `PersistFence` from the journal."""
        self._raise_epoch(epoch)
        self.is_fenced = True

    def restore_entry(
        self, entry: EntryId, epoch: Epoch, lac: EntryId, *, is_recovery: bool
    ) -> None:
        """Replay a `PersistEntry` from the journal."""
        self._raise_epoch(epoch)
        self.entry_highest = max(self.entry_highest, entry)
        if is_recovery:
            self.is_fenced = True
        else:
            self.lac = max(self.lac, lac)

    def _on_open(self, request: OpenLedger, limits: NodeLimits) -> list[Effect]:
        if self.is_fenced or request.epoch < self.epoch_highest:
            return self._refuse(request, Reason.FENCED)
        if request.epoch == self.epoch_highest and not self.is_in_doubt:
            return [ReplySynced(LedgerOpened(request.request))]
        if self._must_not_store(limits):
            return self._refuse(request, Reason.READ_ONLY)
        return [
            *self._persist_open(request.epoch),
            ReplySynced(LedgerOpened(request.request)),
        ]

    def _on_fence(self, request: Fence) -> list[Effect]:
        if request.epoch < self.epoch_highest:
            return self._refuse(request, Reason.FENCED)
        fenced = Fenced(request.request, self.lac, self.entry_highest)
        return [*self._persist_fence(request.epoch), ReplySynced(fenced)]

    def _on_read(self, request: Read) -> list[Effect]:
        if request.fence_epoch == NO_EPOCH:
            return [AnswerRead(request, is_synced=False)]
        if request.fence_epoch < self.epoch_highest:
            return self._refuse(request, Reason.FENCED)
        # Synced even if this epoch's fence was persisted before: it may still be in flight.
        return [
            *self._persist_fence(request.fence_epoch),
            AnswerRead(request, is_synced=True),
        ]

    def _on_follow(self, follow: Follow) -> list[Effect]:
        if not self.is_known:
            return self._refuse(follow, Reason.NO_SUCH_LEDGER)
        if self.lac >= follow.first and follow.count_max == 0:
            return [Reply(self._end_follow(follow))]
        if self.lac >= follow.first:
            return [AnswerRead(self._read_to_lac(follow), is_synced=False)]
        if self.is_fenced or follow.wait_ms == 0:
            return [Reply(self._end_follow(follow))]
        return [AwaitLac(follow)]

    def _end_follow(self, follow: Follow) -> ReadAnswer:
        """Answer without entries: time is over, none is to come, or none was requested."""
        return ReadAnswer(follow.request, self.lac, follow.first, (), is_fenced=self.is_fenced)

    def _read_to_lac(self, follow: Follow) -> Read:
        return Read(
            follow.request,
            follow.ledger,
            follow.first,
            count_max=min(follow.count_max, self.lac - follow.first + 1),
            bytes_max=follow.bytes_max,
            answers_max=1,
            fence_epoch=NO_EPOCH,
            instance=follow.instance,
        )

    def _persist_open(self, epoch: Epoch) -> list[Effect]:
        is_first = self._is_surely_unknown()
        self.restore_open(epoch)
        return [PersistOpen(self.ledger, epoch, is_first)]

    def _persist_fence(self, epoch: Epoch) -> list[Effect]:
        if self.is_fenced and epoch == self.epoch_highest:
            return []  # The same recoverer asks again.
        is_first = self._is_surely_unknown()
        self.restore_fence(epoch)
        return [PersistFence(self.ledger, epoch, is_first)]

    def _is_surely_unknown(self) -> bool:
        return not self.is_known and not self.is_in_doubt

    def _on_add(
        self, add: Add, held: Callable[[LedgerId, EntryId], Held], limits: NodeLimits
    ) -> list[Effect]:
        if not self.is_known:
            return self._refuse(add, Reason.NO_SUCH_LEDGER)
        if add.epoch < self.epoch_highest or (self.is_fenced and not add.is_recovery):
            return self._refuse(add, Reason.FENCED)
        if add.entry <= self.entry_highest or self.is_in_doubt:
            already = held(self.ledger, add.entry)
        else:
            already = NOTHING_HELD  # Above everything ever stored: no need to look.
        if already.answer is Answer.HAVE:
            return self._on_repeated_add(add, already)
        if self._must_not_store(limits, is_recovery=add.is_recovery):
            return self._refuse(add, Reason.READ_ONLY)
        return self._store(add)

    def _on_repeated_add(self, add: Add, already: Held) -> list[Effect]:
        # Equal length and CRC32C stand for equal bytes: no writer forges a collision.
        if (len(add.body), add.body_crc) != (already.body_length, already.body_crc):
            return self._refuse(add, Reason.CONFLICT)
        # The bytes are here, but the epoch, fence or LAC that the add implies may not be.
        promise: list[Effect] = []
        if add.is_recovery:
            promise = self._persist_fence(add.epoch)
        elif add.epoch > self.epoch_highest:
            promise = self._persist_open(add.epoch)
        if not add.is_recovery:
            self.lac = max(self.lac, add.lac)
        return [*promise, AcknowledgeAdd(add.ordinal)]

    def _store(self, add: Add) -> list[Effect]:
        self.restore_entry(add.entry, add.epoch, add.lac, is_recovery=add.is_recovery)
        return [PersistEntry(add), AcknowledgeAdd(add.ordinal)]

    def _on_push_lac(self, request: PushLac) -> list[Effect]:
        if self.is_known and not self.is_fenced and request.epoch == self.epoch_highest:
            self.lac = max(self.lac, request.lac)
        return []

    def _must_not_store(self, limits: NodeLimits, *, is_recovery: bool = False) -> bool:
        # A lost record may have fenced a ledger in doubt. Recovery's adds are safe even then.
        return limits.is_read_only or (self.is_in_doubt and not is_recovery)

    def _raise_epoch(self, epoch: Epoch) -> None:
        self.epoch_highest = max(self.epoch_highest, epoch)

    def _refuse(self, request: LedgerRequest, reason: Reason) -> list[Effect]:
        match request:
            case Add(ordinal=ordinal):
                return [Reply(AddRefused(ordinal, reason, self.epoch_highest))]
            case PushLac():
                return []
            case _:
                message = self._explain(reason)
                return [Reply(Refused(request.request, reason, self.epoch_highest, message))]

    def _explain(self, reason: Reason) -> str:
        match reason:
            case Reason.WRONG_INSTANCE:
                return f"this node is {self.instance}, not the instance that the request names"
            case Reason.READ_ONLY:
                return f"ledger {self.ledger}: this node is read-only and stores nothing new"
            case Reason.UNSUPPORTED:
                return f"ledger {self.ledger}: the epoch must be >= 1"
            case Reason.NO_SUCH_LEDGER if self.is_deleted:
                return f"ledger {self.ledger} was deleted at this node for good"
            case Reason.NO_SUCH_LEDGER:
                return f"ledger {self.ledger} was never opened at this node"
            case _:
                fenced = " and is fenced" if self.is_fenced else ""
                return f"ledger {self.ledger} is at epoch {self.epoch_highest}{fenced} here"
