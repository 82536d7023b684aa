"""The work behind `geolog placement`."""

import json
import math
import random
import sys
from collections.abc import Iterable, Iterator

import attrs
import trio

from geolog.admin.placement.placement_description import PlacementLook, PlacementTotals
from geolog.admin.placement.placement_moves import (
    FragmentMove,
    PlacementRepairReport,
    RepairTold,
)
from geolog.admin.placement.placement_repair import PlacementRepairer
from geolog.cli.exits import CheckFailedError
from geolog.cli.invocation import Invocation, tell, this_invocation
from geolog.cli.session import Patience, open_log, too_slow
from geolog.cli.terminal.copy_progress import CopyProgressBar
from geolog.cli.terminal.long_document import LongDocument
from geolog.cli.terminal.output import Plain, plain, print_json, terminal_width
from geolog.cli.terminal.placement_table import (
    PlacementTable,
    move_line,
    several,
    totals_line,
)
from geolog.cli.terminal.progress import Progress
from geolog.ledger.copying.fragment_copy import CopyConfig
from geolog.protocol.placement_plan import RepairAims
from geolog.settings.quantities import short_bytes
from topology.errors import InvalidArgumentError, NotFoundError, UnavailableError
from topology.evaluation import evaluate


def evaluate_(file: str) -> None:
    """Simulate placement: read what-if scenarios as a JSON array, print a JSON array."""
    scenarios = _scenarios(file)
    rng = random.Random()
    answers = [plain(evaluate(one, index, rng)) for index, one in enumerate(scenarios)]
    if this_invocation().config.output == "jsonl":
        for answer in answers:
            print_json(answer)
    else:
        print_json(answers)


def _scenarios(file: str) -> list[Plain]:
    name = "stdin" if file == "-" else file
    try:
        document: Plain = json.loads(
            _text_of(file, name), parse_constant=_refuse_constant, parse_float=_finite
        )
    except json.JSONDecodeError as error:
        raise InvalidArgumentError(
            f"{name} is not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except ValueError as error:  # An integer with thousands of digits.
        raise InvalidArgumentError(f"{name} cannot be read: {error}") from None
    except RecursionError:
        raise InvalidArgumentError(f"{name} is nested too deeply") from None
    if not isinstance(document, list):
        raise InvalidArgumentError(
            f"{name} is not a JSON array of scenarios: write [{{…}}, …], even for one scenario"
        )
    return document


def _text_of(file: str, name: str) -> str:
    try:
        if file == "-":
            return sys.stdin.buffer.read().decode()
        with open(file, "rb") as opened:
            return opened.read().decode()
    except FileNotFoundError:
        raise NotFoundError(f"no such file: {file!r}") from None
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(
            f"{name} is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}"
        ) from None


def _refuse_constant(text: str) -> Plain:
    raise InvalidArgumentError(f"{text} is not a JSON value")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise InvalidArgumentError(f"number {text} is too large")
    return value


# ---------------------------------------------------------------- where fragments lie


def show_(*, name: str, is_bad_only: bool, is_check: bool) -> None:
    """Show the nodes of each fragment of a stream, and how well they adhere to its policy."""
    invocation = this_invocation()
    totals = trio.run(_show, invocation, name, is_bad_only)
    if not totals.is_good:
        complaint = f"{name}: {totals_line(totals)}"
        if totals.repairable:
            complaint += (
                f". `geolog placement repair {name}` would fix {totals.repairable:,} of them"
            )
        if is_check:
            raise CheckFailedError(complaint)
        tell(complaint)


async def _show(
    invocation: Invocation,
    name: str,
    is_bad_only: bool,  # noqa: FBT001 - trio.run passes by position.
) -> PlacementTotals:
    patience, output = Patience(invocation), invocation.config.output
    # On a terminal the rows themselves show the progress.
    is_silent = sys.stdout.isatty()
    with (
        patience.scope,
        Progress("segments checked", sys.stderr, is_silent=is_silent) as progress,
        LongDocument("fragments", output) as document,
    ):
        async with open_log(invocation) as log:
            look = await PlacementLook.begin(log.access, name)
            table = PlacementTable(
                look.regions(), look.seen.place.forbidden_regions, width=terminal_width()
            )
            while (fragments := await look.next_fragments()) is not None:
                patience.progressed()
                progress.at(look.totals.segments, look.segments_count)
                for one in fragments:
                    if is_bad_only and one.is_good:
                        continue
                    document.item(one)
                    if output == "table":
                        _print_lines(table.lines(one))
        if output == "table":
            _print_lines([*table.legend(), totals_line(look.totals)])
        document.end(
            {
                "regions": look.regions(),
                "totals": look.totals,
                "policy_outcomes": look.policy_outcomes(),
            }
        )
        return look.totals
    raise await too_slow(invocation)


def _print_lines(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)


# ---------------------------------------------------------------- repairing it


@attrs.frozen(kw_only=True)
class _RepairOptions:
    target: str | None
    aims: RepairAims
    config: CopyConfig
    is_dry_run: bool


def repair_(
    *,
    name: str | None,
    is_dry_run: bool,
    replace_down: bool,
    leave_forbidden: bool,
    rate: float | None,
) -> None:
    """Move fragments of STREAM, or of all streams, back to their policy."""
    invocation = this_invocation()
    options = _RepairOptions(
        target=name,
        aims=RepairAims(replaces_down=replace_down, leaves_forbidden=leave_forbidden),
        config=CopyConfig(rate_bytes_per_s=math.inf if rate is None else rate),
        is_dry_run=is_dry_run,
    )
    report = trio.run(_repair, invocation, options)
    for warning in report.warnings:
        tell(f"warning: {warning}")
    if not is_dry_run:
        _judge_remaining(report)


async def _repair(invocation: Invocation, options: _RepairOptions) -> PlacementRepairReport:
    patience, output = Patience(invocation), invocation.config.output
    # On a shared terminal a bar would overwrite the only line of the document.
    is_silent = output == "json" and sys.stdout.isatty()
    with (
        patience.scope,
        CopyProgressBar("segments", sys.stderr, is_silent=is_silent) as bar,
        LongDocument("moves", output) as document,
    ):

        def on_progress(told: RepairTold) -> None:
            patience.progressed()
            bar.copied(told.copied.bytes_stored, told.segments_done, told.segments_count)

        def on_move(move: FragmentMove) -> None:
            bar.clear()
            document.item(move)
            if output == "table":
                _print_lines([move_line(move)])

        async with open_log(invocation) as log:
            repairer = PlacementRepairer(
                log.access,
                options.config,
                aims=options.aims,
                is_dry_run=options.is_dry_run,
                on_move=on_move,
                on_progress=on_progress,
            )
            report = await repairer.run(options.target)
        if output == "table":
            _print_lines(_report_lines(report))
        document.end(_report_document(report))
        return report
    raise await too_slow(invocation)


def _report_lines(report: PlacementRepairReport) -> Iterator[str]:
    moved = f"{several(report.slots, 'slot')} of {several(report.moves, 'fragment')}"
    if not report.slots:
        done = "nothing to move"
    elif report.is_dry_run:
        done = f"{moved} would move, about {short_bytes(report.bytes_about)}"
    else:
        done = (
            f"{moved} moved, {report.copies_stored:,} copies"
            f" ({short_bytes(report.bytes_stored)})"
        )
    yield (
        f"{several(report.fragments, 'fragment')} in {several(report.segments, 'segment')}"
        f" checked; {done}"
    )
    if report.arrivals_cleared:
        yield (f"{several(report.arrivals_cleared, 'note')} of abandoned copies removed")
    for one in report.remaining:
        yield (
            f"{one.stream}#{one.partition} segment {one.segment} ledger {one.ledger} fragment"
            f" {one.fragment} stays {one.adherence}: {one.why}"
        )
    more = report.remaining_count - len(report.remaining)
    if more:
        yield f"and {more:,} more"


def _report_document(report: PlacementRepairReport) -> dict[str, object]:
    fields = attrs.asdict(report, recurse=False)
    moved = fields.pop("moves")  # The document uses this name for the list of moves.
    return {**fields, "fragments_moved": moved, "is_complete": report.is_complete}


def _judge_remaining(report: PlacementRepairReport) -> None:
    """Raise CheckFailedError or UnavailableError if fragments remain."""
    if report.is_complete:
        return
    count, whys = report.remaining_count, sorted({one.why for one in report.remaining})
    fragments = several(count, "fragment")
    message = f"{fragments} still not placed as the policy requires: {'; '.join(whys[:3])}"
    if report.may_pass_count == count:
        raise UnavailableError(f"{message}. Run the same command again later")
    raise CheckFailedError(message)
