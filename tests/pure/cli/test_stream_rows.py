"""`stream ls --long`: rows for people, documents for programs, and their order."""

import attrs

from geolog.catalog.descriptions import PartitionDescription, StreamDescription
from geolog.cli.terminal.stream_rows import (
    sorted_streams,
    stream_document,
    stream_row,
    stream_settings,
)


def partition_of(
    number: int, *, owner: str | None = None, is_alive: bool = True, size_bytes: int = 0
) -> PartitionDescription:
    return PartitionDescription(
        partition=number,
        owner=owner,
        owner_epoch=1,
        owner_is_alive=is_alive,
        segments_count=1,
        last_segment=1,
        first_sequence=0,
        completed_sequence=10,
        completed_bytes=size_bytes,
    )


def stream_of(name: str, *partitions: PartitionDescription) -> StreamDescription:
    return StreamDescription(
        name=name,
        mode="global",
        home=None,
        relay_to=[],
        relay_evict_bytes=None,
        rpo_max_s=None,
        rpo_max_bytes=None,
        rpo_targets=["all"],
        on_isolation="continue",
        partitions=len(partitions),
        ensemble_size=6,
        write_quorum=6,
        ack_quorum=4,
        min_regions=2,
        durability="regions",
        policy="zone_aware",
        survive="1 region",
        segment_bytes=1 << 20,
        segment_age_s=3600.0,
        retention_s=None,
        retention_bytes=None,
        writer_retention_s=1.0,
        is_sealed=False,
        created_us=1,
        partition_list=list(partitions),
    )


def test_a_row_sums_up_the_partitions_of_a_stream() -> None:
    one = partition_of(0, owner="proxy a-1 in a", size_bytes=100)
    other = partition_of(1, owner="proxy a-1 in a", size_bytes=24)

    row = stream_row(stream_of("shop/orders", one, other))

    assert row == {
        "name": "shop/orders",
        "partitions": 2,
        "size_bytes": 124,
        "survives": "1 region",
        "owner": "proxy a-1",
        "retention": "forever",
    }


def test_the_size_of_a_stream_is_unknown_while_its_first_segment_is_open() -> None:
    assert stream_row(stream_of("s/s", partition_of(0)))["size_bytes"] is None


def test_several_owners_are_counted_and_those_that_are_gone_are_told() -> None:
    alive = partition_of(0, owner="a")
    gone = partition_of(1, owner="b", is_alive=False)

    assert stream_row(stream_of("s/s", alive, gone))["owner"] == "2 owners, 1 gone"
    assert stream_row(stream_of("s/s", gone))["owner"] == "b (gone)"
    assert stream_row(stream_of("s/s", partition_of(0)))["owner"] is None
    sealed = attrs.evolve(stream_of("s/s", alive), is_sealed=True)
    assert stream_row(sealed)["owner"] == "sealed"


def test_limits_of_retention_and_quorums_without_a_promise_are_shown() -> None:
    stream = attrs.evolve(
        stream_of("s/s", partition_of(0)),
        retention_s=604_800.0,
        retention_bytes=10 << 30,
        survive=None,
    )

    assert stream_row(stream)["retention"] == "1w, 10GiB"
    assert stream_row(stream)["survives"] == "W 6, A 4"


def test_a_document_keeps_every_owner() -> None:
    stream = stream_of("s/s", partition_of(0, owner="a"), partition_of(1, is_alive=False))

    document = stream_document(stream)

    assert (document["owners"], document["owners_alive"]) == (["a", None], [True, False])


def test_the_largest_come_first_and_equals_in_the_order_of_their_names() -> None:
    small = stream_of("s/b", partition_of(0, size_bytes=1), partition_of(1))
    large = stream_of("s/c", partition_of(0, size_bytes=2))
    equal = stream_of("s/a", partition_of(0, size_bytes=1))
    streams = [large, small, equal]

    assert sorted_streams(streams, "size") == [large, equal, small]
    assert sorted_streams(streams, "partitions") == [small, equal, large]
    assert sorted_streams(streams, "name") == [equal, small, large]
    newer = attrs.evolve(equal, created_us=9)
    assert sorted_streams([small, newer], "created") == [newer, small]


def test_settings_that_say_nothing_of_a_global_stream_are_left_out() -> None:
    anywhere = stream_of("s/s", partition_of(0))
    at_home = attrs.evolve(anywhere, mode="regional", home="eu-west", relay_to=["us-east"])
    settings = stream_settings(at_home)

    assert settings["home"] == "eu-west"
    assert settings["relay_evict_bytes"] == "holds all"
    assert settings.keys() - stream_settings(anywhere).keys() == {
        "home",
        "relay_to",
        "relay_evict_bytes",
        "on_isolation",
    }
