"""Options of the Spark sink, parsed once on the driver. Names are case-insensitive."""

import re
from collections.abc import Mapping

import attrs

from geolog.protocol.sink_copy import CHECKPOINT_SINK
from geolog.protocol.stream_state import StreamName
from geolog.spark.options import AUTO_REGION
from topology.errors import InvalidArgumentError
from topology.nearest import suggestion

SINK_OPTION_NAMES = (
    "zookeeper",
    "cluster",
    "gateway",
    "region",
    "stream",
    "exactlyOnce",
    "writer",
    "checkpointLocation",
    "failOnDataLoss",
)
_ALIASES = {"path": "stream", "topic": "stream"}
_BY_LOWER = {name.lower(): name for name in SINK_OPTION_NAMES} | _ALIASES
_BOOLEANS = {"true": True, "false": False}
_WRITER_LENGTH_MAX = 200


@attrs.frozen(kw_only=True)
class SinkOptions:
    """All that a write was asked for."""

    zookeeper: str
    cluster: str = "default"
    gateway: str | None = None
    region: str | None = None
    """The region of driver and tasks; None: the one where each runs."""
    stream: str | None = None
    """NAMESPACE/NAME; None: the column `stream` names it."""
    sink: str | None = None
    """The identity under which each batch is written once; None: at least once."""
    checkpoint: str = ""
    is_failing_on_data_loss: bool = True
    """Whether a query fails if rows of a batch cannot be written any more, or goes on."""


def parse_sink_options(
    given: Mapping[str, str], *, has_stream_column: bool, is_streaming: bool
) -> SinkOptions:
    """Parse the options of `write` or `writeStream`. InvalidArgumentError."""
    options = _by_name(given)
    if "zookeeper" not in options:
        raise InvalidArgumentError(
            "option zookeeper is missing: give .option('zookeeper', 'HOST:PORT')"
        )
    stream = options.get("stream")
    if stream is None and not has_stream_column:
        raise InvalidArgumentError(
            "no stream to write to: give it as .option('stream', 'shop/orders'), or for each"
            " row in a column `stream`"
        )
    if stream is not None and has_stream_column:
        raise InvalidArgumentError(
            f"stream={stream!r}, and the rows have a column `stream`, too: leave out one of the"
            " two"
        )
    if stream is not None:
        StreamName.parse(stream)
    region = options.get("region", AUTO_REGION)
    return SinkOptions(
        zookeeper=options["zookeeper"],
        cluster=options.get("cluster", "default"),
        gateway=options.get("gateway"),
        region=None if region == AUTO_REGION else region,
        stream=stream,
        sink=_sink(options, is_streaming=is_streaming),
        checkpoint=options.get("checkpointLocation", "") if is_streaming else "",
        is_failing_on_data_loss=_is_failing_on_data_loss(options, is_streaming=is_streaming),
    )


def _one_spelling(location: str) -> str:
    """A path of the local file system as one text, however it is written."""
    path = re.sub("^file:/+", "/", location)
    return re.sub("(?<!:)/+", "/", path).rstrip("/") or "/"


def _by_name(given: Mapping[str, str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for key, value in given.items():
        name = _BY_LOWER.get(key.lower())
        if name is None:
            raise InvalidArgumentError(
                f"unknown option {key!r}{suggestion(key, SINK_OPTION_NAMES)} (options of a"
                f" write: {', '.join(SINK_OPTION_NAMES)})"
            )
        if name in options:
            raise InvalidArgumentError(f"option {name} is given twice: once as {key!r}")
        options[name] = value
    return options


def _boolean(options: Mapping[str, str], name: str) -> bool:
    """An option that is true by default."""
    text = options.get(name, "true")
    if text.lower() not in _BOOLEANS:
        raise InvalidArgumentError(f"{name}={text!r} must be true or false")
    return _BOOLEANS[text.lower()]


def _is_failing_on_data_loss(options: Mapping[str, str], *, is_streaming: bool) -> bool:
    is_failing = _boolean(options, "failOnDataLoss")
    if not (is_failing or is_streaming):
        raise InvalidArgumentError(
            "failOnDataLoss=false is for streaming queries: a batch write that cannot go on is"
            " started again under another writer"
        )
    return is_failing


def _sink(options: Mapping[str, str], *, is_streaming: bool) -> str | None:
    is_exact = _boolean(options, "exactlyOnce")
    writer = options.get("writer")
    if writer is not None and not 0 < len(writer) <= _WRITER_LENGTH_MAX:
        raise InvalidArgumentError(
            f"writer has {len(writer)} characters: use 1 to {_WRITER_LENGTH_MAX}"
        )
    if not is_exact:
        if writer is not None:
            raise InvalidArgumentError(
                f"writer={writer!r} is for exactlyOnce only: leave out one of the two options"
            )
        return None
    if writer is not None:
        return writer
    if is_streaming and options.get("checkpointLocation"):
        return f"{CHECKPOINT_SINK}{_one_spelling(options['checkpointLocation'])}"
    what = (
        "an explicit checkpointLocation, or give the query a name with .option('writer', NAME)"
        if is_streaming
        else "a name for this run, e.g. .option('writer', 'orders-2026-11-27')"
    )
    raise InvalidArgumentError(
        f"exactlyOnce needs {what}: without it, a repeated batch cannot be recognised. To write"
        " at least once instead, give .option('exactlyOnce', 'false')"
    )
