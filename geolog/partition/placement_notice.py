"""Saying in the log that a partition is written to a ledger that is not placed as it should be.

Once when it begins, and once when it is over: a region that is away for a day is one line.
"""

import logging

from geolog.protocol.ids import LedgerId
from geolog.protocol.stream_state import PartitionName
from topology.ring.window_rule import Adherence

_log = logging.getLogger(__name__)


class PlacementNotice:
    """What was said last of the open ledger of one partition."""

    def __init__(self, name: PartitionName) -> None:
        self._name = name
        self._told = Adherence.STRICT

    def see(self, ledger: LedgerId, adherence: Adherence, *, is_undecided: bool) -> None:
        """How the open ledger adheres now.

        `is_undecided`: when nodes were chosen last, the search for better ones was cut off.
        """
        if adherence is self._told:
            return
        self._told = adherence
        if adherence is Adherence.STRICT:
            _log.warning("%s: ledger %s is placed as it should be again", self._name, ledger)
            return
        _log.warning(
            "%s: ledger %s is placed as %s only%s; it is left when there is a better one",
            self._name,
            ledger,
            adherence.value,
            ", and whether better is possible is undecided" if is_undecided else "",
        )
