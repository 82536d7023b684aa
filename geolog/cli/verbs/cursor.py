"""The work behind `geolog cursor`."""

import time

from geolog.cli.arguments import confirm
from geolog.cli.invocation import this_invocation
from geolog.cli.session import ask
from geolog.cli.terminal.output import show
from geolog.client.cursors.cursors import CursorDescription
from geolog.client.reading.bounds import parse_bound


def list_(stream: str) -> None:
    """List the cursors of a stream, and how far each is behind its end."""
    found = ask(lambda log: log.list_cursors(stream), minds_region=True)
    output = this_invocation().config.output
    if output == "table":
        show(
            [_row(one) for one in found],
            output,
            empty=f"no cursors; make one with: geolog read {stream} --cursor NAME",
        )
    else:
        show(found, output)


def describe(stream: str, cursor: str) -> None:
    """Show a cursor: its readers, and position and lag in each partition."""
    _show(ask(lambda log: log.describe_cursor(stream, cursor), minds_region=True))


def seek(*, stream: str, cursor: str, to: str, force: bool) -> None:
    """Move a cursor in all partitions, or in one."""
    bound = parse_bound(to, now_us=_now_us)
    _show(
        ask(
            lambda log: log.seek_cursor(stream, cursor, to=bound, force=force),
            minds_region=True,
        )
    )


def _now_us() -> int:
    return time.time_ns() // 1000  # noqa: TID251 - `time:-1h` means an hour before now.


def delete(*, stream: str, cursor: str, force: bool) -> None:
    """Delete a cursor and its positions."""
    confirm(f"Delete cursor {cursor} of {stream} permanently?")
    ask(lambda log: log.delete_cursor(stream, cursor, force=force), minds_region=True)


def _row(cursor: CursorDescription) -> dict[str, object]:
    """Row of one cursor, to fit 80 columns."""
    return {
        "cursor": cursor.cursor,
        "is_shared": cursor.is_shared,
        "readers": len(cursor.readers),
        "lag_records": cursor.lag_records,
        "lag_bytes": cursor.lag_bytes,
        "lag_s": cursor.lag_s,
    }


def _show(cursor: CursorDescription) -> None:
    output = this_invocation().config.output
    if output != "table":
        show(cursor, output)
        return
    show(
        cursor,
        output,
        (
            "stream",
            "cursor",
            "is_shared",
            "created_us",
            "lag_records",
            "lag_bytes",
            "lag_s",
        ),
    )
    if cursor.readers:
        print()
        show(cursor.readers, output)
    print()
    show(
        cursor.partition_list,
        output,
        (
            "partition",
            "reader",
            "sequence",
            "end_sequence",
            "lag_records",
            "lag_bytes",
            "lag_s",
        ),
    )
