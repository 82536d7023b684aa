"""Offering to take over partitions of processes that drain, while a block lasts.

Rules: PROTOCOL O16.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from geolog.background import open_background
from geolog.catalog.offers import Offer, Offers
from geolog.partition.shown_owners import ShownOwners
from topology.errors import GeologError

_log = logging.getLogger(__name__)

_RETRY_S = 0.5

_WITHDRAW_S = 2.0
"""How long to ask metadata to withdraw an offer, which otherwise goes with the session."""


@asynccontextmanager
async def open_offer(owners: ShownOwners, offers: Offers, who: str) -> AsyncIterator[Offer]:
    """Take over whatever is given to this process while the block lasts; then withdraw.

    A partition that was given is this process's at once. It is opened like any other, without
    a claim: `PartitionOpener.open` takes the given claim up.
    """
    await owners.be_present()
    offer = owners.new_offer(who)
    await offers.make(offer)
    try:
        async with open_background() as nursery:
            nursery.start_soon(_keep, offers, offer, name="offer kept")
            yield offer
    finally:
        with trio.move_on_after(_WITHDRAW_S, shield=True):
            await _withdraw(offers, offer)


async def _keep(offers: Offers, offer: Offer) -> None:
    while True:
        try:
            await offers.keep(offer)
        except GeologError as error:
            if not error.retriable:
                raise
            _log.warning("offer not kept: %s; retrying", error)
        await trio.sleep(_RETRY_S)


async def _withdraw(offers: Offers, offer: Offer) -> None:
    while True:
        try:
            await offers.withdraw(offer)
            return
        except GeologError as error:
            _log.warning("offer not withdrawn: %s; retrying", error)
        await trio.sleep(_RETRY_S)
