"""`geolog spool`: shows, exports and discards the spool of a writer."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from geolog.cli.arguments import confirm
from geolog.cli.exits import Exit
from geolog.cli.invocation import Noun, examples, tell, this_invocation
from geolog.cli.terminal.output import show
from geolog.client.spooling.spool_directory import (
    FoundSpool,
    RefusedRecord,
    discard_spool,
    holder_of,
    read_frame,
    read_spool,
    record_document,
    refused_lines,
)
from geolog.client.spooling.spool_facts import SpoolDamagedError
from geolog.protocol.spool_queue import SpooledFrame
from geolog.settings.quantities import counted
from geolog.wire.session.json_records import RECORD_KEYS

_DIRECTORY = click.Path(path_type=Path)


@click.group(cls=Noun, name="spool")
def command() -> None:
    """Show, export and discard spools: records of a writer that the log does not have yet."""
    this_invocation().takes_demo = False


@command.command("show", epilog=examples("geolog spool show /var/spool/till-7"))
@click.argument("directory", metavar="DIR", type=_DIRECTORY)
def show_(directory: Path) -> None:
    """Show what the spool in DIR is of, and how much the log has not answered.

    Exits with 10 if the spool is damaged.
    """
    found = read_spool(directory)
    facts = found.facts
    base = facts.seq_base or 0
    unanswered = [
        (frame, rows) for frame in found.frames if (rows := _unanswered(found, frame))
    ]
    document = {
        "cluster": facts.cluster,
        "stream": facts.stream,
        "writer": facts.writer_id,
        "unanswered_records": sum(len(rows) for _, rows in unanswered),
        "first_seq": unanswered[0][0].seq_first + base if unanswered else None,
        "last_seq": unanswered[-1][0].seq_last + base if unanswered else None,
        "refused_records": sum(map(len, found.refused.values())),
        "disk_bytes": sum(frame.length_bytes for frame in found.frames),
        "process": holder_of(directory),
        "damage": list(found.faults),
    }
    show(document, this_invocation().config.output)
    if found.faults:
        sys.exit(Exit.FAILED)


@command.command(
    "export",
    epilog=examples(
        "geolog spool export /var/spool/till-7 > left.jsonl",
        "geolog spool export /var/spool/till-7 | geolog append shop/orders --format jsonl",
        "geolog spool export /var/spool/till-7 --refused   # What the log refused for good.",
    ),
)
@click.argument("directory", metavar="DIR", type=_DIRECTORY)
@click.option("--refused", is_flag=True, help="Print the records that the log refused.")
def export(directory: Path, *, refused: bool) -> None:
    """Print the records in DIR that the log has not answered, one JSON object per line.

    `geolog append --format jsonl` takes them. A record that was in flight when its writer ended
    may be in the log as well: only the writer itself, with this spool, sends it again without a
    duplicate.
    """
    found = read_spool(directory)
    count = 0
    for document in _refused(directory) if refused else _left(directory, found):
        sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
        count += 1
    sys.stdout.flush()
    tell(f"{counted(count, 'record')} exported from {directory}")
    if found.faults:
        raise SpoolDamagedError(f"records are missing: {found.faults[0]}")


@command.command("discard", epilog=examples("geolog spool discard /var/spool/till-7 --yes"))
@click.argument("directory", metavar="DIR", type=_DIRECTORY)
def discard(directory: Path) -> None:
    """Delete the spool in DIR, with every record that the log does not have."""
    found = read_spool(directory)
    count = sum(len(_unanswered(found, frame)) for frame in found.frames)
    confirm(f"Delete the spool {directory} and {counted(count, 'unanswered record')} in it?")
    discard_spool(directory)
    tell(f"discarded {directory} with {counted(count, 'unanswered record')}")


def _unanswered(found: FoundSpool, frame: SpooledFrame) -> list[int]:
    """The rows of a frame without an answer."""
    if frame.number < found.mark.frame:
        return []
    first = found.mark.row if frame.number == found.mark.frame else 0
    refused = found.refused.get(frame.number, frozenset())
    return [row for row in range(first, frame.count) if row not in refused]


def _left(directory: Path, found: FoundSpool) -> Iterator[dict[str, object]]:
    for frame in found.frames:
        rows = _unanswered(found, frame)
        if not rows:
            continue
        _, batch = read_frame(directory, frame)
        for row in rows:
            yield record_document(
                RefusedRecord(
                    seq=0,
                    error="",
                    value=batch.value(row),
                    key=batch.key(row),
                    headers=batch.headers(row),
                    transaction_id=batch.transaction_id(row),
                )
            )


def _refused(directory: Path) -> Iterator[dict[str, object]]:
    for line in refused_lines(directory):
        yield {name: one for name, one in json.loads(line).items() if name in RECORD_KEYS}
