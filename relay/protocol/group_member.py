"""One member of a region's relay group: when it coordinates, and when it stops.

Theory of operation. Members join in metadata, and are numbered in the order in which they join;
no number is used twice. The region's view names its coordinator, and the epoch in which that
coordinates. The first member in line is the coordinator's successor: the standby. It claims the
next epoch once the coordinator is not a member any more, or is suspected. A claim is a
compare-and-set of the view, so one member wins it. Members that are suspected are passed over.

A member whose connections are refused or reset is dead, as far as its host knows. One that is
silent may only be cut off from this one; two such members would depose each other for ever. So
an epoch that began by silence lasts `SILENT_PAUSE_S` before silence can end it.

A coordinator that finds another one in the view stops, and joins again at the end of the line:
whatever made it look dead may do so again. One that leaves in good order ends its membership
first, and goes on until its successor is in the view, so that no time passes between them.

Every input tells the whole of what is known; the answer is what to do now.

Rules: PROTOCOL G1 to G4.
"""

import enum
from collections.abc import Set as AbstractSet

import attrs

SILENT_PAUSE_S = 30.0
"""How long an epoch that began by silence lasts before silence can end it."""


@attrs.frozen(kw_only=True)
class GroupView:
    """A region's coordinator, and its epoch."""

    epoch: int = 0
    """0 before there was any coordinator."""
    coordinator: int = -1
    """Its number among the members."""
    is_of_silence: bool = False
    """Whether it was claimed although the coordinator before was a member, and only silent."""


class GroupRole(enum.Enum):
    """The place of a member in its group."""

    COORDINATOR = "coordinator"
    STANDBY = "standby"
    WAITING = "waiting"
    """Behind the standby."""
    OUTSIDE = "outside"
    """Not in the list of members: it has not joined, has left, or lost its session."""


@attrs.frozen
class ClaimEpoch:
    """Replace this view by one in which this member coordinates in the next epoch."""

    seen: GroupView
    epoch: int
    is_of_silence: bool


@attrs.frozen
class BeginCoordinating:
    """The epoch is this member's: open bridges."""

    epoch: int


@attrs.frozen
class StopCoordinating:
    """Close all bridges at once; then join again, unless it leaves."""

    why: str


GroupEffect = ClaimEpoch | BeginCoordinating | StopCoordinating


class GroupMember:
    """The core of one membership, under one number."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._members: tuple[int, ...] = ()
        self._view = GroupView()
        self._view_since_s = 0.0
        self._dead: AbstractSet[int] = frozenset()
        self._silent: AbstractSet[int] = frozenset()
        self._may_doubt = True
        self._coordinates_in = 0
        self._is_claiming = False
        self._is_leaving = False

    def __repr__(self) -> str:
        return f"GroupMember({self.number}, {self.role.value}, epoch {self._view.epoch})"

    @property
    def view(self) -> GroupView:
        """The view as it was seen last."""
        return self._view

    @property
    def coordinates_in(self) -> int:
        """The epoch in which this member coordinates; 0 if it does not."""
        return self._coordinates_in

    @property
    def is_succeeded(self) -> bool:
        """Whether another member coordinates in a later epoch than this one did."""
        return self._view.epoch > 0 and self._view.coordinator != self.number

    @property
    def line(self) -> tuple[int, ...]:
        """The members that may coordinate, in the order in which they would."""
        coordinator = self._view.coordinator
        behind = [one for one in self._members if one != coordinator]
        first = [coordinator] if coordinator in self._members else []
        return tuple(one for one in [*first, *behind] if not self._is_suspected(one))

    def _is_suspected(self, number: int) -> bool:
        if number == self._view.coordinator and not self._may_doubt:
            return number in self._dead
        return number in self._dead or number in self._silent

    @property
    def role(self) -> GroupRole:
        """What this member is now."""
        if self._coordinates_in:
            return GroupRole.COORDINATOR
        if self.number not in self._members:
            return GroupRole.OUTSIDE
        behind = [one for one in self.line if one != self._view.coordinator]
        return GroupRole.STANDBY if behind[:1] == [self.number] else GroupRole.WAITING

    def on_seen(
        self, members: tuple[int, ...], view: GroupView, *, now_s: float
    ) -> list[GroupEffect]:
        """The list of members, in order, and the view, as metadata has them."""
        if view.epoch < self._view.epoch:
            return []  # A server that lags; it catches up, and tells then.
        if view != self._view:
            self._view_since_s = now_s
        self._members, self._view = members, view
        return self._decide_at(now_s)

    def on_suspected(
        self, *, dead: AbstractSet[int], silent: AbstractSet[int], now_s: float
    ) -> list[GroupEffect]:
        """The members whose connections break, and those that do not answer."""
        self.note_suspected(dead=dead, silent=silent)
        return self._decide_at(now_s)

    def note_suspected(self, *, dead: AbstractSet[int], silent: AbstractSet[int]) -> None:
        """The same, for a decision with the next view: this one may be out of date."""
        self._dead, self._silent = dead - {self.number}, silent - {self.number}

    def on_claim_ended(self, *, now_s: float) -> list[GroupEffect]:
        """The claim has an answer: what it was, the view tells."""
        self._is_claiming = False
        return self._decide_at(now_s)

    def on_leaving(self) -> list[GroupEffect]:
        """This member leaves in good order: it claims nothing more."""
        self._is_leaving = True
        return []

    def on_session_lost(self) -> list[GroupEffect]:
        """The membership is gone; another member may coordinate, unseen from here."""
        self._members = ()
        return self._stop("its session with the metadata store is over")

    def _decide_at(self, now_s: float) -> list[GroupEffect]:
        waited_s = now_s - self._view_since_s
        self._may_doubt = not self._view.is_of_silence or waited_s >= SILENT_PAUSE_S
        return self._decide()

    def _decide(self) -> list[GroupEffect]:
        if self._coordinates_in:
            if self._view.coordinator != self.number:
                return self._stop(f"epoch {self._view.epoch} has another coordinator")
            if self.number not in self._members and not self._is_leaving:
                return self._stop("it is not a member any more")
            return []
        if self.number not in self._members or self._is_claiming or self._is_leaving:
            return []
        if self._view.coordinator == self.number:
            self._coordinates_in = self._view.epoch
            return [BeginCoordinating(self._view.epoch)]
        if self.line[0] != self.number:
            return []
        self._is_claiming = True
        coordinator = self._view.coordinator
        is_of_silence = coordinator in self._members and coordinator not in self._dead
        return [ClaimEpoch(self._view, self._view.epoch + 1, is_of_silence)]

    def _stop(self, why: str) -> list[GroupEffect]:
        if not self._coordinates_in:
            return []
        self._coordinates_in = 0
        return [StopCoordinating(why)]
