"""Shadow requests to replicas that no read asks."""

import trio
from trio.testing import MockClock

from geolog.ledger.replicas.shadow_requests import ShadowRequests
from geolog.protocol.messages import Message, Probe
from tests.pure.ledger.fake_nodes import FakeNodes, open_fake_nodes
from topology.replica_ranking import DEMOTED_S_MAX


def probes_at(nodes: FakeNodes, number: int) -> int:
    return sum(isinstance(asked, Probe) for asked in nodes.nodes[number].asked)


def silent(_asked: Message, _answers: list[Message]) -> list[Message]:
    return []


async def after(nodes: FakeNodes, passed_s: float) -> int:
    """Demote node 0 while nobody reads; returns which comes first after that time."""
    fragment = nodes.ledger().fragments[-1]
    nodes.replicas.note_failed(fragment.ensemble[0])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ShadowRequests(nodes.replicas).run)
        await trio.sleep(passed_s)
        nursery.cancel_scope.cancel()
    return nodes.replicas.in_order(fragment, range(3))[0]


async def test_a_replica_is_found_well_again_although_nobody_reads(
    autojump_clock: MockClock,
) -> None:
    async with open_fake_nodes() as nodes:
        first = await after(nodes, 5)

        assert nodes.replicas.statistics().demoted_count == 0
        assert not nodes.replicas.order.has_marked
    assert first == 0
    assert probes_at(nodes, 0) == 1


async def test_one_that_stays_silent_is_asked_seldom(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        nodes.nodes[0].lie = silent
        first = await after(nodes, 10 * DEMOTED_S_MAX)

        assert nodes.replicas.order.has_marked
    assert first != 0


async def test_others_get_no_shadow_requests(autojump_clock: MockClock) -> None:
    async with open_fake_nodes() as nodes:
        await after(nodes, 20)

    assert probes_at(nodes, 1) == probes_at(nodes, 2) == 0
