"""Asks replicas on probation that no read asks, so that each is found out to be well again.

Reads try a replica themselves where it would come first. But there may be none for a while, or
only long polls and streams that stay with another replica. A shadow request is a round trip,
which a node answers from memory. The same task waits for the answers to trials whose reads have
ended.

Rules: PROTOCOL R21.
"""

import trio

from geolog.ledger.replicas.replicas import Replicas
from geolog.protocol.ids import InstanceId
from topology.errors import GeologError

LOOK_S = 0.5
"""Pause between looks for replicas to ask, while any is demoted or on probation."""


class ShadowRequests:
    """Sends them for one process."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._order = replicas.order

    async def run(self) -> None:
        """Send them while there are replicas to ask; never returns."""
        order, trials = self._order, self._replicas.left_trials
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    trials.judge()
                    if not order.has_marked and not trials:
                        order.has_demoted = trio.Event()
                        await order.has_demoted.wait()
                    for instance in order.shadows_due():
                        order.asked(instance)
                        nursery.start_soon(self._ask, instance)
                    with trio.move_on_after(LOOK_S):
                        await trials.bell.wait()
        finally:
            trials.close()

    async def _ask(self, instance: InstanceId) -> None:
        try:
            await self._replicas.round_trip_s(instance)
        except GeologError:
            self._order.note_shadow_failed(instance)
        else:
            self._order.forgive(instance)
        finally:
            self._order.ended(instance)
