"""Handing surplus partitions to other proxies of the region, e.g. to one that has joined.

`plan_moves` decides. No proxy coordinates the others: each reads in metadata how many
partitions they own, plans only for what it owns itself, and moves a few at a time.

Rules: PROTOCOL S27.
"""

import logging
import random

import attrs
import trio

from geolog.catalog.offers import Offers
from geolog.metadata.proxies import list_live_proxies
from geolog.metadata.seam import Metadata
from geolog.protocol.owner_balance import plan_moves
from regions.proxy.held_partitions import HeldPartitions, candidate_of
from regions.proxy.peers import Peers
from topology.errors import GeologError

_log = logging.getLogger(__name__)


@attrs.define(eq=False, kw_only=True)
class Balance:
    """The share of one proxy. `run` keeps it."""

    metadata: Metadata
    cluster: str
    here: str
    """This proxy's name in owner records."""
    region: str
    held: HeldPartitions
    offers: Offers
    peers: Peers
    pause_s: float
    moves_max: int
    rng: random.Random

    async def run(self) -> None:
        """Move partitions away while there are too many; never returns."""
        while True:
            # At random, so that proxies that have started together do not stay in step.
            await trio.sleep(self.pause_s * self.rng.uniform(0.5, 1.0))
            try:
                await self._move_surplus()
            except GeologError as error:
                if not error.retriable:
                    raise
                _log.info("partitions not balanced: %s", error)

    async def _move_surplus(self) -> None:
        proxies = await list_live_proxies(self.metadata, self.cluster)
        offers = {one.owner: one for one in await self.offers.list_live()}
        suspected = self.peers.suspected
        sharing = [
            one
            for one in proxies
            if one.region == self.region and one.owner in offers and one.owner not in suspected
        ]
        moves = plan_moves(
            self.here,
            self.held.used_lately(self.pause_s),
            {one.owner: one.partitions_count for one in sharing} | {self.here: len(self.held)},
            map(candidate_of, sharing),
            moves_max=self.moves_max,
        )
        if moves:
            await self.held.hand_over({move.name: offers[move.target] for move in moves})
