"""The state laws and wire laws of a world, checked again and again."""

from collections.abc import Callable, Iterator

import attrs
import trio

from sim.laws.sometimes import Sometimes
from sim.laws.state.law_01_trim_is_due import TrimIsDue
from sim.laws.state.law_02_ack_set import AckSet
from sim.laws.state.law_02_copies_stay import CopiesStay
from sim.laws.state.law_02_failed_disk import FailedDisk
from sim.laws.state.law_02_members_keep import MembersKeep
from sim.laws.state.law_02_moved_copies import MovedCopies
from sim.laws.state.law_03_sets_intersect import SetsIntersect
from sim.laws.state.law_04_closed_stays import ClosedStays
from sim.laws.state.law_04_sealed_is_closed import SealedIsClosed
from sim.laws.state.law_05_absence import AbsenceIsTrue
from sim.laws.state.law_05_closed_above_ok import ClosedAboveOk
from sim.laws.state.law_06_absent_stays import AbsentStays
from sim.laws.state.law_06_fenced_takes_nothing import FencedTakesNothing
from sim.laws.state.law_07_fence_outlives import FenceOutlives
from sim.laws.state.law_07_fenced_takes_no_adds import FencedTakesNoAdds
from sim.laws.state.law_07_full_node_fences import FullNodeFences
from sim.laws.state.law_08_addressee import Addressee
from sim.laws.state.law_08_identity import Identity
from sim.laws.state.law_09_list_in_order import ListInOrder
from sim.laws.state.law_09_times_are_near import TimesAreNear
from sim.laws.state.law_10_owners_in_order import OwnersInOrder
from sim.laws.state.law_12_lac_on_disk import LacOnDisk
from sim.laws.state.law_12_lac_rises import LacRises
from sim.laws.state.law_15_bytes_served import BytesServed
from sim.laws.state.law_15_nothing_made_up import NothingMadeUp
from sim.laws.state.law_18_mirrors_are_prefixes import MirrorsArePrefixes
from sim.laws.state.law_18_rows_in_order import RowsInOrder
from sim.laws.state.law_19_told_is_durable import ToldIsDurable
from sim.laws.state.law_20_gaps_are_recorded import GapsAreRecorded
from sim.laws.state.law_20_only_homes_relay import OnlyHomesRelay
from sim.laws.state.law_21_best_choice import BestChoice
from sim.laws.state.law_21_fragments_adhere import FragmentsAdhere
from sim.laws.state.law_22_bounds_hold import BoundsHold
from sim.laws.state.law_22_replays_are_bounded import ReplaysAreBounded
from sim.laws.state.law_24_demoted_are_asked import DemotedAreAsked
from sim.laws.state.law_26_live_owner_stays import LiveOwnerStays
from sim.laws.state.law_27_commits_in_order import CommitsInOrder
from sim.laws.state.law_28_loss_is_bounded import LossIsBounded
from sim.laws.state.seen import Looking, StateLaw
from sim.laws.state.wire import Wire, WireLaw

LOOK_S = 0.1
"""Simulated time between two looks."""


def all_state_laws() -> list[tuple[str, StateLaw]]:
    """Fresh state laws, each with its number."""
    return [
        ("1", TrimIsDue()),
        ("2", AckSet()),
        ("2", CopiesStay()),
        ("2", MovedCopies()),
        ("2", MembersKeep()),
        ("2", FailedDisk()),
        ("4", ClosedStays()),
        ("4", SealedIsClosed()),
        ("5", ClosedAboveOk()),
        ("7", FenceOutlives()),
        ("7", FencedTakesNoAdds()),
        ("8", Identity()),
        ("12", LacRises()),
        ("12", LacOnDisk()),
        ("3", SetsIntersect()),
        ("6", FencedTakesNothing()),
        ("9", ListInOrder()),
        ("9", TimesAreNear()),
        ("10", OwnersInOrder()),
        ("15", NothingMadeUp()),
        ("18", MirrorsArePrefixes()),
        ("18", RowsInOrder()),
        ("19", ToldIsDurable()),
        ("20", OnlyHomesRelay()),
        ("20", GapsAreRecorded()),
        ("21", FragmentsAdhere()),
        ("21", BestChoice()),
        ("22", BoundsHold()),
        ("22", ReplaysAreBounded()),
        ("24", DemotedAreAsked()),
        ("26", LiveOwnerStays()),
        ("27", CommitsInOrder()),
        ("28", LossIsBounded()),
    ]


def all_wire_laws() -> list[tuple[str, WireLaw]]:
    """Fresh wire laws, each with its number: they check what nodes are asked and answer."""
    return [
        ("5", AbsenceIsTrue()),
        ("6", AbsentStays()),
        ("7", FullNodeFences()),
        ("8", Addressee()),
        ("15", BytesServed()),
    ]


@attrs.define(eq=False)
class StateLaws:
    """All laws of one world: the first breach of each is reported, then the law is dropped."""

    _looking: Looking
    _on_breach: Callable[[str, str], None]
    sometimes: Sometimes = attrs.field(factory=Sometimes, init=False)
    _laws: list[tuple[str, StateLaw]] = attrs.field(factory=all_state_laws, init=False)
    _wire_laws: list[tuple[str, WireLaw]] = attrs.field(factory=all_wire_laws, init=False)
    _wire: Wire | None = attrs.field(default=None, init=False)

    def look(self) -> None:
        """Check each law once."""
        if self._wire is None:
            self._wire = Wire(self._looking.world)
        facts = self._wire.take()
        now = self._looking.look(facts)
        self.sometimes.look(now)
        self._laws = [
            one for one in self._laws if not self._is_told(one[0], one[1].breaches(now))
        ]
        self._wire_laws = [
            one for one in self._wire_laws if not self._is_told(one[0], one[1].breaches(facts))
        ]

    def _is_told(self, number: str, breaches: Iterator[str]) -> bool:
        """Report the first breach, if there is one; then the law is not checked any more."""
        message = next(breaches, None)
        if message is not None:
            self._on_breach(number, message)
        return message is not None

    async def watch(self) -> None:
        """Check the laws again and again; never returns."""
        while True:
            self.look()
            await trio.sleep(LOOK_S)
