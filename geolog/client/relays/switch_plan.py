"""Looks ahead at a planned move of a home, as far as that can be told without moving it."""

from collections.abc import Iterable, Sequence

import attrs

from geolog.protocol.relay_report import LinkState, RelayedStreamReport
from geolog.protocol.stream_state import StreamRecord

_CLOSE_TURNS = 3
_FLIP_TURNS = 2
"""Turns to metadata, one after another, to close the log at home, and to move the home."""

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
    catch_up_s: float | None
    """Time until the new home has caught up, at the current rate, while appends go on; None if
    it does not catch up at that rate, or the rate is not known."""
    close_s: float
    """Time to close the log at home, at least: appends wait from here on."""
    drain_s: float | None
    """Time until the new home has the rest, at least."""
    flip_s: float
    """Time of the step that moves the home, at least."""
    local_only: int
    """Records that would stay in the region of the old home; those of segments that are still
    written count only if they were read (`counts_open`)."""
    why_not: str | None
    """Why the stream cannot move now; None if nothing is known that would stop it."""

    @property
    def pause_s(self) -> float | None:
        """Time for which appends would wait, at least."""
        return None if self.drain_s is None else self.close_s + self.drain_s + self.flip_s


@attrs.frozen(kw_only=True)
class LinksSeen:
    """The links of a stream, twice: what moved in between gives the rates."""

    before: Sequence[RelayedStreamReport]
    after: Sequence[RelayedStreamReport]
    passed_s: float
    metadata_s: float
    """Time of one turn to metadata."""

    def catch_up_s(self, to: str, lag_records: int | None) -> float | None:
        """Time in which region `to` gets so many records, while others are appended."""
        if lag_records == 0:
            return 0.0
        if lag_records is None or self.passed_s <= 0:
            return None
        gained = self._moved(to, "durable_records") - self._moved(to, "tail_records")
        return lag_records * self.passed_s / gained if gained > 0 else None

    def _moved(self, to: str, what: str) -> int:
        begun = {
            one.partition: getattr(one, what) or 0 for one in self.before if one.target == to
        }
        return sum(
            (getattr(one, what) or 0) - begun.get(one.partition, 0)
            for one in self.after
            if one.target == to
        )


def is_behind(links: Sequence[RelayedStreamReport], to: str) -> bool:
    """Whether a link to region `to` has more to catch up than records on their way."""
    return any(
        one.state in (LinkState.REPLAYING, LinkState.BEHIND)
        for one in links
        if one.target == to
    )


def switch_over_plan(
    record: StreamRecord,
    to: str,
    seen: LinksSeen,
    *,
    local_only: int,
    why_never: str | None,
) -> SwitchOverPlan:
    """The plan for one stream, by the reports of its links.

    local_only: how many records would stay behind. why_never: why it cannot move there whatever
    its link does; None if it can.
    """
    links = seen.after
    mine = [one for one in links if one.target == to]
    why_not = why_never
    stuck = [one for one in mine if one.state in _STUCK]
    if why_not is None and stuck:
        worst = stuck[0]
        why_not = f"the link of partition {worst.partition} to {to} is {worst.state.value}" + (
            f": {worst.alarm}" if worst.alarm else ""
        )
    lag_records = _sum(one.lag_records for one in mine)
    round_trip_s = max(
        (one.round_trip_s for one in mine if one.round_trip_s is not None), default=None
    )
    # Records on their way are not behind: they arrive within the round trip.
    catch_up_s = seen.catch_up_s(to, lag_records) if is_behind(links, to) else 0.0
    return SwitchOverPlan(
        stream=str(record.name),
        home=record.home,
        to=to,
        partitions=record.partitions,
        state=(stuck or mine)[0].state if mine else None,
        lag_records=lag_records,
        lag_bytes=_sum(one.lag_bytes for one in mine),
        lag_s=max((one.lag_s for one in mine if one.lag_s is not None), default=None),
        round_trip_s=round_trip_s,
        catch_up_s=catch_up_s if mine and not stuck else None,
        close_s=_CLOSE_TURNS * seen.metadata_s,
        drain_s=round_trip_s,
        flip_s=_FLIP_TURNS * seen.metadata_s,
        local_only=local_only,
        why_not=why_not,
    )


def _sum(told: Iterable[int | None]) -> int | None:
    """The sum; None if one of them is not known, or there is none."""
    found = list(told)
    known = [one for one in found if one is not None]
    return sum(known) if found and len(known) == len(found) else None
