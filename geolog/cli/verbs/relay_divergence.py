"""The work behind `geolog relay divergence`."""

import json
import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import attrs
import click
import trio

from geolog.cli.arguments import confirm
from geolog.cli.invocation import tell, this_invocation
from geolog.cli.new_file import NewFile, open_new_file
from geolog.cli.session import ask, open_log
from geolog.cli.signals import run_to_a_signal
from geolog.cli.terminal.output import show
from geolog.cli.terminal.progress import Progress
from geolog.client.log import Log
from geolog.client.reading.record import Gap, GapReason, Record
from geolog.client.reading.record_documents import record_document
from geolog.client.relays.failovers import Divergence
from geolog.settings.quantities import counted
from topology.errors import DataLostError


def list_(*, stream: str) -> None:
    """List the divergences of a stream."""
    found = ask(lambda log: log.list_divergences(stream))
    output = this_invocation().config.output
    rows = [_row(one) for one in found]
    show(rows, output, empty=f"{stream} has no divergences")


def _row(one: Divergence) -> dict[str, object]:
    return {
        "divergence": one.name,
        "region": one.region,
        "home_epoch": one.home_epoch,
        "partition": one.partition,
        "from": one.from_sequence,
        "to": one.to_sequence,
        "records": one.records,
        "size_bytes": one.bytes,
    }


def show_(*, stream: str, divergence: str, count: int | None) -> None:
    """Print the records of a divergence on stdout, as JSON lines."""
    run_to_a_signal(_print, _Which(stream, divergence, count_max=count))


@attrs.frozen
class _Which:
    stream: str
    divergence: str
    count_max: int | None = attrs.field(default=None, kw_only=True)

    @property
    def region(self) -> str:
        """The region that keeps it."""
        return self.divergence.partition("~")[0]


async def _print(which: _Which) -> None:
    async with open_log(this_invocation()) as log:
        await _write_lines(log, which, sys.stdout.buffer.write, is_silent=True)
        sys.stdout.flush()


def export(*, stream: str, divergence: str, path: Path | None, into: str | None) -> None:
    """Copy the records of a divergence to a file, or into a stream."""
    if (path is None) == (into is None):
        raise click.UsageError("name a new file with --file, or a stream with --into")
    which = _Which(stream, divergence)
    if path is not None:
        _export_to_file(which, path)
    elif into is not None:
        run_to_a_signal(partial(_export_into, into), which)


def _export_to_file(which: _Which, path: Path) -> None:
    with open_new_file(path) as file:
        count = run_to_a_signal(partial(_write_to, file), which)
    tell(f"wrote {count:,} records of {which.divergence} to {path}")


async def _write_to(file: NewFile, which: _Which) -> int:
    async with open_log(this_invocation()) as log:
        return await _write_lines(log, which, file.write)


async def _export_into(into: str, which: _Which) -> None:
    left_counts: list[int] = []
    appended_count = 0
    count: int | None = None
    try:
        with Progress("records", sys.stderr) as progress:

            def on_appended(so_far: int) -> None:
                nonlocal appended_count
                appended_count = so_far
                progress.at(so_far)

            async with open_log(this_invocation()) as log:
                count = await log.export_divergence(
                    which.stream,
                    which.divergence,
                    into=into,
                    progress=on_appended,
                    left_out=left_counts.append,
                )
    finally:
        # The cancellation comes out of the connection's nurseries as a group.
        if count is None and trio.current_effective_deadline() == -math.inf:
            tell(
                f"interrupted: {into} has {appended_count:,} records of {which.divergence} so"
                " far; repeat the command for the rest, nothing is appended twice"
            )
    tell(f"{into} has the {count:,} records of {which.divergence}")
    if left_counts:
        tell(
            f"{counted(left_counts[-1], 'local-only record')} left out: to read them, use"
            f" `geolog relay divergence show` with --region {which.region}"
        )


async def _write_lines(
    log: Log, which: _Which, write: Callable[[bytes], object], *, is_silent: bool = False
) -> int:
    """Write the records of a divergence as JSON lines; the number of them."""
    count = left_count = 0
    with Progress("records", sys.stderr, is_silent=is_silent) as progress:
        async with log.open_divergence(which.stream, which.divergence) as reader:
            async for item in reader.items():
                if isinstance(item, Gap) and item.reason is GapReason.LOCAL_ONLY:
                    assert item.from_sequence is not None
                    left_count += item.to_sequence - item.from_sequence
                    continue
                if isinstance(item, Gap):
                    raise DataLostError(
                        f"records {item.from_sequence} to {item.to_sequence - 1} of"
                        f" {which.divergence} are gone from {which.region}"
                    )
                write(json.dumps(_document(item), ensure_ascii=False).encode() + b"\n")
                count += 1
                progress.at(count)
                if count == which.count_max:
                    break
    if left_count:
        tell(
            f"{counted(left_count, 'local-only record')} left out: to get them, repeat with"
            f" --region {which.region}"
        )
    return count


def _document(record: Record) -> dict[str, object]:
    document: dict[str, object] = {**record_document(record)}
    if record.writer_id is not None:
        document |= {"writer": record.writer_id, "seq": record.seq}
    return document


def discard(*, stream: str, divergence: str) -> None:
    """Delete a divergence and its records permanently."""
    confirm(f"Delete the records of {divergence} of {stream} for good?")
    ask(partial(_discard, stream, divergence))
    tell(f"discarded {divergence}")


async def _discard(stream: str, divergence: str, log: Log) -> None:
    await log.discard_divergence(stream, divergence)
