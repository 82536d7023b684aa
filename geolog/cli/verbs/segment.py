"""The work behind `geolog segment`."""

import attrs

from geolog.catalog.descriptions import SegmentDescription
from geolog.cli.invocation import this_invocation
from geolog.cli.session import ask
from geolog.cli.terminal.output import show

# These fit 80 columns; JSON has the rest.
_COLUMNS = (
    "partition",
    "segment",
    "ledger",
    "state",
    "first_sequence",
    "last_sequence",
    "size_bytes",
    "adherence",
)


def list_(name: str, limit: int | None) -> None:
    """List the segments of a stream, oldest first; -o json adds the nodes of each."""
    segments = ask(lambda log: log.list_segments(name, limit=limit))
    output = this_invocation().config.output
    if output != "table":
        show(segments, output)
        return
    rows = [
        attrs.asdict(one, recurse=False) | {"last_sequence": _last(one)} for one in segments
    ]
    show(rows, output, _COLUMNS, empty="no segments: nothing has been appended yet")


def _last(segment: SegmentDescription) -> int | None:
    """Sequence of the last record, if there is one."""
    last = segment.last_sequence
    return None if last is None or last < segment.first_sequence else last
