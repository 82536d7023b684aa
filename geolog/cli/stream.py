"""`geolog stream`: create, list, describe and delete streams."""

import re
from typing import Literal

import click

from geolog.cli.arguments import confirm, stream_name
from geolog.cli.invocation import Noun, this_invocation
from geolog.cli.output import show
from geolog.cli.quantities import parse_bytes
from geolog.cli.session import ask

_SURVIVE = re.compile(r"[1-9][0-9]* regions?")


@click.group(cls=Noun, name="stream")
def command() -> None:
    """Create, list, describe and delete streams."""


@command.command()
@click.argument("name", type=stream_name)
@click.option(
    "--mode",
    type=click.Choice(["global"]),
    default="global",
    help="global: durable in several regions before an append is answered.",
)
@click.option(
    "--survive", metavar="'1 region'", help="What the stream outlives; gives E, W, A, m."
)
@click.option("--ensemble", type=int, metavar="E", help="Nodes of a segment.")
@click.option("--write-quorum", type=int, metavar="W", help="Copies of an entry.")
@click.option("--ack-quorum", type=int, metavar="A", help="Copies on disk before the answer.")
@click.option("--min-regions", type=int, metavar="M", help="Distinct regions among those.")
@click.option("--durability", type=click.Choice(["regions", "count"]), default="regions")
@click.option(
    "--segment-size", type=parse_bytes, default="64MiB", show_default=True, metavar="SIZE"
)
@click.option("--if-not-exists", is_flag=True, help="An existing stream is no error.")
def create(
    *,
    name: str,
    mode: Literal["global"],
    survive: str | None,
    ensemble: int | None,
    write_quorum: int | None,
    ack_quorum: int | None,
    min_regions: int | None,
    durability: Literal["regions", "count"],
    segment_size: int,
    if_not_exists: bool,
) -> None:
    """Create the stream NAMESPACE/NAME.

    Without --survive and quorum sizes it survives the loss of one region.
    """
    sizes = (ensemble, write_quorum, ack_quorum, min_regions)
    if survive is not None and any(size is not None for size in sizes):
        raise click.UsageError("give --survive, or the quorum sizes, not both")
    if survive is not None and not _SURVIVE.fullmatch(survive):
        raise click.UsageError(
            f"--survive {survive!r}: write '1 region', or give the quorum sizes"
        )
    if all(size is None for size in sizes):
        survive = survive or "1 region"
    description = ask(
        lambda log: log.create_stream(
            name,
            survive=survive,
            ensemble_size=ensemble,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            min_regions=min_regions,
            durability=durability,
            mode=mode,
            segment_bytes=segment_size,
            if_not_exists=if_not_exists,
        )
    )
    show(description, this_invocation().config.output)


@command.command("ls")
@click.argument("namespace", required=False)
def list_(namespace: str | None) -> None:
    """List the streams, of one NAMESPACE or all."""
    names = ask(lambda log: log.list_streams(namespace))
    output = this_invocation().config.output
    show(names if output == "table" else [{"name": name} for name in names], output)


@command.command()
@click.argument("name", type=stream_name)
def describe(name: str) -> None:
    """Show how the stream is kept, and how far it reaches."""
    show(ask(lambda log: log.describe_stream(name)), this_invocation().config.output)


@command.command()
@click.argument("name", type=stream_name)
def delete(name: str) -> None:
    """Delete the stream and all its records, for good."""
    confirm(f"Delete {name} and all its records?")
    ask(lambda log: log.delete_stream(name))
