"""The work behind `geolog sink`."""

import attrs

from geolog.cli.arguments import confirm
from geolog.cli.invocation import this_invocation
from geolog.cli.session import ask
from geolog.cli.terminal.output import show
from geolog.client.staging.sink_listing import delete_sink, list_sinks

_COLUMNS = ("sink", "kind", "batch", "records", "is_copied")


def list_() -> None:
    """List the sinks of the cluster, with the latest batch of each."""
    found = ask(list_sinks)
    output = this_invocation().config.output
    if output == "table":
        show([attrs.asdict(one) for one in found], output, _COLUMNS, empty="no sinks")
    else:
        show(found, output)


def delete(*, sink: str, force: bool) -> None:
    """Delete a sink whose query or write has ended for good."""
    confirm(f"Delete sink {sink} permanently?")
    ask(lambda log: delete_sink(log, sink, force=force))
