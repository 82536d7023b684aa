"""`geolog verify`: reads and compares every copy of every entry of a stream."""

import click

from geolog.cli.arguments import partition_or_stream
from geolog.cli.invocation import Verb, examples
from geolog.cli.late_import import done_by


@click.command(
    cls=Verb,
    name="verify",
    epilog=examples(
        "geolog verify shop/orders",
        "geolog verify 'shop/clicks#2' --full-copies -o json",
    ),
)
@click.argument("name", metavar="STREAM[#P]", type=partition_or_stream)
@click.option(
    "--full-copies", is_flag=True, help="Also fail if an entry has fewer than W good copies."
)
@done_by("geolog.cli.verbs.verify", "verify")
def command(**_: object) -> None:
    """Read and compare every copy of every entry of a stream.

    Nodes read from disk: they bypass their own caches, and the page cache where the platform
    allows it. Ledgers with damaged or missing copies go into the repair queue.

    Exits with 10 on damage, differing copies, a gap, or an entry without an ack set.
    """
