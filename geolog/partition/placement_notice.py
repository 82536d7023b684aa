"""Logging that a partition's open ledger is not placed as its policy asks.

One line when that begins and one when it ends, so a region that is away for a day costs one
line.
"""

import logging

from geolog.protocol.ids import LedgerId
from geolog.protocol.stream_state import PartitionName
from topology.ring.window_rule import Adherence
from topology.stream_policy import PolicyKind

_log = logging.getLogger(__name__)

_DOMAINS = {PolicyKind.RACK_AWARE: "rack", PolicyKind.ZONE_AWARE: "zone"}


class PlacementNotice:
    """Remembers which adherence was logged last for one partition."""

    def __init__(
        self, name: PartitionName, policy: PolicyKind = PolicyKind.REGION_AWARE
    ) -> None:
        self._name = name
        self._domain = _DOMAINS.get(policy, "region")
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
        means = (
            f"would not survive losing another {self._domain}"
            if adherence is Adherence.SOFT
            else "breaks the policy of its stream"
        )
        _log.warning(
            "%s: ledger %s: placement is %s (%s%s); will roll when a STRICT ensemble is"
            " available",
            self._name,
            ledger,
            adherence.name,
            means,
            "; the search for a better one was cut off" if is_undecided else "",
        )
