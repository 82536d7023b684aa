"""The replica against a second implementation that remembers everything it accepted."""

import attrs
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import NO_ENTRY, EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.messages import Add, Answer, Fence, Follow, OpenLedger, PushLac, Read
from geolog.protocol.replica import (
    NOTHING_HELD,
    AcknowledgeAdd,
    AnswerRead,
    AwaitLac,
    Effect,
    Held,
    LedgerReplica,
    LedgerRequest,
    PersistEntry,
    PersistFence,
    PersistOpen,
    Reply,
)

HERE = InstanceId("a" * 32)
LEDGER = LedgerId(7)

epochs = st.integers(1, 4).map(Epoch)
entries = st.integers(0, 3).map(EntryId)
bodies = st.sampled_from([b"x", b"y"])


def add_of(entry: EntryId, epoch: Epoch, lac: int, recovery: bool, body: bytes) -> Add:  # noqa: FBT001 - drawn
    # The body itself serves as its checksum: the core only compares it.
    return Add(
        0,
        LEDGER,
        entry,
        epoch,
        EntryId(lac),
        is_recovery=recovery,
        wants_received=False,
        instance=HERE,
        body=body,
        body_crc=body[0],
    )


requests: st.SearchStrategy[LedgerRequest] = st.one_of(
    st.builds(lambda epoch: OpenLedger(0, LEDGER, epoch, HERE), epochs),
    st.builds(lambda epoch: Fence(0, LEDGER, epoch, HERE), epochs),
    st.builds(lambda epoch: Read(0, LEDGER, EntryId(0), 1, 1, 1, epoch, HERE), epochs),
    st.builds(lambda epoch, lac: PushLac(LEDGER, epoch, lac, HERE), epochs, entries),
    st.builds(add_of, entries, epochs, st.integers(-1, 3), st.booleans(), bodies),
    st.builds(add_of, entries, epochs, st.integers(-1, 3), st.booleans(), bodies),
)


@attrs.define
class NaiveNode:
    """Keeps everything it accepted, and searches all of it for every question."""

    accepted: list[LedgerRequest] = attrs.field(factory=list)

    def accepts(self, request: LedgerRequest) -> bool:
        known = any(isinstance(old, OpenLedger | Fence | Read) for old in self.accepted)
        fenced = any(
            isinstance(old, Fence | Read) or (isinstance(old, Add) and old.is_recovery)
            for old in self.accepted
        )
        if isinstance(request, PushLac):
            is_ok = known and not fenced and self.epoch_of(request) == self.epoch_highest()
        elif isinstance(request, Add):
            adds = [old for old in self.accepted if isinstance(old, Add)]
            same = [old for old in adds if old.entry == request.entry]
            is_ok = known and self.epoch_of(request) >= self.epoch_highest()
            is_ok = is_ok and (request.is_recovery or not fenced)
            is_ok = is_ok and all(old.body == request.body for old in same)
        elif isinstance(request, OpenLedger):
            is_ok = not fenced and self.epoch_of(request) >= self.epoch_highest()
        else:
            is_ok = self.epoch_of(request) >= self.epoch_highest()
        if is_ok:
            self.accepted.append(request)
        return is_ok

    def epoch_highest(self) -> int:
        return max((self.epoch_of(old) for old in self.accepted), default=0)

    def lac(self) -> int:
        writers = [
            old.lac
            for old in self.accepted
            if isinstance(old, PushLac) or (isinstance(old, Add) and not old.is_recovery)
        ]
        return max(writers, default=NO_ENTRY)

    @staticmethod
    def epoch_of(request: LedgerRequest) -> int:
        match request:
            case Read(fence_epoch=epoch):
                return epoch
            case OpenLedger() | Fence() | Add() | PushLac():
                return request.epoch
            case _:
                raise AssertionError(request)


@attrs.define
class Journal:
    """Everything that the effects persisted, in order."""

    effects: list[PersistOpen | PersistFence | PersistEntry] = attrs.field(factory=list)

    def held(self, _ledger: LedgerId, entry: EntryId) -> Held:
        for effect in reversed(self.effects):
            if isinstance(effect, PersistEntry) and effect.add.entry == entry:
                return Held(Answer.HAVE, len(effect.add.body), effect.add.body_crc)
        return NOTHING_HELD

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, PersistOpen | PersistFence | PersistEntry):
                self.effects.append(effect)

    def replayed(self) -> LedgerReplica:
        replica = LedgerReplica(LEDGER, HERE)
        for effect in self.effects:
            match effect:
                case PersistOpen(epoch=epoch):
                    replica.restore_open(epoch)
                case PersistFence(epoch=epoch, is_let_go=True):
                    replica.restore_let_go(epoch)
                case PersistFence(epoch=epoch):
                    replica.restore_fence(epoch)
                case PersistEntry(add=add):
                    replica.restore_entry(
                        add.entry, add.epoch, add.lac, is_recovery=add.is_recovery
                    )
        return replica


def is_refusal(effects: list[Effect]) -> bool:
    return any(isinstance(effect, Reply) for effect in effects)


@given(st.lists(requests, max_size=30))
def test_the_replica_agrees_with_the_node_that_remembers_everything(
    history: list[LedgerRequest],
) -> None:
    replica, journal, naive = LedgerReplica(LEDGER, HERE), Journal(), NaiveNode()

    for request in history:
        effects = replica.on(request, journal.held)
        journal.take(effects)
        is_accepted = naive.accepts(request)
        if not isinstance(request, PushLac):
            assert is_refusal(effects) == (not is_accepted)
        assert replica.epoch_highest == naive.epoch_highest()
        assert replica.lac == naive.lac()


@given(st.lists(requests, max_size=30))
def test_replaying_the_journal_gives_the_same_replica_except_for_the_lac(
    history: list[LedgerRequest],
) -> None:
    replica, journal = LedgerReplica(LEDGER, HERE), Journal()

    for request in history:
        journal.take(replica.on(request, journal.held))
        replayed = journal.replayed()
        assert replayed.lac <= replica.lac
        assert attrs.evolve(replayed, lac=replica.lac) == replica


@given(st.lists(requests, max_size=30))
def test_a_follow_returns_everything_up_to_the_lac_and_nothing_above(
    history: list[LedgerRequest],
) -> None:
    replica, journal, naive = LedgerReplica(LEDGER, HERE), Journal(), NaiveNode()

    for request in history:
        journal.take(replica.on(request, journal.held))
        naive.accepts(request)
        for first in range(5):
            follow = Follow(0, LEDGER, EntryId(first), 100, 1, 1, HERE)
            (effect,) = replica.on(follow, journal.held)
            if isinstance(effect, AnswerRead):
                assert first + effect.read.count_max - 1 == naive.lac()
                assert not effect.is_synced
            else:
                assert first > naive.lac()
                assert isinstance(effect, AwaitLac | Reply)


@given(st.lists(requests, max_size=30))
def test_promises_never_fall(history: list[LedgerRequest]) -> None:
    replica, journal = LedgerReplica(LEDGER, HERE), Journal()

    for request in history:
        before = attrs.evolve(replica)
        effects = replica.on(request, journal.held)
        journal.take(effects)
        assert replica.epoch_highest >= before.epoch_highest
        assert replica.lac >= before.lac
        assert replica.is_fenced >= before.is_fenced
        if before.is_fenced and isinstance(request, Add) and AcknowledgeAdd(0) in effects:
            assert request.is_recovery


@given(st.lists(requests, max_size=20), st.lists(requests, max_size=20))
def test_a_ledger_that_was_let_go_takes_only_copies_for_ever(
    history: list[LedgerRequest], later: list[LedgerRequest]
) -> None:
    replica, journal = LedgerReplica(LEDGER, HERE), Journal()
    for request in history:
        journal.take(replica.on(request, journal.held))
    journal.take(replica.let_go(max(replica.epoch_highest, Epoch(1))))
    assert replica.let_go(replica.epoch_highest) == []
    lac, left = replica.lac, Journal()  # None of its entries is left.

    for request in later:
        effects = replica.on(request, left.held)
        left.take(effects)
        journal.take(effects)
        assert replica.is_fenced
        assert replica.is_let_go
        assert replica.lac == lac
        assert is_refusal(effects) or not isinstance(request, OpenLedger)
        if isinstance(request, Add) and AcknowledgeAdd(0) in effects:
            assert request.is_recovery
    assert attrs.evolve(journal.replayed(), lac=lac) == replica
