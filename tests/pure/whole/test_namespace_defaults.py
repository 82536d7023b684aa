"""Defaults of a namespace: streams that appear later have its mode, home and targets."""

import pytest
from trio.testing import MockClock

import geolog
from sim.in_process import open_in_process_cluster
from tests.pure.whole.distant_metadata import open_distant_client

REGIONS = {"us-east": 3, "eu-west": 3, "ap-northeast": 3, "small": 1}


async def test_streams_made_later_are_relayed_as_the_namespace_says(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("ap-northeast") as log,
    ):
        before = await log.create_stream("shop/before", survive="1 node")
        await log.set_namespace_defaults(
            "shop", mode="regional", home="us-east", relay_to=["eu-west", "ap-northeast"]
        )
        plain = await log.create_stream("shop/plain")
        again = await log.create_stream("shop/plain", if_not_exists=True)
        moved = await log.create_stream("shop/moved", home="eu-west")
        few = await log.create_stream("shop/few", relay_to=["eu-west"])
        alone = await log.create_stream("shop/alone", relay_to=[])
        spread = await log.create_stream("shop/spread", mode="global", survive="1 node")
        other = await log.create_stream("mill/other", survive="1 node")
        listed = await log.list_streams("shop")

    assert (before.mode, before.relay_to) == ("global", [])
    assert (plain.mode, plain.home, plain.relay_to) == (
        *("regional", "us-east"),
        ["ap-northeast", "eu-west"],
    )
    assert again.relay_to == plain.relay_to
    assert (moved.home, moved.relay_to) == ("eu-west", ["ap-northeast"])
    assert few.relay_to == ["eu-west"]
    assert (alone.home, alone.relay_to) == ("us-east", [])
    assert (spread.mode, spread.relay_to) == ("global", [])
    assert (other.mode, other.relay_to) == ("global", [])
    assert len(listed) == 6


async def test_defaults_can_be_set_before_and_without_any_stream_and_taken_back(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("us-east") as log,
    ):
        at_first = await log.namespace_defaults("mill")
        await log.set_namespace_defaults(
            "mill", mode="regional", home="us-east", relay_to=["eu-west"]
        )
        found = await log.namespace_defaults("mill")
        await log.set_namespace_defaults("mill")
        taken_back = await log.namespace_defaults("mill")

    assert at_first == taken_back
    assert (found.home, found.relay_to) == ("us-east", ("eu-west",))


async def test_a_creator_whose_server_lags_takes_the_newest_defaults_all_the_same(
    autojump_clock: MockClock,
) -> None:
    """It reads the defaults nearby, and makes the stream only if they are still the same."""
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("us-east") as log,
        open_distant_client(cluster, is_read_nearby=True) as behind,
    ):
        behind.metadata.behind.lag()
        await log.set_namespace_defaults("shop", mode="regional", home="us-east")
        first = await behind.log.create_stream("shop/first")
        await log.set_namespace_defaults("shop", mode="regional", home="eu-west")
        second = await behind.log.create_stream("shop/second")

    assert (first.mode, first.home) == ("regional", "us-east")
    assert (second.mode, second.home) == ("regional", "eu-west")


async def test_defaults_that_no_stream_could_have_are_refused_and_nothing_is_set(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("us-east") as log,
    ):
        cases: list[tuple[str, str | None, list[str]]] = [
            ("'mars' is not a region", "us-east", ["mars"]),
            ("home 'mars' is not a region", "mars", []),
            ("us-east is the home", "us-east", ["us-east"]),
            ("need a default home", None, ["eu-west"]),
        ]
        for reason, home, targets in cases:
            with pytest.raises(geolog.InvalidArgumentError, match=reason):
                await log.set_namespace_defaults(
                    "shop", mode="regional", home=home, relay_to=targets
                )
        with pytest.raises(geolog.InvalidArgumentError, match="have no home"):
            await log.set_namespace_defaults("shop", home="us-east")
        with pytest.raises(geolog.InvalidArgumentError, match="'global' is not relayed"):
            await log.set_namespace_defaults("shop", relay_to=["eu-west"])
        with pytest.raises(geolog.InvalidArgumentError, match="is not a name"):
            await log.set_namespace_defaults("no way")
        found = await log.namespace_defaults("shop")

    assert (found.mode.value, found.relay_to) == ("global", ())
