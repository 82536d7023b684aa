"""Where appends go: to the live owner, or to the one proxy that takes the partition."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.metadata.proxies import owner_name, region_of_proxy
from geolog.protocol.owner_balance import OwnerCandidate, ranking
from geolog.protocol.stream_state import OwnerRecord
from regions.proxy.protocol.ownership import (
    AtProxy,
    Here,
    HomeAway,
    LastOwner,
    Nowhere,
    NowhereYet,
    PlaceOfAppends,
    ProxiesSeen,
    place_of_appends,
)

PARTITION = "shop/orders#0"
REGIONS = ["ap", "eu", "us"]
DEAD = LastOwner(
    record=OwnerRecord(owner="proxy dead in eu", presence="/dead"),
    is_alive=False,
    is_proxy=True,
    region="eu",
)
DIRECT = LastOwner(
    record=OwnerRecord(owner="loader", presence="/loader"),
    is_alive=True,
    is_proxy=False,
    region=None,
)


@attrs.frozen
class Cluster:
    """All proxies that run, and what each of them sees."""

    running: list[OwnerCandidate]
    views: dict[str, ProxiesSeen]


@st.composite
def clusters(draw: st.DrawFn, *, all_see_the_same: bool = False) -> Cluster:
    running = [
        OwnerCandidate(process=f"proxy {number}", region=draw(st.sampled_from(REGIONS)))
        for number in range(draw(st.integers(1, 8)))
    ]
    some = st.lists(st.sampled_from([one.process for one in running]), unique=True)
    avoided = draw(some)
    views = {}
    suspected = draw(some)
    for here in running:
        hidden = [] if all_see_the_same else draw(some)
        if not all_see_the_same:
            suspected = draw(some)
        views[here.process] = ProxiesSeen(
            here=here.process,
            presence=f"/{here.process}",
            region=here.region,
            listed=[one for one in running if one is here or one.process not in hidden],
            avoided=avoided,
            suspected=[one for one in suspected if one != here.process],
        )
    return Cluster(running, views)


def lasts() -> st.SearchStrategy[LastOwner]:
    region = st.sampled_from(REGIONS)
    return region.map(lambda one: attrs.evolve(DEAD, region=one))


def followed(
    owner: LastOwner, cluster: Cluster, first: str, home: str | None = None
) -> list[str]:
    """The proxies that a client asks; the last takes the partition, or knows of none."""
    asked = [first]
    while True:
        place = place_of_appends(PARTITION, owner, cluster.views[asked[-1]], home)
        if place == Here() or isinstance(place, HomeAway):
            return asked
        assert isinstance(place, AtProxy)
        asked.append(place.process)
        assert len(asked) <= len(cluster.running)


@given(clusters(), lasts())
def test_redirects_end_whatever_each_proxy_sees(cluster: Cluster, owner: LastOwner) -> None:
    for one in cluster.running:
        asked = followed(owner, cluster, one.process)
        assert len(set(asked)) == len(asked)


@given(clusters(), lasts(), st.sampled_from(REGIONS))
def test_a_regional_stream_is_taken_by_a_proxy_of_its_home_or_by_none(
    cluster: Cluster, owner: LastOwner, home: str
) -> None:
    regions = {one.process: one.region for one in cluster.running}
    for one in cluster.running:
        last = followed(owner, cluster, one.process, home)[-1]
        place = place_of_appends(PARTITION, owner, cluster.views[last], home)
        assert place == Here() if regions[last] == home else isinstance(place, HomeAway)


@given(clusters(all_see_the_same=True), lasts())
def test_proxies_that_see_the_same_agree_after_one_redirect(
    cluster: Cluster, owner: LastOwner
) -> None:
    passed_over = {one for seen in cluster.views.values() for one in _passed_over(seen)}
    useful = [one for one in cluster.running if one.process not in passed_over]
    for one in useful:
        asked = followed(owner, cluster, one.process)
        assert len(asked) <= 2
        assert asked[-1] == ranking(PARTITION, owner.region, useful)[0]


def _passed_over(seen: ProxiesSeen) -> set[str]:
    return {*seen.avoided, *seen.suspected}


def naive_place(
    owner: LastOwner, seen: ProxiesSeen, stream_home: str | None = None
) -> PlaceOfAppends:
    """The same rule, case by case."""
    if owner.is_alive and owner.record.presence == seen.presence:
        return Here()
    if owner.is_alive and not owner.is_proxy:
        return Nowhere()
    names = [one.process for one in seen.listed]
    if owner.is_alive and owner.record.owner == seen.here:
        return Here(is_early=True)
    if owner.is_alive and owner.record.owner not in seen.suspected:
        listed = owner.record.owner in names
        return AtProxy(owner.record.owner) if listed else NowhereYet()
    home = seen.region
    if owner.record.presence and owner.region is not None:
        home = owner.region
    asked = [
        one
        for one in seen.listed
        if one.process not in _passed_over(seen) or one.process == seen.here
    ]
    if stream_home is not None:
        asked = [one for one in asked if one.region == stream_home]
        if not asked and seen.region != stream_home:
            return HomeAway(stream_home)
    near = [one for one in asked if one.region == home]
    order = ranking(PARTITION, None, near or asked)
    if not order or order[0] == seen.here:
        return Here(is_early=owner.is_alive)
    return AtProxy(order[0])


@given(st.data(), clusters())
def test_every_decision_is_that_of_a_naive_model(data: st.DataObject, cluster: Cluster) -> None:
    seen = data.draw(st.sampled_from(list(cluster.views.values())))
    names = [one.process for one in cluster.running]
    name = data.draw(st.sampled_from([*names, "proxy that leaves", "loader"]))
    is_proxy = name != "loader"
    is_alive = data.draw(st.booleans())
    owner = LastOwner(
        record=OwnerRecord(
            owner=name,
            presence=data.draw(st.sampled_from([seen.presence, "/x"] + [""] * (not is_alive))),
        ),
        is_alive=is_alive,
        is_proxy=is_proxy,
        region=data.draw(st.sampled_from(REGIONS)) if is_proxy else None,
    )

    home = data.draw(st.sampled_from([None, *REGIONS]))

    assert place_of_appends(PARTITION, owner, seen, home) == naive_place(owner, seen, home)


def test_a_partition_is_taken_early_only_from_a_proxy_that_looks_dead() -> None:
    owner = attrs.evolve(DEAD, is_alive=True)
    other = OwnerCandidate(process="proxy dead in eu", region="eu")
    me = OwnerCandidate(process="p", region="us")
    seen = ProxiesSeen(here="p", presence="/p", region="us", listed=[me, other])
    in_doubt = attrs.evolve(seen, suspected=[other.process])

    assert place_of_appends(PARTITION, owner, seen) == AtProxy(other.process)
    assert place_of_appends(PARTITION, owner, in_doubt) == Here(is_early=True)


def test_a_proxy_that_was_started_again_takes_what_its_earlier_process_owned() -> None:
    owner = attrs.evolve(DEAD, is_alive=True)
    seen = ProxiesSeen(here="proxy dead in eu", presence="/new", region="eu", listed=[])

    assert place_of_appends(PARTITION, owner, seen) == Here(is_early=True)


def test_a_direct_writer_keeps_its_partition() -> None:
    seen = ProxiesSeen(here="p", presence="/p", region="eu", listed=[])

    assert place_of_appends(PARTITION, DIRECT, seen) == Nowhere()


def test_a_partition_that_was_given_up_stays_in_the_region_of_its_next_client() -> None:
    near, far = (OwnerCandidate(process=one, region=one) for one in ("eu", "us"))
    seen = ProxiesSeen(here="us", presence="/us", region="us", listed=[near, far])
    left = attrs.evolve(DEAD, record=OwnerRecord(owner="proxy dead in eu"))

    assert place_of_appends(PARTITION, DEAD, seen) == AtProxy("eu")
    assert place_of_appends(PARTITION, left, seen) == Here()


def test_a_proxy_that_leaves_sends_clients_to_one_that_stays() -> None:
    other = OwnerCandidate(process="other", region="us")
    seen = ProxiesSeen(here="leaving", presence="/p", region="eu", listed=[other])

    assert place_of_appends(PARTITION, DEAD, seen) == AtProxy("other")
    assert place_of_appends(PARTITION, DEAD, attrs.evolve(seen, listed=[])) == Here()


@pytest.mark.parametrize(
    ("owner", "region"),
    [
        (owner_name("p1", "us-east"), "us-east"),
        (owner_name("one in two", "eu"), "eu"),
        ("loader in eu", None),
        ("", None),
    ],
)
def test_a_proxys_name_in_owner_records_tells_its_region(
    owner: str, region: str | None
) -> None:
    assert region_of_proxy(owner) == region
