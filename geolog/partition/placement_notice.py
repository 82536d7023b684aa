"""Logging that a partition's open ledger is not placed as its policy asks.

One line when that begins and one when it ends, so a region that is away for a day costs one
line.
"""

import logging

from geolog.protocol.ids import LedgerId
from geolog.protocol.stream_state import PartitionName
from topology.ring.window_rule import Adherence
from topology.stream_policy import REGION_AWARE_TERMS, PlacementTerms, PolicyKind

_log = logging.getLogger(__name__)

_DOMAINS = {PolicyKind.RACK_AWARE: "rack", PolicyKind.ZONE_AWARE: "zone"}


class PlacementNotice:
    """Remembers which adherence was logged last for one partition."""

    def __init__(self, name: PartitionName, terms: PlacementTerms = REGION_AWARE_TERMS) -> None:
        self._name = name
        self._soft = (
            f"meets policy {terms.own!r} in part only"
            if terms.policy is PolicyKind.OWN
            else f"would not survive losing another {_DOMAINS.get(terms.policy, 'region')}"
        )
        self._told = Adherence.STRICT

    def see(self, ledger: LedgerId, adherence: Adherence, *, is_undecided: bool) -> None:
        """Log the open ledger's adherence if it has changed.

        `is_undecided`: the last search for better nodes was cut off.
        """
        if adherence is self._told:
            return
        self._told = adherence
        if adherence is Adherence.STRICT:
            _log.warning("%s: ledger %s: placement is STRICT again", self._name, ledger)
            return
        means = self._soft if adherence is Adherence.SOFT else "breaks the policy of its stream"
        _log.warning(
            "%s: ledger %s: placement is %s (%s%s); will roll when a STRICT ensemble is"
            " available",
            self._name,
            ledger,
            adherence.name,
            means,
            "; the search for a better one was cut off" if is_undecided else "",
        )
