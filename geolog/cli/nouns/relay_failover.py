"""`geolog relay failover`: makes a target the home of streams whose home is lost."""

import time
from collections.abc import Sequence
from functools import partial

import attrs
import click

from geolog.background import all_of
from geolog.cli.arguments import confirm, stream_name
from geolog.cli.home_moves import move_each
from geolog.cli.invocation import Verb, examples, tell, this_invocation
from geolog.cli.session import ask, open_log
from geolog.cli.signals import run_to_a_signal
from geolog.cli.terminal.output import show
from geolog.client.log import Log
from geolog.client.relays.failover_plan import FailoverPlan
from geolog.partition.home_failover import FailoverReport
from geolog.protocol.failover_record import FailoverRecord
from geolog.settings.quantities import parse_seconds, short_seconds
from topology.errors import (
    GeologError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)

_PARALLEL_MAX = 64


@click.command(
    "failover",
    cls=Verb,
    epilog=examples(
        "geolog relay failover shop/carts --dry-run",
        "geolog relay failover shop/carts --to eu-west",
        "geolog relay failover --home us-east --yes",
    ),
)
@click.argument("stream", metavar="[STREAM]", required=False, type=stream_name)
@click.option("--home", metavar="REGION", help="All regional streams of this home.")
@click.option(
    "--to",
    metavar="REGION",
    help="The region to become the home; must be a target. [default: the one that lacks least]",
)
@click.option(
    "--without",
    multiple=True,
    metavar="REGION",
    help="Leave out the logs of a region that cannot be read; what only it has is kept aside"
    " once it is back. May be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would move, and what is at risk.")
@click.option("--past", is_flag=True, help="List the stream's past failovers.")
@click.option(
    "--within",
    "within_s",
    type=parse_seconds,
    default="1m",
    show_default=True,
    metavar="TIME",
    help="Give up on a stream after this long; it then keeps its home.",
)
@click.option(
    "--parallel",
    type=click.IntRange(1, _PARALLEL_MAX),
    default=8,
    show_default=True,
    help="Streams that are failed over at the same time.",
)
def failover(
    *,
    stream: str | None,
    home: str | None,
    to: str | None,
    without: tuple[str, ...],
    dry_run: bool,
    past: bool,
    within_s: float,
    parallel: int,
) -> None:
    """Make a target the new home of a stream whose home is lost.

    Records that the old home acknowledged but that reached no other region are at risk. Their
    number, as far as the targets know it, is shown first and recorded with the stream. The new
    home first fetches what it lacks from the other regions, and from the old home's nodes if
    they still answer. If the old home comes back with more records, those are kept aside
    ("geolog relay divergence"), and the old home becomes a target.

    If the home still works, use "geolog relay switch-over": it loses nothing.
    """
    if (stream is None) == (home is None):
        raise click.UsageError("name one stream, or all streams of a region with --home REGION")
    if past:
        if stream is None:
            raise click.UsageError("--past is for one stream")
        _show_past(ask(partial(_past, stream)))
        return
    wish = _Wish(
        stream,
        home,
        to,
        without=without,
        is_dry=dry_run,
        within_s=within_s,
        parallel=parallel,
    )
    run_to_a_signal(_failover, wish)


async def _past(stream: str, log: Log) -> list[FailoverRecord]:
    return await log.list_failovers(stream)


@attrs.frozen
class _Wish:
    stream: str | None
    home: str | None
    to: str | None
    without: tuple[str, ...] = attrs.field(kw_only=True)
    is_dry: bool = attrs.field(kw_only=True)
    within_s: float = attrs.field(kw_only=True)
    parallel: int = attrs.field(kw_only=True)


async def _failover(wish: _Wish) -> None:
    async with open_log(this_invocation()) as log:
        if wish.stream is not None:
            names = [wish.stream]
        else:
            assert wish.home is not None
            names = await log.streams_at_home(wish.home)
            if not names:
                raise NotFoundError(f"no regional stream has its home in {wish.home!r}")
        plans = await all_of(
            [
                partial(log.plan_failover, one, to=wish.to, without=wish.without)
                for one in names
            ],
            at_once_max=wish.parallel,
        )
        now_us = log.access.now_us()
        if wish.is_dry:
            output = this_invocation().config.output
            show(
                plans if output != "table" else [_plan_row(one, now_us) for one in plans],
                output,
            )
            _tell_plans(plans, now_us)
            tell("nothing was changed")
            return
        ready = [one for one in plans if one.why_not is None]
        if len(names) == 1 and not ready:
            kind = InvalidArgumentError if plans[0].is_wrong else UnavailableError
            raise kind(f"{plans[0].why_not}. Nothing was changed")
        _tell_plans(plans, now_us)
        _confirm(ready)  # Nothing else runs meanwhile; the session lives in other threads.
        await _move_all(log, ready, len(names), wish)


def _tell_plans(plans: list[FailoverPlan], now_us: int) -> None:
    for plan in plans:
        if plan.why_not is not None:
            tell(f"{plan.stream} cannot be failed over now: {plan.why_not}")
        else:
            tell(f"{plan.stream}: {plan.home}→{plan.to}: {_risk_of(plan, now_us)}")
            lacks = sum(one.lacks_evicted for one in plan.candidates if one.region == plan.to)
            if lacks:
                tell(
                    f"{plan.to} never got {lacks:,} older records: they would be lost for good"
                )


def _risk_of(plan: FailoverPlan, now_us: int) -> str:
    """The loss in words, with the age of what it is known by."""
    if plan.home_answers:
        return "the home answers, so nothing would be lost"
    records = plan.at_risk_records
    if records is None:
        return "at risk: not known, for no target has heard where the home's log ends"
    age_s = _age_s(plan, now_us)
    if age_s is None:
        return f"at risk: {records:,} records"
    return (
        f"at risk: {records:,} records as of {short_seconds(round(age_s, 1))} ago; records"
        " that the home acknowledged since then come on top"
    )


def _age_s(plan: FailoverPlan, now_us: int) -> float | None:
    """How long ago the oldest of the tails was heard; None without any."""
    return None if plan.heard_us is None else max(0, now_us - plan.heard_us) / 1e6


def _confirm(ready: list[FailoverPlan]) -> None:
    answering = [one for one in ready if one.home_answers]
    if answering:
        confirm(
            f"The home of {_named(answering)} still answers: a switch-over would lose nothing"
            " and would not interrupt writers. Fail over all the same?"
        )
    confirm(f"Fail over {_named(ready)}?")


def _named(plans: list[FailoverPlan]) -> str:
    return plans[0].stream if len(plans) == 1 else f"{len(plans)} streams"


def _plan_row(plan: FailoverPlan, now_us: int) -> dict[str, object]:
    to = {one.region: one for one in plan.candidates}.get(plan.to)
    return {
        "stream": plan.stream,
        "move": f"{plan.home}→{plan.to or '?'}",
        "partitions": plan.partitions,
        "home_answers": plan.home_answers,
        "at_risk_records": plan.at_risk_records,
        "heard_ago_s": _age_s(plan, now_us),
        "to_fetch": None if to is None else to.lacks_records,
        "evicted": None if to is None else to.lacks_evicted,
        "ready": plan.why_not is None,
    }


async def _move_all(log: Log, plans: list[FailoverPlan], asked_count: int, wish: _Wish) -> None:
    moves = {
        one.stream: partial(
            log.failover,
            one.stream,
            to=one.to,
            home=one.home,
            home_epoch=one.home_epoch,
            confirmed=one.goes_on_at,
            without=wish.without,
            timeout_s=wish.within_s,
        )
        for one in plans
    }
    failed_count = await move_each(
        log,
        moves,
        parallel=wish.parallel,
        is_only=asked_count == 1,
        show_moved=_show_moved,
        failed="keeps its home",
    )
    failed_count += asked_count - len(plans)
    if failed_count:
        raise GeologError(
            f"{failed_count} of {asked_count} streams keep their home; fix the causes above"
            " and repeat the command"
        )


def _show_moved(found: Sequence[FailoverReport]) -> None:
    output = this_invocation().config.output
    moved = sorted(found, key=lambda one: one.stream)
    show(moved if output != "table" else [_moved_row(one) for one in moved], output)
    for one in moved:
        if one.may_answer_on:
            tell(
                f"{one.stream}: {one.home_before} may go on acknowledging appends:"
                " --on-isolation stop was set shortly before, and owners there may not know."
                f" Stop its writers in {one.home_before}"
            )


def _moved_row(moved: FailoverReport) -> dict[str, object]:
    return {
        "stream": moved.stream,
        "move": f"{moved.home_before}→{moved.home}",
        "home_epoch": moved.home_epoch,
        "nothing_lost": moved.is_nothing_lost,
        "at_risk_records": moved.at_risk_records,
        "fetched_from": ", ".join(sorted({region for _, region in moved.fetched})) or None,
        "out_of_reach": ", ".join(moved.out_of_reach) or None,
        "ended_s": moved.ended_s,
        "flipped_s": moved.flipped_s,
    }


def _show_past(found: list[FailoverRecord]) -> None:
    output = this_invocation().config.output
    if output != "table":
        show(found, output)
        return
    show(
        [
            {
                "home_epoch": one.home_epoch,
                "move": f"{one.home_before}→{one.home}",
                "nothing_lost": one.is_nothing_lost,
                "at_risk_records": sum(part.records_count or 0 for part in one.ranges),
                "decided": time.strftime(
                    "%Y-%m-%dT%H:%M:%SZ", time.gmtime(one.decided_us / 1e6)
                ),
                "who": one.who,
            }
            for one in found
        ],
        output,
        empty="no failovers",
    )
