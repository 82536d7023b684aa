"""Omitted sizes are filled in to survive one region, or the answer says why they cannot."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.topology.notation import quorum_of
from tests.pure.topology.test_placement import up
from topology.membership import KnownNode, NodeUse
from topology.quorum import Durability, QuorumConfig
from topology.region_survival import SizesGiven, complete_sizes, why_not_without_a_region
from topology.stream_policy import REGION_AWARE_TERMS, PlacementTerms, PolicyKind


def members(tree: str) -> list[KnownNode]:
    return [
        KnownNode(node=one.node, location=one.location, state=NodeUse.WRITABLE)
        for one in up(tree)
    ]


def sizes(text: str) -> SizesGiven:
    """`6/./4 m.`: a dot is an omitted size; `count` may follow."""
    numbers, regions, *kind = text.split()
    ensemble, write, ack = (None if one == "." else int(one) for one in numbers.split("/"))
    return SizesGiven(
        ensemble_size=ensemble,
        write_quorum=write,
        ack_quorum=ack,
        min_regions=None if regions == "m." else int(regions[1:]),
        durability=Durability(kind[0]) if kind else Durability.REGIONS,
    )


@pytest.mark.parametrize(
    ("tree", "asked", "found"),
    [
        ("a3 b3 c3", "././. m.", "6/6/4 m2"),
        ("a3 b3 c3", "././3 m.", "6/6/3 m2"),
        ("a3 b3 c3", "3/3/2 m.", "3/3/2 m2"),
        ("a3 b3 c3", "3/./. m.", "3/3/2 m2"),
        ("a3 b3 c3", "./6/. m.", "6/6/4 m2"),
        ("a3 b3 c3", "./4/. m.", "4/4/2 m2"),  # A majority of four cannot be left.
        ("a3 b3 c3", "././. m1", "6/6/4 m1"),
        ("a3 b3 c3", "6/./2 m1", "6/3/2 m1"),  # Narrow sets: no region holds two of one.
        ("a3 b3 c3", "././. m. count", "6/6/4 m2 count"),
        ("a3 b3 c3 d3", "././6 m.", "8/8/6 m2"),
        ("a9 b2 c2", "././. m.", "3/3/2 m2"),
    ],
)
def test_omitted_sizes_are_filled_in_to_survive_one_region(
    tree: str, asked: str, found: str
) -> None:
    assert complete_sizes(sizes(asked), REGION_AWARE_TERMS, members(tree)) == quorum_of(found)


@pytest.mark.parametrize(
    ("tree", "asked"),
    [
        ("a9", "././. m."),
        ("a9 b9", "././. m."),
        ("a1 b1 c1", "3/3/2 m."),
        ("a3 b3 c3", "././5 m."),
        ("a3 b3 c3", "././1 m."),
        ("a3 b3 c3", "6/6/. m3"),
    ],
)
def test_where_no_sizes_survive_a_region_none_are_made_up(tree: str, asked: str) -> None:
    assert complete_sizes(sizes(asked), REGION_AWARE_TERMS, members(tree)) is None


@pytest.mark.parametrize(
    ("tree", "quorums", "why"),
    [
        ("a3 b3 c3", "6/6/4 m2", ""),
        ("a3 b3", "3/3/2 m2", "nodes in 3 regions are needed; there are 2 (a, b)"),
        ("a3 b3 c3", "6/6/5 m2", "without region a no ack set is left (E 6 W 6 A 5 m 2"),
        ("a3 b3 c3", "6/6/2 m1", "without region a an entry may be lost"),
        (
            "a3 b3 c3",
            "9/9/6 m2",
            "without region a, no new ensemble of 9 fits the 6 rem",
        ),
    ],
)
def test_a_stream_that_does_not_survive_a_region_says_why(
    tree: str, quorums: str, why: str
) -> None:
    said = why_not_without_a_region(quorum_of(quorums), REGION_AWARE_TERMS, members(tree))

    assert said.startswith(why)
    assert bool(said) == bool(why)


@pytest.mark.parametrize("kind", [PolicyKind.DEFAULT, PolicyKind.RACK_AWARE])
def test_a_policy_that_ignores_regions_promises_nothing_about_them(kind: PolicyKind) -> None:
    terms = PlacementTerms(policy=kind)

    assert complete_sizes(sizes("././. m."), terms, members("a3 b3 c3")) is None
    assert "ignores regions" in why_not_without_a_region(
        quorum_of("3/3/2 m1"), terms, members("a3 b3 c3")
    )


# ---------------------------------------------------------------- compared with trying them all


def naive_acks(config: QuorumConfig, held: list[str]) -> bool:
    return len(held) >= config.ack_quorum and len(set(held)) >= config.min_regions


def naive_survives(config: QuorumConfig, ring: tuple[str, ...]) -> bool:
    """Without any one region each write set keeps an ack set, and the lost are not one."""
    size = len(ring)
    for lost in set(ring):
        for first in range(size):
            held = [ring[(first + turn) % size] for turn in range(config.write_quorum)]
            gone = [region for region in held if region == lost]
            left = [region for region in held if region != lost]
            if not naive_acks(config, left) or naive_acks(config, gone):
                return False
    return True


def naive_can_ack(config: QuorumConfig, rings: list[tuple[str, ...]]) -> bool:
    for ring in rings:
        size = len(ring)
        if all(
            naive_acks(
                config, [ring[(first + turn) % size] for turn in range(config.write_quorum)]
            )
            for first in range(size)
        ):
            return True
    return False


def rings_of(counts: dict[str, int], size: int) -> list[tuple[str, ...]]:
    """Every order of regions that these nodes allow, the first slot in each region once."""
    return [
        ring
        for ring in itertools.product(sorted(counts), repeat=size)
        if all(ring.count(region) <= counts[region] for region in counts)
    ]


def naive_can_survive(config: QuorumConfig, counts: dict[str, int]) -> bool:
    rings = rings_of(counts, config.ensemble_size)
    if not any(naive_survives(config, ring) for ring in rings):
        return False
    return all(
        naive_can_ack(
            config,
            rings_of({one: counts[one] for one in counts if one != lost}, config.ensemble_size),
        )
        for lost in counts
    )


LEFT_OUT = st.none() | st.integers(1, 5)


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    LEFT_OUT,
    LEFT_OUT,
    LEFT_OUT,
    st.none() | st.integers(1, 3),
)
def test_sizes_are_found_where_trying_all_of_them_finds_some(
    piles: list[int], ensemble: int | None, write: int | None, ack: int | None, m: int | None
) -> None:
    counts = dict(zip("abcd", piles, strict=False))
    asked = SizesGiven(
        ensemble_size=ensemble, write_quorum=write, ack_quorum=ack, min_regions=m
    )
    tree = " ".join(f"{region}{count}" for region, count in counts.items())

    found = complete_sizes(asked, REGION_AWARE_TERMS, members(tree))

    if found is not None:
        given_and_found = zip(
            (ensemble, write, ack, m),
            (found.ensemble_size, found.write_quorum, found.ack_quorum, found.min_regions),
            strict=True,
        )
        assert all(one in (None, other) for one, other in given_and_found)
        if found.ensemble_size <= 6:
            assert naive_can_survive(found, counts)
        return
    for size, wide, acks, regions in itertools.product(range(1, 6), repeat=4):
        tried = (size, wide, acks, regions)
        pairs = zip((ensemble, write, ack, m), tried, strict=True)
        if (
            all(one in (None, other) for one, other in pairs)
            and size >= wide >= acks >= regions
        ):
            config = QuorumConfig(
                ensemble_size=size, write_quorum=wide, ack_quorum=acks, min_regions=regions
            )
            assert not naive_can_survive(config, counts), config
