"""`geolog ledger`: inspects, reads, closes and repairs the ledgers behind segments."""

import click

from geolog.cli.invocation import Noun, examples
from geolog.cli.late_import import done_by
from geolog.protocol.ids import LedgerId
from geolog.settings.quantities import parse_bytes_per_second
from topology.errors import InvalidArgumentError


def ledger_id(text: str) -> LedgerId:
    """Parse a ledger id, a decimal number."""
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidArgumentError(
            f"{text!r} is not a ledger id: give a decimal number, as listed by"
            " `geolog segment ls STREAM`"
        )
    return LedgerId(int(text))


@click.group(cls=Noun, name="ledger")
def command() -> None:
    """Inspect, read, close and repair ledgers, which hold the entries of segments."""


@command.command(epilog=examples("geolog ledger describe 12"))
@click.argument("ledger", metavar="ID", type=ledger_id)
@done_by("geolog.cli.verbs.ledger")
def describe(**_: object) -> None:
    """Show a ledger's state, and the copies that each member reports."""


@command.command(
    epilog=examples(
        "geolog ledger read 12 --count 5",
        "geolog ledger read 12 --from 100 --to 120 --values -o jsonl",
    )
)
@click.argument("ledger", metavar="ID", type=ledger_id)
@click.option(
    "--from",
    "first",
    type=int,
    default=0,
    show_default=True,
    metavar="ENTRY",
    help="First entry to read.",
)
@click.option(
    "--to",
    "last",
    type=int,
    metavar="ENTRY",
    help="Last entry to read. [default: the last of the ledger]",
)
@click.option(
    "--count", type=click.IntRange(min=0), metavar="N", help="Read at most N entries."
)
@click.option(
    "--values", "with_values", is_flag=True, help="Print the records in each entry too."
)
@done_by("geolog.cli.verbs.ledger")
def read(**_: object) -> None:
    """Read the entries of a ledger: their headers, or with --values their records.

    A ledger that is not closed is read up to the last entry known to be acknowledged.
    """


@command.command(epilog=examples("geolog ledger recover 12"))
@click.argument("ledger", metavar="ID", type=ledger_id)
@done_by("geolog.cli.verbs.ledger")
def recover(**_: object) -> None:
    """Fence a ledger and close it, even if a writer is using it."""


@command.command(
    epilog=examples(
        "geolog ledger repair 12 13",
        "geolog ledger repair --queue --rate 50MB/s",
    )
)
@click.argument("ledgers", metavar="ID…", nargs=-1, type=ledger_id)
@click.option(
    "--queue",
    "is_queue",
    is_flag=True,
    help="Repair all ledgers that are in the repair queue or in doubt.",
)
@click.option(
    "--deep",
    "is_deep",
    is_flag=True,
    help="Read every copy from disk, to find damage not noticed before.",
)
@click.option(
    "--rate",
    type=parse_bytes_per_second,
    metavar="RATE",
    help="Copy no faster than this, e.g. 50MB/s. [default: no limit]",
)
@done_by("geolog.cli.verbs.ledger")
def repair(**_: object) -> None:
    """Restore missing and damaged copies from members that have them intact.

    With --queue, also restores entries that nodes in doubt lack, and settles a node's doubt
    once it lacks none.

    Exits with 10 if a copy is still missing or a node is still in doubt; the message says what
    to do next.
    """
