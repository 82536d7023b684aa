"""Owners by rendezvous hash, and their balance without a coordinator, from counts that age."""

import math
import random
from collections import Counter

import attrs
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.owner_balance import (
    SLACK,
    OwnerCandidate,
    OwnerMove,
    plan_moves,
    ranking,
)

MOVES_MAX = 4
NAMES = [f"shop/orders#{number}" for number in range(60)]


def bound_of(process: OwnerCandidate, held: Counter[str], all_: list[OwnerCandidate]) -> int:
    share = process.weight / sum(one.weight for one in all_)
    return math.ceil(SLACK * sum(held[one.process] for one in all_) * share)


def surplus_of(held: Counter[str], all_: list[OwnerCandidate]) -> dict[str, int]:
    return {one.process: held[one.process] - bound_of(one, held, all_) for one in all_}


@attrs.define
class Region:
    """Proxies of one region, and the owner of each partition."""

    rng: random.Random
    proxies: list[OwnerCandidate]
    owners: dict[str, str] = attrs.field(factory=dict)
    told: Counter[str] = attrs.field(factory=Counter)
    """How many partitions each proxy owned when it last said so."""
    moves_count: int = 0

    @property
    def held(self) -> Counter[str]:
        return Counter(self.owners.values())

    @property
    def surplus(self) -> int:
        return sum(max(0, one) for one in surplus_of(self.held, self.proxies).values())

    def tell(self) -> None:
        self.told = self.held

    def plan_of(self, process: str) -> list[OwnerMove]:
        own = [name for name, owner in self.owners.items() if owner == process]
        return plan_moves(
            process,
            own,
            self.told | {process: len(own)},
            self.proxies,
            moves_max=MOVES_MAX,
        )

    def round(self) -> int:
        """All proxies plan at the same time, from what was told; how many partitions moved."""
        plans = [self.plan_of(one.process) for one in self.proxies]
        for move in [move for plan in plans for move in plan]:
            assert self.owners[move.name] == move.source
            self.owners[move.name] = move.target
        count = sum(map(len, plans))
        self.moves_count += count
        return count

    def join(self) -> None:
        number = 1 + max(int(one.process.split()[1]) for one in self.proxies)
        self.proxies.append(OwnerCandidate(process=f"proxy {number}", region="eu"))

    def leave(self) -> None:
        """One drains: each of its partitions goes to the first that is left in its ranking."""
        leaver = self.proxies.pop(self.rng.randrange(len(self.proxies)))
        for name, owner in self.owners.items():
            if owner == leaver.process:
                self.owners[name] = ranking(name, "eu", self.proxies)[0]


def region_of(rng: random.Random, proxies_count: int) -> Region:
    proxies = [
        OwnerCandidate(process=f"proxy {number}", region="eu")
        for number in range(proxies_count)
    ]
    owners = {name: ranking(name, "eu", proxies)[0] for name in NAMES}
    return Region(rng, proxies, owners)


changes = st.lists(st.sampled_from(["join", "leave"]), min_size=1, max_size=6)


@given(changes, st.randoms(use_true_random=False))
def test_eight_proxies_that_join_and_leave_settle_with_no_more_moves_than_surplus(
    happened: list[str], rng: random.Random
) -> None:
    region = region_of(rng, 8)
    for change in happened:
        region.join() if change == "join" else region.leave()
        surplus, before = region.surplus, region.moves_count
        region.tell()
        rounds_count = 0
        while region.round():
            rounds_count += 1
            region.tell()
        assert region.surplus == 0
        assert region.moves_count - before == surplus
        assert rounds_count <= surplus


@given(changes, st.randoms(use_true_random=False))
def test_they_settle_though_they_plan_from_old_counts(
    happened: list[str], rng: random.Random
) -> None:
    """Counts are told after every second round only; more moves, but an end."""
    region = region_of(rng, 8)
    for change in happened:
        region.join() if change == "join" else region.leave()
    surplus = region.surplus
    moved_count, rounds_count = 0, 0
    while region.surplus:
        if rounds_count % 2 == 0:
            region.tell()
        moved_count += region.round()
        rounds_count += 1
        assert rounds_count <= 4 * len(NAMES)
    region.tell()

    assert region.round() == 0
    assert moved_count <= 2 * surplus + MOVES_MAX * len(region.proxies)


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=8),
    st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=8, max_size=8),
    st.integers(1, 5),
    st.data(),
)
def test_a_plan_is_that_of_a_naive_model(
    counts: list[int], weights: list[float], moves_max: int, data: st.DataObject
) -> None:
    proxies = [
        OwnerCandidate(process=f"proxy {number}", region="eu", weight=weights[number])
        for number in range(len(counts))
    ]
    held = Counter({one.process: count for one, count in zip(proxies, counts, strict=True)})
    here = data.draw(st.sampled_from(proxies))
    own = NAMES[: held[here.process]]
    plan = plan_moves(here.process, own, held, proxies, moves_max=moves_max)

    surplus = surplus_of(held, proxies)
    worst = min(surplus, key=lambda one: (-surplus[one], one))
    has_turn = worst == here.process and surplus[worst] > 0
    assert len(plan) == (min(moves_max, surplus[worst]) if has_turn else 0)
    assert len({move.name for move in plan}) == len(plan)
    after = held + Counter(move.target for move in plan)
    for move in plan:
        assert (move.name in own, move.source) == (True, here.process)
        assert after[move.target] <= bound_of(
            next(one for one in proxies if one.process == move.target), held, proxies
        )


def test_nothing_moves_while_all_are_within_their_bounds() -> None:
    region = region_of(random.Random(1), 8)
    region.tell()
    while region.round():
        region.tell()
    settled = dict(region.owners)
    for _ in range(10):
        region.round()

    assert region.owners == settled


def test_a_process_keeps_what_it_must_not_move() -> None:
    proxies = [OwnerCandidate(process=one, region="eu") for one in ("a", "b")]

    assert plan_moves("a", [], {"a": 9, "b": 0}, proxies, moves_max=9) == []
    assert len(plan_moves("a", ["x"], {"a": 9, "b": 0}, proxies, moves_max=9)) == 1


def equal(count: int) -> list[OwnerCandidate]:
    return [OwnerCandidate(process=f"proxy {number}", region="eu") for number in range(count)]


def test_the_ranking_is_the_same_in_every_process_and_version() -> None:
    """A fixed example: proxies of different versions must agree."""
    fixed = ["proxy 0", "proxy 3", "proxy 1", "proxy 2"]

    assert ranking("shop/orders#0", None, equal(4)) == fixed
    assert ranking("shop/orders#0", "us", equal(4)) == fixed


@given(st.integers(1, 8), st.sampled_from([None, "eu", "us"]), st.data())
def test_a_process_that_leaves_changes_nothing_in_the_ranking_of_the_others(
    count: int, home: str | None, data: st.DataObject
) -> None:
    candidates = [
        attrs.evolve(one, region=data.draw(st.sampled_from(["eu", "us"])))
        for one in equal(count)
    ]
    drained = data.draw(st.sampled_from(candidates))
    left = [attrs.evolve(one, is_draining=one is drained) for one in candidates]
    at_home = {one.process for one in candidates if one.region == home}

    before, after = ranking("s", home, candidates), ranking("s", home, left)
    if at_home - {drained.process} or not at_home:
        assert after == [one for one in before if one != drained.process]
    else:
        assert set(before) == at_home


def test_a_process_with_more_weight_is_first_more_often() -> None:
    proxies = [attrs.evolve(equal(1)[0], weight=3.0), *equal(4)[1:]]
    first = Counter(ranking(f"s#{number}", None, proxies)[0] for number in range(1200))

    assert first["proxy 0"] > 2 * max(first[f"proxy {number}"] for number in (1, 2, 3))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_the_same_input_gives_the_same_plan_in_any_order(
    counts: list[int], rng: random.Random
) -> None:
    proxies = equal(len(counts))
    held = {one.process: count for one, count in zip(proxies, counts, strict=True)}
    busiest = max(proxies, key=lambda one: held[one.process]).process
    own = NAMES[: held[busiest]]
    plan = plan_moves(busiest, own, held, proxies, moves_max=99)

    assert plan == plan_moves(
        busiest,
        rng.sample(own, len(own)),
        dict(rng.sample(list(held.items()), len(held))),
        rng.sample(proxies, len(proxies)),
        moves_max=99,
    )
