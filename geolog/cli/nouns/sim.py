"""`geolog sim`: a whole cluster in a hostile world, all of it drawn from one seed."""

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import attrs
import click

from geolog.cli.exits import CheckFailedError
from geolog.cli.invocation import Noun, examples, this_invocation
from geolog.cli.settings.quantities import parse_seconds
from geolog.cli.settings.sources import Output
from geolog.cli.terminal.output import Plain, print_json, show
from sim.histories.run import SimReport, run_seed
from sim.histories.swarm import SwarmReport, run_swarm
from sim.laws.history.all_laws import Violation
from topology.errors import InvalidArgumentError

_PROGRESS_S = 5.0

_TOLD_MAX = 3
"""Violations of one history that people are told: there may be hundreds. JSON has all."""

_SEED = click.option("--seed", type=click.IntRange(min=0), required=True, metavar="N")


@click.group(cls=Noun, name="sim")
def command() -> None:
    """Deterministic simulation: the real code, faults, and the laws it must keep."""


@command.command(epilog=examples("geolog sim run --seed 7"))
@_SEED
def run(*, seed: int) -> None:
    """Run the history of one seed. Ends with 10 if a law was broken."""
    report = run_seed(seed)
    _show(report, this_invocation().config.output)
    _check(report)


@command.command(epilog=examples("geolog sim replay --seed 7 | less"))
@_SEED
def replay(*, seed: int) -> None:
    """Run the history of one seed again and print its trace, one line an event.

    The columns are the simulated time in seconds, the process, the event, its details. Ends
    with 10 if a law was broken.
    """
    lines: list[str] = []
    try:
        report = run_seed(seed, write_line=lines.append)
    finally:
        # Not line by line: a reader that leaves early must not strike the world.
        sys.stdout.writelines(f"{line}\n" for line in lines)
    _check(report)


def _time_to_begin_in(text: str) -> float:
    """A time in which a seed can be begun."""
    for_s = parse_seconds(text)
    if for_s == 0:
        raise InvalidArgumentError(f"in {text!r} no seed is begun: write a time as 30m")
    return for_s


def _seed_range(_context: click.Context, _parameter: click.Parameter, value: str) -> range:
    """`A:B`: the seeds from A on, below B."""
    first, _, end = value.partition(":")
    if not (first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise click.BadParameter(f"{value!r} is no range of seeds: write 0:100 for 0 to 99")
    return range(int(first), int(end))


@command.command(epilog=examples("geolog sim swarm --seeds 0:1000 --jobs 2 --for 30m"))
@click.option("--seeds", callback=_seed_range, required=True, metavar="A:B")
@click.option("--jobs", type=click.IntRange(1, 64), default=1, metavar="N", show_default=True)
@click.option(
    "--for",
    "for_s",
    type=_time_to_begin_in,
    metavar="TIME",
    help="Begin no further seed after so long, as 30m.",
)
def swarm(*, seeds: range, jobs: int, for_s: float | None) -> None:
    """Run the histories of many seeds. Ends with 10 if a law was broken.

    Says at the end what the seeds covered: how often each kind of fault struck, and under how
    many seeds what must happen sometimes did.
    """
    now_s = time.perf_counter  # noqa: TID251 - How fast it goes is part of the report.
    started_s = shown_s = now_s()
    told_count = 0
    so_far = SwarmReport()

    def on_seed(total: SwarmReport) -> None:
        nonlocal shown_s, told_count, so_far
        so_far = total
        for line in _lines_of(total.violations[told_count:]):
            click.echo(line, err=True)
        told_count = len(total.violations)
        if now_s() - shown_s >= _PROGRESS_S:
            shown_s = now_s()
            click.echo(_progress(total, seeds, shown_s - started_s), err=True)

    def is_time_over() -> bool:
        return for_s is not None and now_s() - started_s >= for_s

    try:
        with _interrupted_by_sigterm():
            run_swarm(seeds, jobs=jobs, on_seed=on_seed, is_time_over=is_time_over)
    finally:
        # Also of a swarm that is interrupted: what it covered may have taken an hour.
        _show_swarm(so_far, now_s() - started_s, this_invocation().config.output)
    if so_far.violations:
        first = so_far.violations[0]
        raise CheckFailedError(
            f"{len(so_far.violations)} violations; the first: {first.law}: {first.message}"
            f" (look at it with: {first.replay})"
        )


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does: else processes that it started would be left."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # As a shell sets it for `command &`.
        raise KeyboardInterrupt
    signal.raise_signal(
        signal.SIGINT
    )  # While a history runs, trio says where it may be raised.


def _lines_of(violations: Sequence[Violation]) -> Iterator[str]:
    """The first violations of one history, and how many there are beside them."""
    for one in violations[:_TOLD_MAX]:
        yield f"law {one.law}: {one.message} ({one.replay})"
    if len(violations) > _TOLD_MAX:
        yield f"and {len(violations) - _TOLD_MAX} more ({violations[0].replay})"


def _progress(total: SwarmReport, seeds: range, elapsed_s: float) -> str:
    seeds_count = seeds.stop - seeds.start  # A range's own length has a bound.
    rate = total.simulated_s / max(elapsed_s, 1e-9)
    return (
        f"{total.seeds_count} of {seeds_count} seeds, {total.simulated_s:,.0f} simulated s,"
        f" {rate:.0f} a second, {len(total.violations)} violations"
    )


def _show_swarm(total: SwarmReport, elapsed_s: float, output: Output) -> None:
    document: dict[str, object] = {
        "seeds": total.seeds_count,
        "simulated_s": round(total.simulated_s, 3),
        "simulated_s_per_s": round(total.simulated_s / max(elapsed_s, 1e-9), 1),
        "acknowledged": total.acknowledged,
        "reads": total.reads,
        "events": total.events,
        "faults": dict(sorted(total.faults.items())),
        "faults_never_struck": total.faults_never_struck,
        "sometimes": dict(sorted(total.sometimes.items())),
        "never": total.never,
        "violations": [_document_of(one) for one in total.violations],
    }
    show(
        document | ({"violations": len(total.violations)} if output == "table" else {}), output
    )


def _document_of(one: Violation) -> dict[str, Plain]:
    return {"law": one.law, "message": one.message, "replay": one.replay}


def _show(report: SimReport, output: Output) -> None:
    if output == "table":
        shown = attrs.evolve(report, violations=report.violations[:_TOLD_MAX])
        show(shown, output)
        return
    print_json(
        {
            "seed": report.seed,
            "trace_hash": report.trace_hash,
            "simulated_s": report.simulated_s,
            "steps": report.steps,
            "violations": [_document_of(one) for one in report.violations],
        }
    )


def _check(report: SimReport) -> None:
    if not report.violations:
        return
    told = [f"{one.law}: {one.message}" for one in report.violations[:_TOLD_MAX]]
    if len(report.violations) > _TOLD_MAX:
        told.append(f"and {len(report.violations) - _TOLD_MAX} more")
    raise CheckFailedError(
        f"seed {report.seed} breaks the laws: {'; '.join(told)}"
        f" (look at it with: {report.violations[0].replay})"
    )
