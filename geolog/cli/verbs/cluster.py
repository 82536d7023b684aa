"""The work behind `geolog cluster`."""

import textwrap

import attrs
import trio

from geolog.catalog.descriptions import HealthReport, PlacementHealth
from geolog.cli.exits import CheckFailedError
from geolog.cli.invocation import Invocation, tell, this_invocation
from geolog.cli.session import ask, open_log, too_slow
from geolog.cli.terminal.output import show
from geolog.metadata.clusters import NoSuchClusterError
from geolog.settings.quantities import counted

_LOOK_EVERY_S = 0.25

_LINES = textwrap.TextWrapper(
    width=96,
    initial_indent="  - ",
    subsequent_indent="    ",
    break_long_words=False,
    break_on_hyphens=False,  # Node ids and options are there to be copied.
)


def health(*, is_waiting: bool, every_ledger: bool) -> None:
    """Report the cluster's health and how many more regions it can lose."""
    invocation = this_invocation()
    report = (
        trio.run(_wait_healthy, invocation, every_ledger)
        if is_waiting
        else ask(lambda log: log.health(every_ledger=every_ledger))
    )
    _show(report)
    if not report.is_healthy:
        raise CheckFailedError(in_words(report))


def status() -> None:
    """Show the same as health; exits with 0 whatever the state."""
    _show(ask(lambda log: log.health()))


def in_words(report: HealthReport) -> str:
    """State of the cluster on one line, and the reason if there is only one."""
    if len(report.reasons) == 1:
        return f"the cluster is {report.state.value}: {report.reasons[0]}"
    return f"the cluster is {report.state.value}: {len(report.reasons):,} reasons, listed above"


def _show(report: HealthReport) -> None:
    """Print the whole document; for people, only the counts of the placement."""
    output = this_invocation().config.output
    if output != "table":
        show(report, output)
        return
    document = attrs.asdict(report, recurse=False)
    document.pop("reasons")
    set_by = document.pop("regions_spare_set_by")
    document["regions_spare"] = f"{report.regions_spare} ({set_by})"
    placement = document.pop("placement")
    if isinstance(placement, PlacementHealth):
        lie = f"{placement.strict:,} strict, {placement.soft:,} soft, {placement.fail:,} fail"
        document["fragments"] = f"{lie} in {counted(placement.ledgers, 'ledger')}"
    show(document, output)
    for reason in report.reasons:
        print(_LINES.fill(reason))


async def _wait_healthy(
    invocation: Invocation,
    every_ledger: bool,  # noqa: FBT001 - trio.run passes by position.
) -> HealthReport:
    report = None
    missing: NoSuchClusterError | None = None
    told = ""
    with trio.move_on_after(invocation.config.timeout_s):
        while report is None:
            try:
                async with open_log(invocation) as log:
                    report = await log.health(every_ledger=every_ledger)
                    while not report.is_healthy:
                        if told != (told := "; ".join(report.reasons)):
                            tell(f"waiting: the cluster is {report.state.value}: {told}")
                        await trio.sleep(_LOOK_EVERY_S)
                        report = await log.health(every_ledger=every_ledger)
            except NoSuchClusterError as error:
                missing = error  # Its first storage node may still be starting.
                await trio.sleep(_LOOK_EVERY_S)
    if report is None and missing is not None:
        raise missing
    if report is None:
        raise await too_slow(invocation)
    return report
