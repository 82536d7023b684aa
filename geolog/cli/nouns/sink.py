"""`geolog sink`: lists and deletes the names under which Spark has written to streams."""

import attrs
import click

from geolog.cli.arguments import confirm
from geolog.cli.invocation import Noun, examples, this_invocation
from geolog.cli.session import ask
from geolog.cli.terminal.output import show
from geolog.client.staging.sink_listing import delete_sink, list_sinks

_COLUMNS = ("sink", "kind", "batch", "records", "is_copied")


@click.group(cls=Noun, name="sink")
def command() -> None:
    """List and delete sinks: the names under which Spark writes each row once.

    A batch write is forgotten 90 days after its end. A query may be started again however late,
    so its sink stays until you delete it.
    """


@command.command("ls", epilog=examples("geolog sink ls", "geolog sink ls -o jsonl"))
def list_() -> None:
    """List the sinks of the cluster, with the latest batch of each."""
    found = ask(list_sinks)
    output = this_invocation().config.output
    if output == "table":
        show([attrs.asdict(one) for one in found], output, _COLUMNS, empty="no sinks")
    else:
        show(found, output)


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
def delete(*, sink: str, force: bool) -> None:
    """Delete a sink whose query or write has ended for good.

    A write or query that is started again under this name later writes its last batch a second
    time. A query that is known by its checkpoints alone is refused then: give it a writer.
    """
    confirm(f"Delete sink {sink} permanently?")
    ask(lambda log: delete_sink(log, sink, force=force))
