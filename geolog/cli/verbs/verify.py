"""The work behind `geolog verify`."""

import sys

import attrs
import trio

from geolog.admin.verification import VerifyReport
from geolog.cli.exits import CheckFailedError
from geolog.cli.invocation import Invocation, this_invocation
from geolog.cli.session import Patience, open_log, too_slow
from geolog.cli.terminal.output import show
from geolog.cli.terminal.progress import Progress

# Without the option itself ("full copies no" reads as a finding) and the table of nodes.
_COLUMNS = [
    each.name
    for each in attrs.fields(VerifyReport)
    if each.name not in ("full_copies", "nodes")
]


def verify(*, name: str, full_copies: bool) -> None:
    """Read and compare every copy of every entry of a stream."""
    invocation = this_invocation()
    report = trio.run(_verify, invocation, name, full_copies)
    output = invocation.config.output
    show(report, output, _COLUMNS)
    if output == "table":
        print()
        rows = [
            {"node": node_id, **attrs.asdict(found)}
            for node_id, found in sorted(report.nodes.items())
        ]
        show(rows, output)
    if not report.is_good:
        raise CheckFailedError(f"{name} failed verification: " + "; ".join(report.reasons))


async def _verify(invocation: Invocation, name: str, full_copies: bool) -> VerifyReport:  # noqa: FBT001 - trio.run passes by position.
    patience = Patience(invocation)
    with patience.scope, Progress("records verified", sys.stderr) as progress:

        def on_progress(done: int, total: int) -> None:
            patience.progressed()
            progress.at(done, total)

        async with open_log(invocation) as log:
            return await log.verify_stream(name, full_copies=full_copies, progress=on_progress)
    raise await too_slow(invocation)
