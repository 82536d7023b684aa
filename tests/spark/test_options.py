"""Options mean what they say under every spelling, and a wrong one is named with what to do."""

import pytest

import geolog
from geolog.spark.options import SourceOptions, parse_options
from topology.errors import InvalidArgumentError

NOW_US = 1_800_000_000_000_000


def parsed(**options: object) -> SourceOptions:
    given = {"zookeeper": "127.0.0.1:2181", "path": "shop/orders"}
    given |= {name: str(value) for name, value in options.items()}
    return parse_options(
        {name: value for name, value in given.items() if value != "None"},
        now_us=lambda: NOW_US,
    )


def test_spellings_of_kafka_mean_the_same() -> None:
    ours = parsed(
        path=None, streams="shop/a, shop/b", startingPosition="last:3", endingPosition="latest"
    )

    assert ours.streams == ("shop/a", "shop/b")
    assert ours == parsed(
        path=None, subscribe="shop/a,shop/b", startingOffsets="last:3", endingOffsets="latest"
    )
    assert parsed(path=None, subscribePattern="shop/.*") == parsed(
        path=None, streamsPattern="shop/.*"
    )


def test_names_are_taken_in_any_case_as_spark_hands_them_over() -> None:
    assert parsed(MINPARTITIONS=4, includeheaders="TRUE") == parsed(
        minPartitions=4, includeHeaders="true"
    )


def test_a_time_is_milliseconds_as_in_kafka_or_written_out() -> None:
    written = parsed(startingTimestamp="2026-01-31T12:00:00Z", endingTimestamp="-1h")

    assert written.start == parsed(startingTimestamp=1_769_860_800_000).start
    assert written.stop == geolog.AtTime(NOW_US - 3_600_000_000)


@pytest.mark.parametrize(
    ("text", "regions"),
    [("auto", ()), ("eu-west", ("eu-west",)), ("eu-west, us-east", ("eu-west", "us-east"))],
)
def test_a_region_is_found_or_named_or_the_first_of_several(
    text: str, regions: tuple[str, ...]
) -> None:
    assert parsed(region=text).regions == regions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minPartition": 3}, "unknown option 'minPartition'; did you mean 'minPartitions'"),
        ({"kafka.bootstrap.servers": "x:1"}, "'kafka.bootstrap.servers': a cluster of geolog"),
        ({"zookeeper": None}, "option zookeeper is missing"),
        ({"path": None}, "give one of stream, streams and streamsPattern"),
        ({"streams": "shop/a"}, "give one of stream, .*got stream, streams"),
        ({"stream": "shop/orders"}, "option stream is given twice: once as 'stream'"),
        ({"path": "shop/a,shop/b"}, "names several streams: use the option streams"),
        ({"path": None, "streams": "shop/a,shop/a"}, "streams='shop/a,shop/a' names a stream"),
        ({"path": None, "streamsPattern": "shop/("}, r"'shop/\(' is not a regular expression"),
        ({"region": "a,,b"}, "region='a,,b': use a region"),
        ({"region": "a,auto"}, "region='a,auto': use a region"),
        ({"region": "a,b,a"}, "region='a,b,a' names a region twice"),
        ({"hedge": "maybe"}, "hedge 'maybe' is not known"),
        ({"startingPosition": "soon"}, "'soon' is not a position"),
        ({"startingOffsets": '{"a":{"0":1}}'}, "is not a position in a stream: use earliest"),
        ({"startingPosition": "earliest", "startingTimestamp": "0"}, "give either startingPos"),
        ({"startingPosition": "sequence:9", "endingPosition": "sequence:3"}, "cannot end at"),
        ({"startingTimestamp": "yesterday"}, "'yesterday' must be a time"),
        ({"startingTimestamp": "9" * 17}, "is after the year 9999: give milliseconds"),
        ({"keys": "a,,b"}, "keys='a,,b' has an empty key"),
        ({"minPartitions": 0}, "minPartitions='0' must be a whole number"),
        ({"minPartitions": -1}, "minPartitions='-1' must be a whole number"),
        ({"minPartitions": 100_001}, "must be a whole number from 1 to 100000"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss='no' must be true or false"),
        ({"maxRecordsPerTrigger": 0}, "maxRecordsPerTrigger='0' must be a whole number"),
        ({"maxBytesPerTrigger": "64Mib"}, "'64Mib'"),
        ({"maxBytesPerTrigger": "0B"}, "maxBytesPerTrigger='0B' must be at least one byte"),
        ({"commitCursor": "a/b"}, "a/b"),
        ({"token": "t"}, "token is not available yet: leave it out"),
    ],
)
def test_a_wrong_option_is_named_with_what_to_do(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        parsed(**options)
