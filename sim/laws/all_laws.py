"""The state laws of a world, asked again and again."""

from collections.abc import Callable

import attrs
import trio

from sim.laws.law_01_trim_is_due import TrimIsDue
from sim.laws.law_02_ack_set import AckSet
from sim.laws.law_03_sets_intersect import SetsIntersect
from sim.laws.law_04_closed_stays import ClosedStays
from sim.laws.law_05_closed_above_ok import ClosedAboveOk
from sim.laws.law_06_fenced_takes_nothing import FencedTakesNothing
from sim.laws.law_07_fence_outlives import FenceOutlives
from sim.laws.law_08_identity import Identity
from sim.laws.law_09_list_in_order import ListInOrder
from sim.laws.law_10_owners_in_order import OwnersInOrder
from sim.laws.law_12_lac_rises import LacRises
from sim.laws.law_21_fragments_adhere import FragmentsAdhere
from sim.laws.law_22_bounds_hold import BoundsHold
from sim.laws.seen import Looking, StateLaw
from sim.laws.sometimes import Sometimes

LOOK_S = 0.1
"""Simulated time between two looks."""


def all_state_laws() -> dict[str, StateLaw]:
    """A new one of each, by the number of the law."""
    return {
        "1": TrimIsDue(),
        "2": AckSet(),
        "4": ClosedStays(),
        "5": ClosedAboveOk(),
        "7": FenceOutlives(),
        "8": Identity(),
        "12": LacRises(),
        "3": SetsIntersect(),
        "6": FencedTakesNothing(),
        "9": ListInOrder(),
        "10": OwnersInOrder(),
        "21": FragmentsAdhere(),
        "22": BoundsHold(),
    }


@attrs.define(eq=False)
class StateLaws:
    """All of them, for one world; each law's first breach is told, and then no more of it."""

    _looking: Looking
    _on_breach: Callable[[str, str], None]
    sometimes: Sometimes = attrs.field(factory=Sometimes, init=False)
    _laws: dict[str, StateLaw] = attrs.field(factory=all_state_laws, init=False)

    def look(self) -> None:
        """Ask each law once."""
        now = self._looking.look()
        self.sometimes.look(now)
        for number, law in list(self._laws.items()):
            message = next(law.breaches(now), None)
            if message is not None:
                self._on_breach(number, message)
                del self._laws[number]

    async def watch(self) -> None:
        """Ask them again and again; never returns."""
        while True:
            self.look()
            await trio.sleep(LOOK_S)
