"""Looks ahead at a planned move of a home, as far as that can be told without moving it."""

from collections.abc import Iterable, Sequence

import attrs

from geolog.protocol.relay_report import LinkState, RelayedStreamReport
from geolog.protocol.stream_state import StreamRecord

_STUCK = (LinkState.PAUSED, LinkState.DOWN, LinkState.STOPPED, LinkState.CONNECTING)


@attrs.frozen(kw_only=True)
class SwitchOverPlan:
    """A planned move of one stream, before it is made."""

    stream: str
    home: str | None
    to: str
    partitions: int
    state: LinkState | None
    """Of the partition whose link is worst; None if there is no link."""
    lag_records: int | None
    """Records that the new home lacks, in all; None if a coordinator does not tell."""
    lag_bytes: int | None
    lag_s: float | None
    """Age of the oldest of them, at most."""
    round_trip_s: float | None
    """Time in which records become durable in the new home, and the old one hears of it."""
    local_only: int
    """Records that would stay in the region of the old home; those of segments that are still
    written count only if they were read (`counts_open`)."""
    why_not: str | None
    """Why the stream cannot move now; None if nothing is known that would stop it."""


def switch_over_plan(
    record: StreamRecord,
    to: str,
    links: Sequence[RelayedStreamReport],
    *,
    local_only: int,
    why_never: str | None,
) -> SwitchOverPlan:
    """The plan for one stream, by the reports of its links.

    local_only: how many records would stay behind. why_never: why it cannot move there whatever
    its link does; None if it can.
    """
    mine = [one for one in links if one.target == to]
    why_not = why_never
    stuck = [one for one in mine if one.state in _STUCK]
    if why_not is None and stuck:
        worst = stuck[0]
        why_not = f"the link of partition {worst.partition} to {to} is {worst.state.value}" + (
            f": {worst.alarm}" if worst.alarm else ""
        )
    return SwitchOverPlan(
        stream=str(record.name),
        home=record.home,
        to=to,
        partitions=record.partitions,
        state=(stuck or mine)[0].state if mine else None,
        lag_records=_sum(one.lag_records for one in mine),
        lag_bytes=_sum(one.lag_bytes for one in mine),
        lag_s=max((one.lag_s for one in mine if one.lag_s is not None), default=None),
        round_trip_s=max(
            (one.round_trip_s for one in mine if one.round_trip_s is not None), default=None
        ),
        local_only=local_only,
        why_not=why_not,
    )


def _sum(told: Iterable[int | None]) -> int | None:
    """The sum; None if one of them is not known, or there is none."""
    found = list(told)
    known = [one for one in found if one is not None]
    return sum(known) if found and len(known) == len(found) else None
