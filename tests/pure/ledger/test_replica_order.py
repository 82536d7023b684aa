"""The replica that a reader asks first, and how long it keeps to it."""

import random
from collections import Counter

import trio
from trio.testing import MockClock

from geolog.ledger.replicas.replica_order import KEPT_S, ReplicaOrder
from geolog.protocol.ids import EntryId, InstanceId
from geolog.protocol.ledger_state import Fragment, Member
from topology.location import Location
from topology.read_order import ReadOrder

PLACES = ["/b/1", "/a/1", "/c/1", "/a/2", "/b/2", "/a/3"]
FRAGMENT = Fragment(
    EntryId(0),
    tuple(
        Member(InstanceId(f"n{slot}"), f"n{slot}", Location.parse(place))
        for slot, place in enumerate(PLACES)
    ),
)
SLOTS = range(len(PLACES))


def order_of(
    order: ReadOrder = ReadOrder.SEED, local: Location | None = None, seed: int = 0
) -> ReplicaOrder:
    return ReplicaOrder(order, local=local, rng=random.Random(seed))


def regions(order: list[int]) -> str:
    return "".join(FRAGMENT.ensemble[slot].location.region for slot in order)


async def test_the_closest_come_first_then_another_region(autojump_clock: MockClock) -> None:
    own_rack = order_of(local=Location("a", "2")).of(FRAGMENT, SLOTS)
    own_region = order_of(local=Location.within("a")).of(FRAGMENT, SLOTS)

    assert own_rack[0] == 3
    assert regions(own_rack)[:2] == regions(own_region)[:2] == "aa"
    assert regions(own_region)[2] != "a"
    assert sorted(own_region) == list(SLOTS)


async def test_the_bookkeeper_order_has_two_of_the_region_then_one_of_another(
    autojump_clock: MockClock,
) -> None:
    order = order_of(ReadOrder.BOOKKEEPER, Location.within("a")).of(FRAGMENT, SLOTS)

    assert order == [1, 3, 0, 5, 2, 4]


async def test_a_reader_keeps_an_order_for_a_while_and_readers_differ(
    autojump_clock: MockClock,
) -> None:
    reader = order_of(local=Location.within("a"))
    first = {tuple(reader.of(FRAGMENT, SLOTS)) for _ in range(20)}
    later = set()
    for _ in range(20):
        await trio.sleep(KEPT_S)
        later.add(reader.of(FRAGMENT, SLOTS)[0])
    firsts = Counter(
        order_of(local=Location.within("a"), seed=seed).of(FRAGMENT, SLOTS)[0]
        for seed in range(60)
    )

    assert len(first) == 1
    assert later == firsts.keys() == {1, 3, 5}
    assert max(firsts.values()) < 2.5 * min(firsts.values())


async def test_a_slow_replica_is_asked_last_until_it_is_forgiven(
    autojump_clock: MockClock,
) -> None:
    reader = order_of(local=Location("a", "2"))
    slow = FRAGMENT.ensemble[3].instance
    reader.note_slow(slow)
    while_slow = reader.of(FRAGMENT, SLOTS)
    reader.forgive(slow)
    forgiven = reader.of(FRAGMENT, SLOTS)
    reader.note_slow(slow)
    await trio.sleep(6)
    in_time = reader.of(FRAGMENT, SLOTS)

    assert while_slow[-1] == 3
    assert forgiven[0] == in_time[0] == 3


async def test_orders_stay_while_others_find_the_same_replica_slow(
    autojump_clock: MockClock,
) -> None:
    shared = order_of(local=Location.within("a"))
    slow = FRAGMENT.ensemble[1].instance
    shared.note_slow(slow)
    first = shared.of(FRAGMENT, SLOTS)
    firsts = set()
    for _ in range(20):
        shared.note_slow(slow)
        firsts.add(tuple(shared.of(FRAGMENT, SLOTS)))

    assert firsts == {tuple(first)}
    assert first[-1] == 1
