"""The work behind `geolog relay switch-over`."""

import sys
from collections.abc import Sequence
from functools import partial

import attrs

from geolog.background import all_of
from geolog.cli.arguments import confirm
from geolog.cli.home_moves import check_one_or_all, move_each, streams_to_move
from geolog.cli.invocation import tell, this_invocation
from geolog.cli.session import open_log
from geolog.cli.signals import run_to_a_signal
from geolog.cli.terminal.output import show
from geolog.cli.terminal.progress import Progress
from geolog.client.log import Log
from geolog.client.relays.switch_plan import SwitchOverPlan
from geolog.partition.home_switch import SwitchOverReport
from geolog.settings.quantities import counted
from topology.errors import GeologError


def switch_over(
    *,
    stream: str | None,
    home: str | None,
    to: str,
    dry_run: bool,
    within_s: float,
    parallel: int,
) -> None:
    """Make a target the home of a stream, without losing a record."""
    check_one_or_all(stream, home)
    if home is not None and not dry_run:
        confirm(f"Move the home of all streams in {home} to {to}?")
    wish = _Wish(stream, home, to, is_dry=dry_run, within_s=within_s, parallel=parallel)
    run_to_a_signal(_switch_over, wish)


@attrs.frozen
class _Wish:
    stream: str | None
    home: str | None
    to: str
    is_dry: bool = attrs.field(kw_only=True)
    within_s: float = attrs.field(kw_only=True)
    parallel: int = attrs.field(kw_only=True)


async def _switch_over(wish: _Wish) -> None:
    async with open_log(this_invocation()) as log:
        names = await streams_to_move(log, wish.stream, wish.home)
        if wish.is_dry:
            await _show_plans(log, names, wish)
            return
        home_epoch: int | None = None
        if wish.stream is not None:
            found = await log.home_of(wish.stream)
            # Nothing else runs meanwhile; the session lives in other threads.
            confirm(f"Move the home of {wish.stream} from {found.region} to {wish.to}?")
            wish, home_epoch = attrs.evolve(wish, home=found.region), found.home_epoch
        await _move_all(log, names, wish, home_epoch)


async def _show_plans(log: Log, names: list[str], wish: _Wish) -> None:
    plans: list[SwitchOverPlan] = []
    failed_count = 0
    with Progress("streams planned", sys.stderr) as progress:

        async def plan(name: str) -> None:
            nonlocal failed_count
            try:
                # With many streams, reading what is still written would take too long.
                counts_open = wish.stream is not None
                plans.append(
                    await log.plan_switch_over(name, to=wish.to, counts_open=counts_open)
                )
            except GeologError as error:
                if wish.stream is not None:
                    raise
                failed_count += 1
                progress.clear()
                tell(f"{name} cannot move now: {error}")
            progress.at(len(plans) + failed_count, len(names))

        await all_of([partial(plan, one) for one in names], at_once_max=wish.parallel)
    plans.sort(key=lambda one: one.stream)
    output = this_invocation().config.output
    show(plans if output != "table" else [_plan_row(one) for one in plans], output)
    for one in plans:
        if one.why_not is not None:
            tell(f"{one.stream} cannot move now: {one.why_not}")
        elif one.catch_up_s is None:
            tell(
                f"{one.stream}: {one.to} does not catch up at the current rate: slow its"
                " writers down, or move it at a quieter time"
            )
        if one.local_only:
            least = "" if wish.stream is not None else "at least "
            count = counted(one.local_only, "local-only record")
            tell(f"{one.stream}: {least}{count} would stay in {one.home}")
    tell("nothing was changed")


def _plan_row(plan: SwitchOverPlan) -> dict[str, object]:
    return {
        "stream": plan.stream,
        "move": f"{plan.home}→{plan.to}",
        "partitions": plan.partitions,
        "state": plan.state,
        "lag_records": plan.lag_records,
        "lag_bytes": plan.lag_bytes,
        "lag_s": plan.lag_s,
        "round_trip_s": plan.round_trip_s,
        "catch_up_s": plan.catch_up_s,
        "pause_s": plan.pause_s,
        "ready": plan.why_not is None,
    }


async def _move_all(log: Log, names: list[str], wish: _Wish, home_epoch: int | None) -> None:
    """Move them from the home that was confirmed; a stream that has another by now stays."""
    failed_count = await move_each(
        log,
        {
            one: partial(
                log.switch_over,
                one,
                to=wish.to,
                home=wish.home,
                home_epoch=home_epoch,
                timeout_s=wish.within_s,
            )
            for one in names
        },
        parallel=wish.parallel,
        is_only=len(names) == 1,
        show_moved=_show_moved,
        failed="stays",
    )
    if failed_count:
        raise GeologError(
            f"{failed_count} of {len(names)} streams stay where they are; repeat the command"
            " once the reasons above are gone"
        )


def _show_moved(found: Sequence[SwitchOverReport]) -> None:
    output = this_invocation().config.output
    moved = sorted(found, key=lambda one: one.stream)
    show(moved if output != "table" else [_moved_row(one) for one in moved], output)
    for one in moved:
        if one.local_only is None:
            tell(f"{one.stream}: its local-only records stay in {one.home_before}, if any")
        elif one.local_only:
            count = counted(one.local_only, "local-only record")
            verb = "stays" if one.local_only == 1 else "stay"
            tell(f"{one.stream}: {count} {verb} in {one.home_before}")


def _moved_row(moved: SwitchOverReport) -> dict[str, object]:
    return {
        "stream": moved.stream,
        "move": f"{moved.home_before}→{moved.home}",
        "home_epoch": moved.home_epoch,
        "records": moved.records,
        "pause_s": moved.pause_s,
        "closed_s": moved.closed_s,
        "drained_s": moved.drained_s,
        "flipped_s": moved.flipped_s,
    }
