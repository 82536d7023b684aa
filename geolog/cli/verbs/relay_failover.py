"""The work behind `geolog relay failover`."""

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

import attrs
import click

from geolog.background import all_of
from geolog.cli.arguments import confirm
from geolog.cli.home_moves import check_one_or_all, move_each, streams_to_move
from geolog.cli.invocation import tell, this_invocation
from geolog.cli.session import ask, open_log
from geolog.cli.signals import run_to_a_signal
from geolog.cli.terminal.output import show
from geolog.cli.terminal.progress import Progress
from geolog.client.log import Log
from geolog.client.relays.failover_plan import FailoverPlan, unplanned
from geolog.partition.home_failover import FailoverReport
from geolog.protocol.failover_record import FailoverRecord, RiskTotal
from geolog.settings.quantities import counted, short_bytes, short_seconds
from topology.errors import (
    GeologError,
    InvalidArgumentError,
    NoSuchStreamError,
    NotFoundError,
    UnavailableError,
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
    """Make a target the new home of a stream whose home is lost."""
    check_one_or_all(stream, home)
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
        names = await streams_to_move(log, wish.stream, wish.home)
        plans = await _plans(log, names, wish)
        if wish.is_dry:
            output = this_invocation().config.output
            show(
                [_plan_row(one) if output == "table" else _document(one) for one in plans],
                output,
            )
            _tell_plans(plans)
            tell("nothing was changed")
            return
        ready = [one for one in plans if one.why_not is None]
        if wish.stream is not None and not ready:
            kind = InvalidArgumentError if plans[0].is_wrong else UnavailableError
            raise kind(f"{plans[0].why_not}. Nothing was changed")
        _tell_plans(plans)
        if not ready:
            raise UnavailableError(
                f"none of {counted(len(plans), 'stream')} can be failed over now; nothing was"
                " changed"
            )
        _confirm(ready)  # Nothing else runs meanwhile; the session lives in other threads.
        await _move_all(log, ready, len(plans), wish)


async def _plans(log: Log, names: list[str], wish: _Wish) -> list[FailoverPlan]:
    """A plan for each stream; of several, one that cannot be planned does not stop the rest."""
    planned_count = 0
    with Progress("streams planned", sys.stderr) as progress:

        async def plan(name: str) -> FailoverPlan | None:
            nonlocal planned_count
            found: FailoverPlan | None = None
            try:
                found = await log.plan_failover(name, to=wish.to, without=wish.without)
            except NoSuchStreamError:
                if wish.stream is not None:
                    raise
                progress.clear()
                tell(f"{name} has been deleted meanwhile")
            except GeologError as error:
                if wish.stream is not None:
                    raise
                found = unplanned(name, wish.home, wish.to, str(error))
            if found is not None and wish.home not in (None, found.home):
                found = attrs.evolve(found, why_not=f"its home is {found.home} by now")
            planned_count += 1
            progress.at(planned_count, len(names))
            return found

        found = await all_of([partial(plan, one) for one in names], at_once_max=wish.parallel)
    plans = [one for one in found if one is not None]
    if not plans:
        raise NotFoundError(f"no regional stream has its home in {wish.home!r} any more")
    return plans


def _document(found: FailoverPlan | FailoverReport | FailoverRecord) -> dict[str, object]:
    """Its fields, and what is at risk in all its partitions."""
    return {**attrs.asdict(found, recurse=False), "at_risk": found.at_risk}


def _tell_plans(plans: list[FailoverPlan]) -> None:
    for plan in plans:
        if plan.why_not is not None:
            tell(f"{plan.stream} cannot be failed over now: {plan.why_not}")
            continue
        tell(f"{plan.stream}: {plan.home}→{plan.to}: {_risk_of(plan)}")
        lacks = sum(one.lacks_evicted for one in plan.candidates if one.region == plan.to)
        if lacks:
            tell(f"{plan.to} never got {lacks:,} older records: the stream would lack them")
    ready = [one for one in plans if one.why_not is None]
    leaseless = [one for one in ready if one.may_answer_on]
    if leaseless:
        tell(
            f"{_named(leaseless)}: if {leaseless[0].home} is only cut off, it goes on"
            " acknowledging appends without a lease (--on-isolation continue, or stop was set"
            " shortly before), and those diverge: stop its writers first"
        )
    wait_s = max((one.lease_wait_s for one in ready), default=0.0)
    if wait_s:
        tell(f"a failover waits up to {short_seconds(wait_s)} for leases of the old home")


def _risk_of(plan: FailoverPlan) -> str:
    """The loss in words, with the age of what it is known by."""
    if plan.home_answers:
        older = sum(one.older_records for one in plan.ranges)
        lost = f"only {older:,} older records" if older else "nothing"
        return f"the home answers, so {lost} would be lost"
    total = plan.at_risk
    parts = ""
    if plan.home_partitions_reached:
        reached = counted(plan.home_partitions_reached, "partition")
        parts = f"{reached} of {plan.partitions} at home can still be read. "
    if total.records is None:
        least = f", at least {total.records_min:,} records" if total.records_min else ""
        whose = (
            f"{total.unheard_count} of {counted(plan.partitions, 'partition')}"
            if total.unheard_count < plan.partitions
            else "the home's log"
        )
        return (
            f"{parts}At risk: not known{least}. No reachable relay knows how far {whose} had"
            " got, so it may be any number of records"
        )
    told = f"{counted(total.records, 'record')}"
    if total.records and total.bytes_max is not None:
        told += f", at most {short_bytes(total.bytes_max)}"
    if total.records and total.seconds is not None:
        told += f", {short_seconds(round(total.seconds, 1))} of appends"
    ago = (
        "an unknown time ago"
        if total.heard_ago_s is None
        else f"{short_seconds(round(total.heard_ago_s, 1))} ago"
    )
    return (
        f"{parts}At risk: {told}, as known {ago}. All that the home acknowledged since then is"
        " at risk, too"
    )


def _confirm(ready: list[FailoverPlan]) -> None:
    answering = [one for one in ready if one.home_partitions_reached]
    if answering:
        partly = "" if all(one.home_answers for one in answering) else ", at least in part"
        confirm(
            f"The home of {_named(answering)} still answers{partly}: `geolog relay switch-over`"
            " would lose nothing. Fail over all the same?"
        )
    confirm(f"Fail over {_named(ready)}?")


def _named(plans: list[FailoverPlan]) -> str:
    return plans[0].stream if len(plans) == 1 else f"{len(plans)} streams"


def _plan_row(plan: FailoverPlan) -> dict[str, object]:
    to = {one.region: one for one in plan.candidates}.get(plan.to)
    return {
        "stream": plan.stream,
        "move": f"{plan.home}→{plan.to or '?'}",
        "partitions": plan.partitions,
        "home_answers": _answering(plan),
        **_risk_row(plan.at_risk),
        "to_fetch": None if to is None else to.lacks_records,
        "evicted": None if to is None else to.lacks_evicted,
        "ready": plan.why_not is None,
    }


def _answering(plan: FailoverPlan) -> bool | str:
    if plan.home_answers or not plan.home_partitions_reached:
        return plan.home_answers
    return f"{plan.home_partitions_reached} of {plan.partitions}"


def _risk_row(total: RiskTotal) -> dict[str, object]:
    least = f"at least {total.records_min}" if total.records_min else "not known"
    return {
        "at_risk_records": least if total.records is None else total.records,
        "at_risk_bytes": total.bytes_max,
        "at_risk_s": total.seconds,
        "heard_ago_s": total.heard_ago_s,
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
            progress=_teller(one.stream) if asked_count == 1 else None,
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


def _teller(stream: str) -> Callable[[str], None]:
    """Tell each step of the failover of one stream, once."""
    told: set[str] = set()

    def tell_step(step: str) -> None:
        if step not in told:
            told.add(step)
            tell(f"{stream}: {step}")

    return tell_step


def _show_moved(found: Sequence[FailoverReport]) -> None:
    output = this_invocation().config.output
    moved = sorted(found, key=lambda one: one.stream)
    show([_moved_row(one) if output == "table" else _document(one) for one in moved], output)
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
        **_risk_row(moved.at_risk),
        "fetched_from": ", ".join(sorted({region for _, region in moved.fetched})) or None,
        "out_of_reach": ", ".join(moved.out_of_reach) or None,
        "ended_s": moved.ended_s,
        "flipped_s": moved.flipped_s,
    }


def _show_past(found: list[FailoverRecord]) -> None:
    output = this_invocation().config.output
    if output != "table":
        show([_document(one) for one in found], output)
        return
    show(
        [
            {
                "home_epoch": one.home_epoch,
                "move": f"{one.home_before}→{one.home}",
                "nothing_lost": one.is_nothing_lost,
                **_risk_row(one.at_risk),
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
