"""Options of the Spark source, parsed once on the driver.

Names are case-insensitive, as Spark's are. Spellings of Kafka's source are accepted as well.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

import attrs

from geolog.client.hedging import hedge_policy
from geolog.client.reading.bounds import EARLIEST, Bound, check_order, parse_bound
from geolog.protocol.cursor_state import check_cursor_name
from geolog.protocol.read_ranges import RANGES_MAX
from geolog.protocol.trigger_plan import NO_LIMITS, TriggerLimits
from geolog.settings.quantities import parse_bytes
from topology.errors import InvalidArgumentError
from topology.nearest import suggestion

AUTO_REGION = "auto"

_KAFKA_NAMES = {
    "subscribe": "streams",
    "subscribePattern": "streamsPattern",
    "startingOffsets": "startingPosition",
    "endingOffsets": "endingPosition",
    "path": "stream",
    "maxOffsetsPerTrigger": "maxRecordsPerTrigger",
}
OPTION_NAMES = (
    "zookeeper",
    "cluster",
    "gateway",
    "stream",
    "streams",
    "streamsPattern",
    "region",
    "hedge",
    "startingPosition",
    "endingPosition",
    "startingTimestamp",
    "endingTimestamp",
    "keys",
    "minPartitions",
    "maxRecordsPerTrigger",
    "maxBytesPerTrigger",
    "commitCursor",
    "failOnDataLoss",
    "includeHeaders",
    "includeValue",
    "includeServing",
    "pushdown",
)
LATER_NAMES = ("token",)
"""Options of what is not built yet: they are refused, never ignored."""
_LATER_BY_LOWER = {name.lower(): name for name in LATER_NAMES}
_BY_LOWER = {name.lower(): name for name in OPTION_NAMES} | {
    alias.lower(): name for alias, name in _KAFKA_NAMES.items()
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BOOLEANS = {"true": True, "false": False}


@attrs.frozen(kw_only=True)
class SourceOptions:
    """All that a read was asked for."""

    zookeeper: str
    cluster: str = "default"
    gateway: str | None = None
    streams: tuple[str, ...] = ()
    """NAMESPACE/NAME, or NAMESPACE/NAME#P."""
    streams_pattern: str | None = None
    """Regular expression that the whole name of a stream must match."""
    regions: tuple[str, ...] = ()
    """Regions to read from, the best first; empty: the one where the task runs."""
    hedge: str = "auto"
    start: Bound = EARLIEST
    stop: Bound | None = None
    keys: frozenset[bytes] | None = None
    """Only records with one of these keys; None: all records."""
    ranges_min: int = 1
    limits: TriggerLimits = NO_LIMITS
    """Of each trigger of a stream."""
    cursor: str | None = None
    """The cursor that shows how far a streaming query is."""
    is_failing_on_data_loss: bool = True
    has_headers: bool = False
    has_value: bool = True
    has_serving: bool = False
    is_pushing_down: bool = False


def parse_options(given: Mapping[str, str], *, now_us: Callable[[], int]) -> SourceOptions:
    """Parse the options of `spark.read`. InvalidArgumentError names the nearest option."""
    options = _by_name(given)
    if "zookeeper" not in options:
        raise InvalidArgumentError(
            "option zookeeper is missing: give .option('zookeeper', 'HOST:PORT')"
        )
    hedge = options.get("hedge", "auto")
    hedge_policy(hedge)
    start = _bound(options, "starting", now_us)
    stop = _bound(options, "ending", now_us)
    check_order(start or EARLIEST, stop)
    return SourceOptions(
        zookeeper=options["zookeeper"],
        cluster=options.get("cluster", "default"),
        gateway=options.get("gateway"),
        streams=_streams(options),
        streams_pattern=_pattern(options),
        regions=_regions(options.get("region", AUTO_REGION)),
        hedge=hedge,
        start=start or EARLIEST,
        stop=stop,
        keys=_keys(options.get("keys")),
        ranges_min=_count(options.get("minPartitions", "1")),
        limits=TriggerLimits(
            records=_records(options.get("maxRecordsPerTrigger")),
            bytes=_bytes(options.get("maxBytesPerTrigger")),
        ),
        cursor=_cursor(options.get("commitCursor")),
        is_failing_on_data_loss=_boolean(options, "failOnDataLoss", default=True),
        has_headers=_boolean(options, "includeHeaders", default=False),
        has_value=_boolean(options, "includeValue", default=True),
        has_serving=_boolean(options, "includeServing", default=False),
        is_pushing_down=_boolean(options, "pushdown", default=False),
    )


def _by_name(given: Mapping[str, str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for key, value in given.items():
        name = _BY_LOWER.get(key.lower())
        if name is None and key.lower() in _LATER_BY_LOWER:
            raise InvalidArgumentError(
                f"option {_LATER_BY_LOWER[key.lower()]} is not available yet: leave it out"
                " (tokens come later)"
            )
        if name is None:
            if key.lower().startswith("kafka."):
                raise InvalidArgumentError(
                    f"unknown option {key!r}: a cluster of geolog is named by its ZooKeeper,"
                    " e.g. .option('zookeeper', 'HOST:PORT')"
                )
            known = [*OPTION_NAMES, *_KAFKA_NAMES]
            raise InvalidArgumentError(
                f"unknown option {key!r}{suggestion(key, known)} (options:"
                f" {', '.join(OPTION_NAMES)})"
            )
        if name in options:
            raise InvalidArgumentError(f"option {name} is given twice: once as {key!r}")
        options[name] = value
    return options


def _streams(options: Mapping[str, str]) -> tuple[str, ...]:
    given = [name for name in ("stream", "streams", "streamsPattern") if name in options]
    if len(given) != 1:
        raise InvalidArgumentError(
            "give one of stream, streams and streamsPattern, e.g. .load('shop/orders');"
            f" got {', '.join(given) or 'none'}"
        )
    if given == ["streamsPattern"]:
        return ()
    names = tuple(name.strip() for name in options[given[0]].split(","))
    if given == ["stream"] and len(names) > 1:
        raise InvalidArgumentError(
            f"stream={options['stream']!r} names several streams: use the option streams"
        )
    if len(set(names)) != len(names):
        raise InvalidArgumentError(f"streams={options[given[0]]!r} names a stream twice")
    return names


def _pattern(options: Mapping[str, str]) -> str | None:
    pattern = options.get("streamsPattern")
    if pattern is None:
        return None
    try:
        re.compile(pattern)
    except re.error as error:
        raise InvalidArgumentError(
            f"streamsPattern={pattern!r} is not a regular expression: {error}"
        ) from error
    return pattern


def _regions(text: str) -> tuple[str, ...]:
    if text == AUTO_REGION:
        return ()
    regions = tuple(name.strip() for name in text.split(","))
    if not all(regions) or AUTO_REGION in regions:
        raise InvalidArgumentError(
            f"region={text!r}: use a region, regions in the order of preference, e.g."
            " 'eu-west,us-east', or 'auto'"
        )
    if len(set(regions)) != len(regions):
        raise InvalidArgumentError(f"region={text!r} names a region twice")
    return regions


def _keys(text: str | None) -> frozenset[bytes] | None:
    if text is None:
        return None
    keys = text.split(",")
    if not all(keys):
        raise InvalidArgumentError(
            f"keys={text!r} has an empty key: give keys separated by commas, e.g. 'ada,grace'"
        )
    return frozenset(key.encode() for key in keys)


def _bound(options: Mapping[str, str], edge: str, now_us: Callable[[], int]) -> Bound | None:
    position, timestamp = options.get(f"{edge}Position"), options.get(f"{edge}Timestamp")
    if timestamp is None:
        return None if position is None else parse_bound(position, now_us=now_us)
    if position is not None:
        raise InvalidArgumentError(f"give either {edge}Position or {edge}Timestamp, not both")
    if timestamp.isdecimal():  # Milliseconds since 1970, as Kafka has them.
        return parse_bound(f"time:{_moment(int(timestamp))}", now_us=now_us)
    return parse_bound(f"time:{timestamp}", now_us=now_us)


def _moment(time_ms: int) -> str:
    try:
        return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat()
    except OverflowError:
        raise InvalidArgumentError(
            f"time {time_ms} is after the year 9999: give milliseconds since 1970"
        ) from None


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= RANGES_MAX:
        raise InvalidArgumentError(
            f"minPartitions={text!r} must be a whole number from 1 to {RANGES_MAX}"
        )
    return int(text)


def _records(text: str | None) -> int | None:
    if text is None:
        return None
    if not _is_whole(text):
        raise InvalidArgumentError(
            f"maxRecordsPerTrigger={text!r} must be a whole number of records from 1 to 2^63-1"
        )
    return int(text)


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    if _is_whole(text):  # As Spark's own sources take it.
        return int(text)
    size_bytes = parse_bytes(text)
    if size_bytes < 1:
        raise InvalidArgumentError(f"maxBytesPerTrigger={text!r} must be at least one byte")
    return size_bytes


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 1 <= int(text[:20]) < 1 << 63


def _cursor(text: str | None) -> str | None:
    if text is not None:
        check_cursor_name(text)
    return text


def _boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in _BOOLEANS:
        raise InvalidArgumentError(f"{name}={text!r} must be true or false")
    return _BOOLEANS[text.lower()]
