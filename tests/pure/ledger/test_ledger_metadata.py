"""Creating ledgers in a metadata store whose answers get lost."""

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from geolog.ledger.ledger_metadata import LedgerMetadata
from geolog.metadata.paths import ClusterPaths
from geolog.protocol.ids import EntryId, InstanceId
from geolog.protocol.ledger_state import Fragment, Member
from sim.fakes.memory_metadata import MemoryMetadata, open_memory_store
from topology.errors import UnavailableError
from topology.location import Location
from topology.quorum import QuorumConfig

_FRAGMENT = Fragment(
    EntryId(0), (Member(InstanceId("0" * 32), "one", Location.parse("/here/r1")),)
)
_QUORUM = QuorumConfig(ensemble_size=1, write_quorum=1, ack_quorum=1, min_regions=1)


@pytest.fixture
async def session() -> AsyncIterator[MemoryMetadata]:
    async with open_memory_store() as store, store.open_session() as metadata:
        yield metadata


async def test_a_ledger_that_may_have_been_created_is_skipped_for_the_next(
    session: MemoryMetadata, autojump_clock: MockClock
) -> None:
    ledgers = LedgerMetadata(session, ClusterPaths("test"))
    first = await ledgers.allocate(_QUORUM, _FRAGMENT, stream="a/b#0")
    session.lose_next_answer()

    second = await ledgers.allocate(_QUORUM, _FRAGMENT, stream="a/b#0")

    assert int(second.record.ledger) == int(first.record.ledger) + 2


async def test_a_store_that_never_reports_an_outcome_is_unavailable(
    session: MemoryMetadata, autojump_clock: MockClock
) -> None:
    ledgers = LedgerMetadata(session, ClusterPaths("test"))
    await ledgers.allocate(_QUORUM, _FRAGMENT, stream="a/b#0")
    for _ in range(100):
        session.lose_next_answer()

    with (
        trio.fail_after(60),
        pytest.raises(UnavailableError, match="no ledger could be created"),
    ):
        await ledgers.allocate(_QUORUM, _FRAGMENT, stream="a/b#0")
