"""`geolog node`: the storage nodes."""

import math
import sys
from collections.abc import Iterator, Sequence

import attrs
import click
import trio

from geolog.admin.node_description import describe_node
from geolog.admin.preflight import preflight as look_ahead
from geolog.admin.replacement import NodeReplacer, ReplaceReport, ReplaceTold
from geolog.cli.exits import CheckFailedError
from geolog.cli.invocation import Invocation, Noun, examples, tell, this_invocation
from geolog.cli.session import Patience, ask, open_log, too_slow
from geolog.cli.settings.quantities import parse_bytes_per_second
from geolog.cli.terminal.copy_progress import CopyProgressBar
from geolog.cli.terminal.output import Plain, plain, show
from geolog.ledger.copying.fragment_copy import CopyConfig
from topology.errors import UnavailableError

_COLUMNS = ("node_id", "state", "address", "location")
_RISK_COLUMNS = ("ledger", "stream", "state", "risk", "is_so_now", "why")
_REPLACE_COLUMNS = (
    "node_id",
    "successor",
    "ledgers",
    "fragments_changed",
    "copies_stored",
    "bytes_stored",
)


@click.group(cls=Noun, name="node")
def command() -> None:
    """The storage nodes."""


@command.command(
    "ls",
    epilog=examples(
        "geolog node ls",
        "geolog node ls -o jsonl",
    ),
)
def list_() -> None:
    """List all nodes that the cluster knows, also those that are down.

    With -o json also the instance that each one's disk makes it.
    """
    show(ask(lambda log: log.list_nodes()), this_invocation().config.output, _COLUMNS)


@command.command(epilog=examples("geolog node describe eu-west-storage-1"))
@click.argument("node_id", metavar="ID")
def describe(node_id: str) -> None:
    """Show all that is known of a node: its record, where it stands, and its own status."""
    details = ask(lambda log: describe_node(log.access, node_id))
    output = this_invocation().config.output
    if output != "table":
        show(details, output)
        return
    document = plain(details)
    assert isinstance(document, dict)
    status = document.pop("status")
    show(document, output)
    if isinstance(status, dict):
        print()
        known = document.keys()
        rows = {name: one for name, one in _flat(status) if name not in known}
        show(rows, output)


def _flat(document: dict[str, Plain], prefix: str = "") -> Iterator[tuple[str, Plain]]:
    """A nested document as rows: `journal.groups_count`, `directories.0.free_bytes`."""
    for name, value in document.items():
        match value:
            case dict():
                yield from _flat(value, f"{prefix}{name}.")
            case [dict(), *_]:
                numbered: dict[str, Plain] = {str(i): one for i, one in enumerate(value)}
                yield from _flat(numbered, f"{prefix}{name}.")
            case _:
                yield f"{prefix}{name}", value


@command.command(epilog=examples("geolog node preflight eu-west-storage-1 eu-west-storage-2"))
@click.argument("node_ids", metavar="ID…", nargs=-1, required=True)
def preflight(node_ids: Sequence[str]) -> None:
    """Say what a restart, or the loss, of these nodes together would put at risk.

    Ends with 10 when something would be.
    """
    report = ask(lambda log: look_ahead(log.access, node_ids))
    output = this_invocation().config.output
    if output != "table":
        show(report, output)
    elif report.risks:
        show(report.risks, output, _RISK_COLUMNS)
    names = ", ".join(report.nodes)
    if report.risks:
        raise CheckFailedError(
            f"without {names} {len(report.risks)} things would not hold"
            f" (of {report.ledgers} ledgers there)"
        )
    tell(
        f"{names} may go: every ledger there ({report.ledgers}) can be read, written and"
        " recovered all the same"
    )


@attrs.define
class _Watch:
    """What a replacement tells while it runs."""

    bar: CopyProgressBar
    patience: Patience
    is_waiting: bool

    def on_note(self, note: str) -> None:
        """A step that was done, or a wait that begins: either way there was progress."""
        if not self.is_waiting:
            self.patience.progressed()
        self.bar.note(note)

    def on_progress(self, told: ReplaceTold) -> None:
        if not self.is_waiting:
            self.patience.progressed()
        self.bar.copied(told.copied.bytes_stored, told.ledgers_done, told.ledgers_count)


@command.command(
    epilog=examples(
        "geolog node replace eu-west-storage-1",
        "geolog node replace eu-west-storage-1 --with eu-west-storage-4 --rate 50MB/s",
    )
)
@click.argument("node_id", metavar="OLD")
@click.option("--with", "successor_id", metavar="ID", help="Another node that is up.")
@click.option("--rate", type=parse_bytes_per_second, metavar="RATE", help="As 50MB/s.")
@click.option(
    "--keep-waiting", "is_waiting", is_flag=True, help="Until open ledgers let go of it too."
)
def replace(
    *, node_id: str, successor_id: str | None, rate: float | None, is_waiting: bool
) -> None:
    """Replace a node whose disk is lost: copy what it had from its peers to its successor.

    OLD must be down. Its disk is given up for good; an empty one may take its id and address,
    or another node its place (--with). Whoever is interrupted runs the same command again.

    Ends with 5 while something remains that time may heal, with 10 when it may not.
    """
    invocation = this_invocation()
    config = CopyConfig(rate_bytes_per_s=math.inf if rate is None else rate)
    report = trio.run(_replace, invocation, node_id, successor_id, config, is_waiting)
    _show_replaced(report, invocation)


async def _replace(
    invocation: Invocation,
    node_id: str,
    successor_id: str | None,
    config: CopyConfig,
    is_waiting: bool,  # noqa: FBT001 - trio.run passes by position.
) -> ReplaceReport:
    patience = Patience(invocation)
    waited_for: str | None = None
    with patience.scope, CopyProgressBar("ledgers", sys.stderr) as bar:
        watch = _Watch(bar, patience, is_waiting)
        if is_waiting:
            patience.suspend()
        async with open_log(invocation) as log:
            replacer = NodeReplacer(
                log.access, config, on_progress=watch.on_progress, on_note=watch.on_note
            )
            try:
                return await replacer.replace(
                    node_id, successor_id=successor_id, is_waiting=is_waiting
                )
            finally:
                waited_for = replacer.waiting_for
    if waited_for is not None:
        raise UnavailableError(
            f"node {waited_for} has not come up (--timeout): the old disk of {node_id} is given"
            " up, and nothing is copied yet. Run the same command again when it is up"
        )
    raise await too_slow(invocation)


def _show_replaced(report: ReplaceReport, invocation: Invocation) -> None:
    output = invocation.config.output
    if output == "table":
        show(report, output, _REPLACE_COLUMNS)
        for warning in report.warnings:
            tell(f"warning: {warning}")
    else:
        document = plain(report)
        assert isinstance(document, dict)
        show(document | {"is_complete": report.is_complete}, output)
    if report.is_complete:
        return
    remaining = "; ".join(f"ledger {one.ledger}: {one.why}" for one in report.remaining)
    message = f"{len(report.remaining)} ledgers still name the old disk: {remaining}"
    if all(one.may_pass for one in report.remaining):
        raise UnavailableError(f"{message}. Run the same command again later")
    raise CheckFailedError(message)
