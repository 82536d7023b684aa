"""The work behind `geolog node`."""

import math
import sys
from collections.abc import Iterator, Sequence

import attrs
import trio

from geolog.admin.node_description import describe_node
from geolog.admin.preflight import preflight as look_ahead
from geolog.admin.replacement import NodeReplacer, ReplaceReport, ReplaceTold
from geolog.cli.exits import CheckFailedError
from geolog.cli.invocation import Invocation, tell, this_invocation
from geolog.cli.session import Patience, ask, open_log, too_slow
from geolog.cli.terminal.copy_progress import CopyProgressBar
from geolog.cli.terminal.output import Plain, plain, show
from geolog.ledger.copying.fragment_copy import CopyConfig
from geolog.settings.quantities import counted
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


def list_() -> None:
    """List all storage nodes of the cluster, including those that are down."""
    nodes = ask(lambda log: log.list_nodes())
    columns = [*_COLUMNS, "past_disks"] if any(one.past_disks for one in nodes) else _COLUMNS
    show(nodes, this_invocation().config.output, columns)


def describe(node_id: str) -> None:
    """Show a node: its record, how many fragments it is in, and the status it reports."""
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
    """Flatten a document into rows: `journal.groups_count`, `directories.0.free_bytes`."""
    for name, value in document.items():
        match value:
            case dict():
                yield from _flat(value, f"{prefix}{name}.")
            case [dict(), *_]:
                numbered: dict[str, Plain] = {str(i): one for i, one in enumerate(value)}
                yield from _flat(numbered, f"{prefix}{name}.")
            case _:
                yield f"{prefix}{name}", value


def preflight(node_ids: Sequence[str]) -> None:
    """Report what restarting or losing these nodes together would put at risk."""
    report = ask(lambda log: look_ahead(log.access, node_ids))
    output = this_invocation().config.output
    if output != "table":
        show(report, output)
    elif report.risks:
        show(report.risks, output, _RISK_COLUMNS)
    names = ", ".join(report.nodes)
    if report.risks:
        raise CheckFailedError(
            f"not safe to stop {names}: {counted(len(report.risks), 'risk')} in"
            f" {counted(report.ledgers, 'ledger')}"
        )
    tell(
        f"safe to stop {names}: {counted(report.ledgers, 'ledger')} there can still be read,"
        " written and recovered"
    )


@attrs.define
class _Watch:
    """Reports the progress of a replacement."""

    bar: CopyProgressBar
    patience: Patience
    is_waiting: bool

    def on_note(self, note: str) -> None:
        """Print a step that is done or a wait that begins; both count as progress."""
        if not self.is_waiting:
            self.patience.progressed()
        self.bar.note(note)

    def on_progress(self, told: ReplaceTold) -> None:
        if not self.is_waiting:
            self.patience.progressed()
        self.bar.copied(told.copied.bytes_stored, told.ledgers_done, told.ledgers_count)


def replace(
    *, node_id: str, successor_id: str | None, rate: float | None, is_waiting: bool
) -> None:
    """Replace a node whose disk is lost: copy its data from other members to a successor."""
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
            f"node {waited_for} did not come up within --timeout: the old disk of {node_id} is"
            f" given up, and nothing is copied yet. Start {waited_for}, then run the same"
            " command again"
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
    count = counted(len(report.remaining), "ledger")
    message = f"{count} not moved off the old disk yet: {remaining}"
    if all(one.may_pass for one in report.remaining):
        raise UnavailableError(f"{message}. Run the same command again later")
    raise CheckFailedError(message)
