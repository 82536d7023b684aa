"""`geolog sim`: simulates a cluster under faults, everything drawn from one seed."""

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
from geolog.cli.terminal.output import Plain, print_json, show
from geolog.settings.command_config import Output
from geolog.settings.quantities import counted, parse_seconds
from sim.histories.run import SimReport, run_seed
from sim.histories.swarm import SwarmReport, run_swarm
from sim.laws.history.all_laws import Violation
from sim.world.draws.named_worlds import WORLDS
from topology.errors import InvalidArgumentError

_PROGRESS_S = 5.0

_TOLD_MAX = 3
"""Violations of one history shown to people; there may be hundreds. JSON has all of them."""

_SEED = click.option(
    "--seed", type=click.IntRange(min=0), required=True, metavar="N", help="Seed to simulate."
)

_WORLD = click.option(
    "--world",
    type=click.Choice(list(WORLDS)),
    help="Draw only worlds of this kind. [default: of all kinds]",
)


@click.group(cls=Noun, name="sim")
def command() -> None:
    """Simulate a cluster: the real code under faults, checked against its laws."""
    this_invocation().takes_demo = False


@command.command(epilog=examples("geolog sim run --seed 7"))
@_SEED
@_WORLD
def run(*, seed: int, world: str | None) -> None:
    """Simulate one seed. Exits with 10 if a law was broken."""
    report = run_seed(seed, world=world)
    _show(report, this_invocation().config.output)
    _check(report)


@command.command(epilog=examples("geolog sim replay --seed 7 | less"))
@_SEED
@_WORLD
def replay(*, seed: int, world: str | None) -> None:
    """Simulate one seed again and print its trace, one event per line.

    The columns are the simulated time in seconds, the process, the event and its details. Exits
    with 10 if a law was broken.
    """
    lines: list[str] = []
    try:
        report = run_seed(seed, world=world, write_line=lines.append)
    finally:
        # Not during the run: a reader that leaves early must not disturb the simulation.
        sys.stdout.writelines(f"{line}\n" for line in lines)
    _check(report)


def _time_to_begin_in(text: str) -> float:
    """Parse a time greater than zero."""
    for_s = parse_seconds(text)
    if for_s == 0:
        raise InvalidArgumentError(
            f"{text!r} leaves no time to run a seed: give more, e.g. 30m"
        )
    return for_s


def _seed_range(_context: click.Context, _parameter: click.Parameter, value: str) -> range:
    """Parse `A:B`: seeds from A up to, but not including, B."""
    first, _, end = value.partition(":")
    if not (first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise click.BadParameter(
            f"{value!r} is not a range of seeds: write e.g. 0:100 for 0 to 99"
        )
    return range(int(first), int(end))


@command.command(
    epilog=examples(
        "geolog sim swarm --seeds 0:1000 --jobs 2 --for 30m",
        "geolog sim swarm --seeds 0:1000 --world relays",
    )
)
@click.option(
    "--seeds",
    callback=_seed_range,
    required=True,
    metavar="A:B",
    help="Seeds from A up to, but not including, B, e.g. 0:1000.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    default=1,
    metavar="N",
    show_default=True,
    help="Number of processes.",
)
@click.option(
    "--for",
    "for_s",
    type=_time_to_begin_in,
    metavar="TIME",
    help="Start no new seed after this long, e.g. 30m. [default: no limit]",
)
@_WORLD
def swarm(*, seeds: range, jobs: int, for_s: float | None, world: str | None) -> None:
    """Simulate many seeds. Exits with 10 if a law was broken.

    Prints the coverage at the end: how often each kind of fault struck, and how many seeds
    reached each situation that must occur sometimes.
    """
    now_s = time.perf_counter  # noqa: TID251 - The report contains the real speed.
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
            run_swarm(seeds, jobs=jobs, world=world, on_seed=on_seed, is_time_over=is_time_over)
    finally:
        # Even after an interrupt: the coverage so far may have taken an hour.
        _show_swarm(so_far, now_s() - started_s, this_invocation().config.output)
    if so_far.violations:
        first = so_far.violations[0]
        raise CheckFailedError(
            f"{counted(len(so_far.violations), 'violation')}; first: {first.law}:"
            f" {first.message} (replay: {first.replay})"
        )


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block like Ctrl-C; else its child processes would stay behind."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # Set by a shell for `command &`.
        raise KeyboardInterrupt
    # While a history runs, trio decides where the interrupt may be raised.
    signal.raise_signal(signal.SIGINT)


def _lines_of(violations: Sequence[Violation]) -> Iterator[str]:
    """Lines for the first violations of one history, and a count of the others."""
    for one in violations[:_TOLD_MAX]:
        yield f"law {one.law}: {one.message} ({one.replay})"
    if len(violations) > _TOLD_MAX:
        yield f"and {len(violations) - _TOLD_MAX} more ({violations[0].replay})"


def _progress(total: SwarmReport, seeds: range, elapsed_s: float) -> str:
    seeds_count = seeds.stop - seeds.start  # len() fails for a very long range.
    rate = total.simulated_s / max(elapsed_s, 1e-9)
    return (
        f"{total.seeds_count:,} of {seeds_count:,} seeds, {total.simulated_s:,.0f} simulated s"
        f" ({rate:.0f} per second), {counted(len(total.violations), 'violation')}"
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
        f"seed {report.seed} broke a law: {'; '.join(told)}"
        f" (replay: {report.violations[0].replay})"
    )
