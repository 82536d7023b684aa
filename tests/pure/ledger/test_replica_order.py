"""The replica that a reader asks first, and how long it keeps to it."""

import random
from collections import Counter

import attrs
import trio
from trio.testing import MockClock

from geolog.ledger.replicas.replica_order import EXPLORED_READS, KEPT_S, ReplicaOrder
from geolog.protocol.ids import EntryId, InstanceId
from geolog.protocol.ledger_state import Fragment, Member
from topology.location import Location
from topology.membership import NodeUse
from topology.read_order import ReadOrder
from topology.replica_ranking import DEMOTED_S_MIN, OVERTAKEN_MAX

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


async def test_readers_that_read_the_same_record_of_metadata_twice_share_an_order(
    autojump_clock: MockClock,
) -> None:
    again = attrs.evolve(FRAGMENT, ensemble=tuple(map(attrs.evolve, FRAGMENT.ensemble)))
    processes = [order_of(local=Location.within("a"), seed=seed) for seed in range(20)]
    found = {one.of(FRAGMENT, SLOTS) == one.of(again, SLOTS) for one in processes}

    assert (again, again is FRAGMENT) == (FRAGMENT, False)
    assert (found, {one.kept_count for one in processes}) == ({True}, {1})


async def test_a_failed_replica_is_asked_last_until_one_read_tries_it_at_the_side_of_another(
    autojump_clock: MockClock,
) -> None:
    reader = order_of(local=Location("a", "2"))
    failed = FRAGMENT.ensemble[3].instance
    reader.note_failed(failed)
    demoted = reader.of(FRAGMENT, SLOTS)
    await trio.sleep(DEMOTED_S_MIN)
    without_trial = reader.of(FRAGMENT, SLOTS)[0]
    unasked = reader.with_trial(FRAGMENT, SLOTS)[1]
    firsts, trials = [], []
    for _ in range(5):
        await trio.sleep(KEPT_S / 2)
        order, tried = reader.with_trial(FRAGMENT, SLOTS)
        firsts.append(order[0])
        trials.append(tried)
        if tried is not None:
            reader.asked(FRAGMENT.ensemble[tried].instance)
    reader.note_answered(failed, 0.01)

    assert demoted[-1] == 3
    assert unasked is None, "the order of a reader that cannot try it is kept for a while"
    assert [one for one in trials if one is not None] == [3], "one read tries it"
    assert 3 not in (without_trial, *firsts), "no read relies on it"
    assert reader.of(FRAGMENT, SLOTS)[0] == 3


async def test_a_replica_overtaken_once_keeps_its_place(autojump_clock: MockClock) -> None:
    reader = order_of(local=Location("a", "2"))
    overtaken = FRAGMENT.ensemble[3].instance
    for _ in range(OVERTAKEN_MAX - 1):
        reader.note_overtaken(overtaken, trio.current_time())
    before = reader.of(FRAGMENT, SLOTS)
    reader.note_overtaken(overtaken, trio.current_time())

    assert before[0] == 3
    assert reader.of(FRAGMENT, SLOTS)[-1] == 3


async def test_orders_stay_while_others_find_the_same_replica_failed(
    autojump_clock: MockClock,
) -> None:
    shared = order_of(local=Location.within("a"))
    failed = FRAGMENT.ensemble[1].instance
    shared.note_failed(failed)
    first = shared.of(FRAGMENT, SLOTS)
    firsts = set()
    for _ in range(20):
        shared.note_failed(failed)
        firsts.add(tuple(shared.of(FRAGMENT, SLOTS)))

    assert firsts == {tuple(first)}
    assert first[-1] == 1


async def test_reads_prefer_the_clearly_faster_of_equals_and_explore_the_others(
    autojump_clock: MockClock,
) -> None:
    reader = order_of(local=Location.within("a"))
    near = [FRAGMENT.ensemble[slot].instance for slot in (1, 3, 5)]
    for _ in range(10):
        for instance, took_s in zip(near, (0.002, 0.030, 0.002), strict=True):
            reader.note_answered(instance, took_s)
    firsts = Counter[int]()
    for _ in range(EXPLORED_READS * 20):
        firsts[reader.of(FRAGMENT, SLOTS)[0]] += 1
        await trio.sleep(0.001)

    assert set(firsts) == {1, 3, 5}
    assert 0 < firsts[3] <= 20


async def test_a_read_only_replica_comes_after_its_equals_only(
    autojump_clock: MockClock,
) -> None:
    readonly = {FRAGMENT.ensemble[1].instance, FRAGMENT.ensemble[3].instance}

    def use_of(instance: InstanceId) -> NodeUse:
        return NodeUse.READONLY if instance in readonly else NodeUse.WRITABLE

    firsts = {
        ReplicaOrder(
            ReadOrder.SEED,
            local=Location.within("a"),
            rng=random.Random(seed),
            use_of=use_of,
        ).of(FRAGMENT, SLOTS)[0]
        for seed in range(20)
    }
    alone = ReplicaOrder(
        ReadOrder.SEED, local=Location("a", "2"), rng=random.Random(0), use_of=use_of
    ).of(FRAGMENT, SLOTS)

    assert firsts == {5}
    assert alone[0] == 3, "nearer than every writable one"


async def test_the_next_named_region_serves_once_the_own_one_has_failed(
    autojump_clock: MockClock,
) -> None:
    named = sorted({member.location.region for member in FRAGMENT.ensemble} - {"a"})
    orders = [
        ReplicaOrder(
            ReadOrder.SEED,
            local=Location.within("a"),
            rng=random.Random(seed),
            next_regions=tuple(named),
        )
        for seed in range(20)
    ]
    for order in orders:
        for member in FRAGMENT.ensemble:
            if member.location.region == "a":
                order.note_failed(member.instance)

    firsts = {regions(order.of(FRAGMENT, SLOTS))[0] for order in orders}

    assert len(named) > 1
    assert firsts == {named[0]}
