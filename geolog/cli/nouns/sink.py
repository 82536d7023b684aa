"""`geolog sink`: lists and deletes the names under which Spark has written to streams."""

import click

from geolog.cli.invocation import Noun, examples
from geolog.cli.late_import import done_by


@click.group(cls=Noun, name="sink")
def command() -> None:
    """List and delete sinks: the names under which Spark writes each row once.

    A batch write is forgotten 90 days after its end. A query may be started again however late,
    so its sink stays until you delete it.
    """


@command.command("ls", epilog=examples("geolog sink ls", "geolog sink ls -o jsonl"))
@done_by("geolog.cli.verbs.sink")
def list_(**_: object) -> None:
    """List the sinks of the cluster, with the latest batch of each."""


@command.command(
    epilog=examples(
        "geolog sink delete orders-2026-11-27",
        "geolog sink delete checkpoint:/data/checkpoint --yes",
    )
)
@click.argument("sink", metavar="SINK")
@click.option(
    "--force", is_flag=True, help="Also if its latest batch is not copied to its end."
)
@done_by("geolog.cli.verbs.sink")
def delete(**_: object) -> None:
    """Delete a sink whose query or write has ended for good.

    A write or query that is started again under this name later writes its last batch a second
    time. A query that is known by its checkpoints alone is refused then: give it a writer.
    """
