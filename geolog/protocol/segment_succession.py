"""Decides when a partition's open ledger ends, and which ledger follows.

Theory of operation. One task of the owner asks for the next step, performs it, reports the
outcome, and asks again. A round ends with `Rest`: sleep until something happens, at most for
the given time. A round first gives up a prepared ledger that is too old or in a forbidden
region. Then it does one thing, the first of these that is due:

1. Entries in flight cannot be acknowledged: replace members (`Mend`), again after a pause until
   they can be. If no nodes are found for longer than the members may need to come back, go on
   in another ledger: the prepared one if it can be written without the members that are late,
   else a new one.
2. A roll has begun: once all entries are answered, move on to the prepared ledger. If it cannot
   be written any more, go on in the open one; another ledger will be prepared. If the open one
   cannot take the next entry at all (`on_row_over`, in a mirror), wait for another ledger.
3. Half of the segment is written: prepare the next ledger.
4. Members have been away for a while: replace them, without hurry.
5. The ensemble is complete, but would not survive what it should, or has a member in a
   forbidden region: look for a better ledger. If there is one, roll to it.

A roll begins before an entry (`on_entry`) if the segment is full, the next ledger is prepared
and metadata answers; otherwise the open ledger goes on past its size.

A failed step is retried after a pause of its own. The pause between searches for a better
ledger doubles up to `BETTER_PAUSES_MAX` times the first; it starts again when the placement is
good, and when the switches change, since a search that failed may succeed now.

Invariants:
1. A ledger is prepared only if none is; only a better one takes the place of another.
2. `MoveOn` has a prepared ledger to move to. It comes when nothing is unanswered, or when
   entries wait that the open ledger cannot acknowledge.
3. A step that failed, and every round, is followed by `Pause` or `Rest`: no busy loop.

Rules: PROTOCOL H8, O5, O6, P2 and P5.
"""

import enum
from collections.abc import Collection

import attrs

from geolog.protocol.ids import EntryId, InstanceId
from geolog.protocol.roll import RollPolicy
from topology.ring.window_rule import Adherence
from topology.switches import PlacementSwitches

RESTING_LOOK_S = 5.0
"""How often to look at a partition that nobody writes to."""

BETTER_PAUSES_MAX = 32
"""Longest pause between searches for a better ledger, as a multiple of `better_ledger_s`."""


@attrs.frozen(kw_only=True)
class SuccessionPace:
    """How long each thing waits, or is waited for."""

    look_s: float
    """How often to look at a partition in use."""
    member_patience_s: float
    """How long entries wait for missing members before another ledger is used instead."""
    retry_delay_s: float
    """Pause after a failed replacement of members."""
    prepare_retry_s: float
    """Pause after a next ledger could not be prepared."""
    prepared_age_s_max: float
    """How long a prepared ledger may wait to be used."""
    better_ledger_s: float
    """First pause before a search for a better ledger."""


@attrs.frozen(kw_only=True)
class PreparedView:
    """The ledger that was made ahead, at one moment."""

    age_s: float
    is_forbidden: bool
    """Whether a member is in a forbidden region."""
    can_go_on: bool
    """Whether entries could be acknowledged by the members that are up."""
    members: Collection[InstanceId]


@attrs.frozen(kw_only=True)
class SegmentView:
    """The open segment and its surroundings at one moment."""

    entry_next: EntryId
    written_bytes: int
    has_unanswered: bool
    """Whether entries that were sent are not acknowledged."""
    is_urgent: bool
    """Whether entries in flight cannot be acknowledged, or have waited too long."""
    is_keeping_due: bool
    """Whether members should be replaced though no entry waits for it."""
    members_late: Collection[InstanceId]
    """Members that hold back the oldest entry in flight."""
    adherence: Adherence
    keeps_promise: bool
    """Whether the ensemble survives the losses that the stream was promised to survive."""
    is_forbidden: bool
    """Whether a member is in a forbidden region."""
    switches: PlacementSwitches
    prepared: PreparedView | None

    @property
    def is_well_placed(self) -> bool:
        """Whether the ensemble survives what it must, with no member in a forbidden region."""
        return (
            self.adherence is Adherence.STRICT and self.keeps_promise and not self.is_forbidden
        )


@attrs.frozen
class Rest:
    """End the round: sleep until something happens, or for this time."""

    pause_s: float


@attrs.frozen
class Pause:
    """Wait before the next try, whatever happens."""

    pause_s: float


@attrs.frozen
class DropPrepared:
    """Discard the prepared ledger."""


@attrs.frozen
class Mend:
    """Replace members now, for entries wait; then `on_mended`."""


@attrs.frozen
class Prepare:
    """Make the next ledger, if possible without these members; `on_prepared` or not."""

    avoid: tuple[InstanceId, ...] = ()


@attrs.frozen
class MoveOn:
    """Close the open ledger at its LAC and go on in the prepared one; then `on_opened`."""


@attrs.frozen
class GoOn:
    """Send again: the open ledger goes on after all."""


@attrs.frozen
class Keep:
    """Replace members that have been away for a while; `on_not_kept` if that fails."""


@attrs.frozen
class LookForBetter:
    """Make a better placed ledger if there is one, instead of the prepared one.

    Then `on_better_prepared`; nothing if there is none.
    """


Step = Rest | Pause | DropPrepared | Mend | Prepare | MoveOn | GoOn | Keep | LookForBetter


class Sending(enum.Enum):
    """Whether an entry may be sent to the open segment."""

    GOES_ON = "goes on"
    ROLL_BEGINS = "roll begins"
    """Not any more: the task that rolls has to be woken."""
    WAITS = "waits"
    """Not until the roll is over."""


class MendOutcome(enum.Enum):
    """Result of a try to replace members that entries wait for."""

    CHANGED = "changed"
    NOT_CHANGED = "not changed"
    NO_NODES = "no nodes"
    """There are no nodes for their slots."""


@attrs.define
class _Mending:
    """A time during which entries cannot be acknowledged."""

    since_s: float
    late: tuple[InstanceId, ...]
    """Members that held back the oldest entry when it began."""
    is_pause_due: bool = False
    is_given_up: bool = False
    """Another ledger is needed."""
    has_new_ledger: bool = False
    """That ledger was made for this purpose, with the best members there are."""


class SegmentSuccession:
    """The segments of one partition under one owner; starts as rolling to the first."""

    def __init__(
        self, roll: RollPolicy, pace: SuccessionPace, switches: PlacementSwitches
    ) -> None:
        """switches: as they are now."""
        self._roll = roll
        self._pace = pace
        self.is_rolling = True
        self._is_row_over = False
        """Whether the open ledger takes no further entry, so that another must follow."""
        self._opened_s = 0.0
        self._mending: _Mending | None = None
        self._is_round_over = True
        self._entry_at_rest: EntryId | None = None
        self._is_resting = False  # Nothing was sent during the last rest.
        self._prepare_not_before_s = 0.0
        self._keep_not_before_s = 0.0
        self._better_not_before_s = 0.0
        self._better_pause_s = pace.better_ledger_s
        self._switches_seen = switches

    def __repr__(self) -> str:
        return (
            f"SegmentSuccession({'rolling' if self.is_rolling else 'open'},"
            f" {self._mending!r}, better from {self._better_not_before_s:g})"
        )

    # Entries.

    def goes_on_surely(self, *, has_prepared: bool) -> bool:
        """Whether an entry may be sent and begins no roll, whatever the time is."""
        return not (has_prepared or self.is_rolling)

    def on_entry(
        self,
        *,
        written_bytes: int,
        has_prepared: bool,
        is_metadata_reachable: bool,
        now_s: float,
    ) -> Sending:
        """An entry is about to be sent to the open segment; this may begin a roll."""
        if self.is_rolling:
            return Sending.WAITS
        if (
            has_prepared
            and is_metadata_reachable
            and self._is_full(written_bytes=written_bytes, now_s=now_s)
        ):
            self.is_rolling = True
            return Sending.ROLL_BEGINS
        return Sending.GOES_ON

    def on_row_over(self) -> None:
        """The next entry belongs to another row of the list, so to another ledger."""
        self.is_rolling = self._is_row_over = True

    def is_look_due(self, *, written_bytes: int, has_prepared: bool) -> bool:
        """Whether a rest should end, now that entries were sent."""
        if self._is_resting:
            return True
        return not has_prepared and self._roll.is_preparation_due(written_bytes=written_bytes)

    def _is_full(self, *, written_bytes: int, now_s: float) -> bool:
        return self._roll.is_due(written_bytes=written_bytes, age_s=now_s - self._opened_s)

    # Rounds.

    def next_step(self, view: SegmentView, *, now_s: float) -> Step:
        """The next step to perform."""
        if self._is_round_over:
            return self._rest(view)
        if self._entry_at_rest is not None:
            self._on_awake(view)
        if self._mending is None:
            if view.prepared is not None and not self._is_usable(view.prepared):
                return DropPrepared()
            if view.is_urgent:
                self._mending = _Mending(now_s, tuple(view.members_late))
        if self._mending is not None:
            return self._mend(self._mending, view)
        if self.is_rolling:
            return self._roll_over(view, now_s)
        self._is_round_over = True
        if self._is_preparation_due(view, now_s):
            return Prepare()
        if view.is_keeping_due and now_s >= self._keep_not_before_s:
            return Keep()
        self._see_placement(view, now_s)
        if now_s >= self._better_not_before_s:
            self._grow_better_pause(now_s)
            return LookForBetter()
        return self._rest(view)

    def _rest(self, view: SegmentView) -> Rest:
        self._is_round_over = False
        self._entry_at_rest = view.entry_next
        # Short in use, since lateness is noticed here. Long for an idle partition: a process
        # may have thousands of them.
        return Rest(RESTING_LOOK_S if self._is_resting else self._pace.look_s)

    def _on_awake(self, view: SegmentView) -> None:
        self._is_resting = view.entry_next == self._entry_at_rest and not (
            self.is_rolling or view.has_unanswered
        )
        self._entry_at_rest = None

    def _is_usable(self, prepared: PreparedView) -> bool:
        return prepared.age_s <= self._pace.prepared_age_s_max and not prepared.is_forbidden

    # Entries that cannot be acknowledged.

    def _mend(self, mending: _Mending, view: SegmentView) -> Step:
        if mending.is_pause_due:
            mending.is_pause_due = False
            return Pause(self._pace.retry_delay_s)
        if mending.is_given_up:
            return self._leave(mending, view.prepared)
        if view.is_urgent:
            return Mend()
        self._mending = None
        return self._rest(view)

    def _leave(self, mending: _Mending, prepared: PreparedView | None) -> Step:
        if prepared is None:
            return Prepare(mending.late)
        has_late = not set(mending.late).isdisjoint(prepared.members)
        if not mending.has_new_ledger and (has_late or not prepared.can_go_on):
            return DropPrepared()
        self.is_rolling = True
        return self._move_on()

    def on_mended(self, outcome: MendOutcome, *, now_s: float) -> None:
        """Members were replaced, or not."""
        mending = self._mending
        assert mending is not None, "nothing was to be mended"
        if outcome is MendOutcome.CHANGED:
            return
        since_s = mending.since_s
        if outcome is MendOutcome.NO_NODES and now_s >= since_s + self._pace.member_patience_s:
            mending.is_given_up = True
        else:
            mending.is_pause_due = True  # The members may be back in a moment.

    # From one ledger to the next.

    def _roll_over(self, view: SegmentView, now_s: float) -> Step:
        if view.has_unanswered:
            return self._rest(view)
        if view.prepared is None:
            if self._is_row_over:
                is_pausing = now_s < self._prepare_not_before_s
                return self._rest(view) if is_pausing else Prepare()
            self.is_rolling = False
            self._is_round_over = True
            return GoOn()
        if not view.prepared.can_go_on:
            return DropPrepared()  # Members have left since.
        return self._move_on()

    def _move_on(self) -> MoveOn:
        self._mending = None
        self._is_round_over = True
        return MoveOn()

    def on_opened(self, *, now_s: float) -> None:
        """Another ledger is the open one, with a new segment."""
        self.is_rolling = self._is_row_over = False
        self._opened_s = now_s
        self._better_not_before_s = now_s + self._pace.better_ledger_s

    def _is_preparation_due(self, view: SegmentView, now_s: float) -> bool:
        if view.prepared is not None or now_s < self._prepare_not_before_s:
            return False
        written_bytes = view.written_bytes
        return self._roll.is_preparation_due(written_bytes=written_bytes) or self._is_full(
            written_bytes=written_bytes, now_s=now_s
        )

    def on_prepared(self) -> None:
        """The next ledger was made."""
        if self._mending is not None:
            self._mending.has_new_ledger = True

    def on_not_prepared(self, *, now_s: float) -> None:
        """The next ledger could not be made now; the open one goes on meanwhile."""
        mending = self._mending
        if mending is None:
            self._prepare_not_before_s = now_s + self._pace.prepare_retry_s
        else:
            mending.is_given_up, mending.is_pause_due = False, True

    def on_not_kept(self, *, now_s: float) -> None:
        """Members that were away could not be replaced now."""
        self._keep_not_before_s = now_s + self._pace.retry_delay_s

    # A better placement.

    def _see_placement(self, view: SegmentView, now_s: float) -> None:
        first_pause_s = self._pace.better_ledger_s
        if self._switches_seen != view.switches:
            self._switches_seen = view.switches
            self._better_pause_s = first_pause_s
            self._better_not_before_s = now_s
        if view.is_well_placed:
            self._better_pause_s = first_pause_s
            self._better_not_before_s = now_s + first_pause_s

    def _grow_better_pause(self, now_s: float) -> None:
        self._better_not_before_s = now_s + self._better_pause_s
        self._better_pause_s = min(
            2 * self._better_pause_s, BETTER_PAUSES_MAX * self._pace.better_ledger_s
        )

    def on_better_prepared(self) -> None:
        """A better placed ledger is the prepared one: roll to it."""
        self.is_rolling = True
        self._is_round_over = False
        self._is_resting = False
