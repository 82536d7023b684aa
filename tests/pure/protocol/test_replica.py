"""The promises of a node about one ledger, row by row."""

from collections.abc import Callable

import attrs
import pytest
from crc32c import crc32c

from geolog.protocol.ids import NO_ENTRY, EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.messages import (
    Add,
    AddRefused,
    Answer,
    Fence,
    Fenced,
    Follow,
    LedgerOpened,
    OpenLedger,
    Probe,
    PushLac,
    Read,
    ReadAnswer,
    Reason,
    Refused,
)
from geolog.protocol.replica import (
    NOTHING_HELD,
    AcknowledgeAdd,
    AnswerProbe,
    AnswerRead,
    AwaitLac,
    Effect,
    Held,
    LedgerReplica,
    LedgerRequest,
    NodeLimits,
    PersistEntry,
    PersistFence,
    PersistOpen,
    Reply,
    ReplySynced,
)

HERE = InstanceId("a" * 32)
ELSEWHERE = InstanceId("b" * 32)
LEDGER = LedgerId(7)


def nothing(_ledger: LedgerId, _entry: EntryId) -> Held:
    return NOTHING_HELD


def holding(held: Held) -> Callable[[LedgerId, EntryId], Held]:
    return lambda _ledger, _entry: held


def held_bytes(body: bytes) -> Held:
    return Held(Answer.HAVE, len(body), crc32c(body))


def replica_after(*requests: LedgerRequest) -> LedgerReplica:
    replica = LedgerReplica(LEDGER, HERE)
    for request in requests:
        replica.on(request, nothing)
    return replica


def open_at(epoch: int) -> OpenLedger:
    return OpenLedger(1, LEDGER, Epoch(epoch), HERE)


def fence_at(epoch: int) -> Fence:
    return Fence(2, LEDGER, Epoch(epoch), HERE)


def add_of(
    entry: int, epoch: int = 1, *, lac: int = -1, recovery: bool = False, body: bytes = b"body"
) -> Add:
    return Add(
        ordinal=9,
        ledger=LEDGER,
        entry=EntryId(entry),
        epoch=Epoch(epoch),
        lac=EntryId(lac),
        is_recovery=recovery,
        wants_received=False,
        instance=HERE,
        body=body,
        body_crc=crc32c(body),
    )


def read_at(fence_epoch: int) -> Read:
    return Read(3, LEDGER, EntryId(0), 1, 100, 1, Epoch(fence_epoch), HERE)


def follow_of(first: int, *, count: int = 10, wait_ms: int = 1000) -> Follow:
    return Follow(4, LEDGER, EntryId(first), count, 100, wait_ms, HERE)


def push_of(lac: int, epoch: int = 1) -> PushLac:
    return PushLac(LEDGER, Epoch(epoch), EntryId(lac), HERE)


def add_refused(reason: Reason, epoch: int) -> list[Effect]:
    return [Reply(AddRefused(9, reason, Epoch(epoch)))]


def reason_of(effects: list[Effect]) -> Reason:
    match effects:
        case [Reply(Refused(reason=reason))] | [Reply(AddRefused(reason=reason))]:
            return reason
        case _:
            raise AssertionError(f"expected exactly one refusal: {effects}")


def test_an_open_makes_an_unknown_ledger_known_and_is_answered_when_synced() -> None:
    replica = LedgerReplica(LEDGER, HERE)

    assert replica.on(open_at(1), nothing) == [
        PersistOpen(LEDGER, Epoch(1), is_first=True),
        ReplySynced(LedgerOpened(1)),
    ]
    assert replica.is_known


def test_a_repeated_open_writes_nothing_but_still_waits_for_the_first() -> None:
    replica = replica_after(open_at(1))

    assert replica.on(open_at(1), nothing) == [ReplySynced(LedgerOpened(1))]


def test_a_fence_makes_an_unknown_ledger_known_and_fenced() -> None:
    replica = LedgerReplica(LEDGER, HERE)

    assert replica.on(fence_at(2), nothing) == [
        PersistFence(LEDGER, Epoch(2), is_first=True),
        ReplySynced(Fenced(2, NO_ENTRY, NO_ENTRY)),
    ]
    assert replica.is_fenced


def test_an_add_is_stored_and_then_acknowledged() -> None:
    replica = replica_after(open_at(1))
    add = add_of(0)

    assert replica.on(add, nothing) == [PersistEntry(add), AcknowledgeAdd(9)]


def test_an_add_does_not_make_a_ledger_known() -> None:
    replica = LedgerReplica(LEDGER, HERE)

    assert replica.on(add_of(0), nothing) == add_refused(Reason.NO_SUCH_LEDGER, 0)
    assert not replica.is_known


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (open_at(1), Reason.FENCED),
        (fence_at(1), Reason.FENCED),
        (read_at(1), Reason.FENCED),
        (add_of(0, 1), Reason.FENCED),
        (add_of(0, 1, recovery=True), Reason.FENCED),
    ],
    ids=lambda value: type(value).__name__,
)
def test_requests_below_the_highest_epoch_are_refused(
    request_: LedgerRequest, reason: Reason
) -> None:
    replica = replica_after(open_at(2))

    assert reason_of(replica.on(request_, nothing)) is reason


@pytest.mark.parametrize("epoch", [2, 3, 99])
def test_after_a_fence_no_writer_adds_at_any_epoch(epoch: int) -> None:
    replica = replica_after(open_at(1), fence_at(2))

    assert replica.on(add_of(0, epoch), nothing) == add_refused(Reason.FENCED, 2)


@pytest.mark.parametrize("epoch", [2, 3, 99])
def test_after_a_fence_nobody_opens_at_any_epoch(epoch: int) -> None:
    replica = replica_after(open_at(1), fence_at(2))

    assert reason_of(replica.on(open_at(epoch), nothing)) is Reason.FENCED


def test_a_recovery_add_is_stored_after_the_fence() -> None:
    replica = replica_after(open_at(1), fence_at(2))
    add = add_of(0, 2, recovery=True)

    assert replica.on(add, nothing) == [PersistEntry(add), AcknowledgeAdd(9)]


def test_a_recovery_add_fences_a_node_that_the_fence_did_not_reach() -> None:
    replica = replica_after(open_at(1), add_of(0, 2, recovery=True))

    assert replica.on(add_of(1, 2), nothing) == add_refused(Reason.FENCED, 2)


def test_a_recovery_add_never_moves_the_lac() -> None:
    replica = replica_after(open_at(1), add_of(4, lac=2), fence_at(2))

    replica.on(add_of(4, 2, lac=3, recovery=True), nothing)

    assert replica.lac == 2


def test_a_fence_answers_the_highest_lac_and_entry() -> None:
    replica = replica_after(open_at(1), add_of(5, lac=3), add_of(4, lac=2))

    assert ReplySynced(Fenced(2, EntryId(3), EntryId(5))) in replica.on(fence_at(2), nothing)


def test_the_same_recoverer_may_fence_again_without_a_new_record() -> None:
    replica = replica_after(open_at(1), fence_at(2))

    assert replica.on(fence_at(2), nothing) == [ReplySynced(Fenced(2, NO_ENTRY, NO_ENTRY))]


def test_a_recovery_read_persists_the_fence_before_it_answers() -> None:
    replica = replica_after(open_at(1))

    assert replica.on(read_at(2), nothing) == [
        PersistFence(LEDGER, Epoch(2), is_first=False),
        AnswerRead(read_at(2), is_synced=True),
    ]


def test_a_repeated_recovery_read_still_waits_for_the_sync_of_its_fence() -> None:
    replica = replica_after(open_at(1), read_at(2))

    assert replica.on(read_at(2), nothing) == [AnswerRead(read_at(2), is_synced=True)]


def test_a_plain_read_and_a_probe_are_answered_at_once() -> None:
    replica = replica_after(open_at(1))
    probe = Probe(3, LEDGER, EntryId(0), 4, HERE)

    assert replica.on(read_at(0), nothing) == [AnswerRead(read_at(0), is_synced=False)]
    assert replica.on(probe, nothing) == [AnswerProbe(probe)]


def test_a_repeated_add_is_acknowledged_without_a_new_record() -> None:
    replica = replica_after(open_at(1), add_of(0))

    assert replica.on(add_of(0), holding(held_bytes(b"body"))) == [AcknowledgeAdd(9)]


def test_other_bytes_for_an_intact_entry_are_a_conflict() -> None:
    replica = replica_after(open_at(1), add_of(0))

    effects = replica.on(add_of(0, body=b"other"), holding(held_bytes(b"body")))

    assert effects == add_refused(Reason.CONFLICT, 1)


@pytest.mark.parametrize("answer", [Answer.CORRUPT, Answer.UNKNOWN, Answer.ABSENT])
def test_a_repeated_add_replaces_a_copy_that_is_not_intact(answer: Answer) -> None:
    replica = replica_after(open_at(1), add_of(0))
    add = add_of(0)

    assert replica.on(add, holding(Held(answer))) == [PersistEntry(add), AcknowledgeAdd(9)]


def test_a_repeated_recovery_add_persists_the_fence_that_it_implies() -> None:
    replica = replica_after(open_at(1), add_of(0))
    add = add_of(0, 2, recovery=True)

    assert replica.on(add, holding(held_bytes(b"body"))) == [
        PersistFence(LEDGER, Epoch(2), is_first=False),
        AcknowledgeAdd(9),
    ]


def test_a_repeated_add_of_a_higher_epoch_persists_that_epoch() -> None:
    replica = replica_after(open_at(1), add_of(0))

    assert replica.on(add_of(0, 3), holding(held_bytes(b"body"))) == [
        PersistOpen(LEDGER, Epoch(3), is_first=False),
        AcknowledgeAdd(9),
    ]


def test_the_wrong_instance_is_refused_before_anything_else() -> None:
    replica = replica_after(open_at(5), fence_at(6))

    for request in (open_at(1), fence_at(1), add_of(0), read_at(1), read_at(0)):
        wrong = attrs.evolve(request, instance=ELSEWHERE)
        assert reason_of(replica.on(wrong, nothing)) is Reason.WRONG_INSTANCE
    assert replica.on(attrs.evolve(push_of(9), instance=ELSEWHERE), nothing) == []
    assert replica == replica_after(open_at(5), fence_at(6))


@pytest.mark.parametrize("request_", [open_at(0), fence_at(0)], ids=["open", "fence"])
def test_epochs_begin_at_one(request_: LedgerRequest) -> None:
    replica = LedgerReplica(LEDGER, HERE)

    assert reason_of(replica.on(request_, nothing)) is Reason.UNSUPPORTED
    assert not replica.is_known


def test_a_pushed_lac_counts_only_from_the_current_writer() -> None:
    replica = replica_after(open_at(2), push_of(3, 2), push_of(9, 1), push_of(1, 2))
    assert replica.lac == 3

    replica.on(fence_at(3), nothing)
    replica.on(push_of(8, epoch=3), nothing)

    assert replica.lac == 3


def test_a_read_only_node_fences_and_reads_but_stores_nothing_new() -> None:
    read_only = NodeLimits(is_read_only=True)
    replica = replica_after(open_at(1))

    assert replica.on(add_of(0), nothing, read_only) == add_refused(Reason.READ_ONLY, 1)
    assert reason_of(replica.on(open_at(2), nothing, read_only)) is Reason.READ_ONLY
    assert replica.on(open_at(1), nothing, read_only) == [ReplySynced(LedgerOpened(1))]
    assert replica.on(fence_at(2), nothing, read_only)[0] == PersistFence(
        LEDGER, Epoch(2), is_first=False
    )


def test_a_ledger_in_doubt_takes_adds_of_recovery_only() -> None:
    replica = replica_after(open_at(1))
    replica.is_in_doubt = True

    assert replica.on(add_of(0), nothing) == add_refused(Reason.READ_ONLY, 1)
    assert reason_of(replica.on(open_at(1), nothing)) is Reason.READ_ONLY
    add = add_of(0, 2, recovery=True)
    assert replica.on(add, nothing) == [PersistEntry(add), AcknowledgeAdd(9)]


def test_a_fence_of_a_ledger_in_doubt_does_not_claim_to_be_its_first_record() -> None:
    replica = LedgerReplica(LEDGER, HERE, is_in_doubt=True)

    assert replica.on(fence_at(1), nothing)[0] == PersistFence(LEDGER, Epoch(1), is_first=False)


def test_a_follow_waits_until_the_lac_is_reached() -> None:
    replica = replica_after(open_at(1), add_of(0), add_of(1, lac=0))

    assert replica.on(follow_of(1), nothing) == [AwaitLac(follow_of(1))]
    replica.on(push_of(1), nothing)
    assert isinstance(replica.on(follow_of(1), nothing)[0], AnswerRead)


@pytest.mark.parametrize(("first", "count", "expected"), [(0, 10, 3), (2, 10, 1), (0, 2, 2)])
def test_a_follow_reads_no_further_than_the_lac(first: int, count: int, expected: int) -> None:
    replica = replica_after(open_at(1), *(add_of(entry, lac=2) for entry in range(5)))

    assert replica.on(follow_of(first, count=count), nothing) == [
        AnswerRead(
            Read(4, LEDGER, EntryId(first), expected, 100, 1, Epoch(0), HERE), is_synced=False
        )
    ]


def test_a_follow_for_the_lac_alone_waits_for_it_and_reads_nothing() -> None:
    replica = replica_after(open_at(1), add_of(0), add_of(1, lac=0))

    assert replica.on(follow_of(1, count=0), nothing) == [AwaitLac(follow_of(1, count=0))]
    assert replica.on(follow_of(0, count=0), nothing) == [
        Reply(ReadAnswer(4, EntryId(0), EntryId(0), ()))
    ]


def test_a_follow_of_a_fenced_ledger_reads_without_waiting() -> None:
    replica = replica_after(open_at(1), add_of(0), add_of(1, lac=0), fence_at(2))

    assert replica.on(follow_of(1), nothing) == [
        Reply(ReadAnswer(4, EntryId(0), EntryId(1), (), is_fenced=True))
    ]
    assert isinstance(replica.on(follow_of(0), nothing)[0], AnswerRead)


def test_a_follow_that_may_not_wait_is_answered_at_once() -> None:
    replica = replica_after(open_at(1))

    assert replica.on(follow_of(0, wait_ms=0), nothing) == [
        Reply(ReadAnswer(4, NO_ENTRY, EntryId(0), ()))
    ]


def test_a_follow_of_an_unknown_ledger_is_refused_and_leaves_it_unknown() -> None:
    replica = LedgerReplica(LEDGER, HERE)

    assert reason_of(replica.on(follow_of(0), nothing)) is Reason.NO_SUCH_LEDGER
    assert not replica.is_known


def test_a_follow_meant_for_another_node_is_refused() -> None:
    replica = replica_after(open_at(1))

    asked = attrs.evolve(follow_of(0), instance=ELSEWHERE)
    assert reason_of(replica.on(asked, nothing)) is Reason.WRONG_INSTANCE


def test_a_follow_changes_nothing() -> None:
    replica = replica_after(open_at(1), add_of(0))
    before = attrs.evolve(replica)

    replica.on(follow_of(0), nothing)
    assert replica == before
