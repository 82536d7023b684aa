"""Offers of processes to take partitions over, and the multis that give partitions to them.

An offer is an ephemeral node, which says how the process is named in owner records. An owner
that gives partitions away writes the successor's owner records itself, in one multi that also
checks that the offer and the successor's presence exist. Whether the multi succeeded can be
told from any one record: its claim names the offer.

Rules: PROTOCOL O16.
"""

from collections.abc import Mapping
from contextlib import suppress

import attrs
import trio

from geolog.catalog.partition_owners import PartitionOwners, VersionedOwner
from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.find_all import find_all
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import (
    Check,
    Create,
    Delete,
    Freshness,
    Metadata,
    NodeExistsError,
    NoNodeError,
    Put,
)
from geolog.protocol.hand_over import Standing
from geolog.protocol.ids import Epoch
from geolog.protocol.stream_state import OwnerRecord, PartitionName


@attrs.frozen(kw_only=True)
class Offer:
    """A promise to take over any partition that is given, until the offer is withdrawn."""

    offer_id: str
    owner: str
    """The name of the process in owner records."""
    presence: str
    """The node that shows that the process is alive."""


class Offers:
    """The offers of one cluster's processes."""

    def __init__(
        self, metadata: Metadata, paths: ClusterPaths, owners: PartitionOwners
    ) -> None:
        self._metadata = metadata
        self._paths = paths
        self._owners = owners

    async def list_live(self) -> list[Offer]:
        """The offers that stand, ordered by id."""
        try:
            names = await self._metadata.children(self._paths.offers)
        except NoNodeError:
            return []
        paths = [self._paths.offer(name) for name in names]
        return [
            open_document(stored.data, Offer, path=path)
            for path, stored in zip(paths, await find_all(self._metadata, paths), strict=True)
            if stored is not None
        ]

    # For the process that makes an offer.

    async def make(self, offer: Offer) -> None:
        """Make the offer in the current session, unless that session has made it."""
        path = self._paths.offer(offer.offer_id)
        make = Create(path, seal_document(offer), is_ephemeral=True)
        while True:
            try:
                await self._metadata.multi([make])
                return
            except NoNodeError:
                await self._metadata.ensure_path(self._paths.offers)
            except NodeExistsError:
                found = await self._metadata.find(path)
                if found is None:
                    continue
                if found.session_id == self._metadata.session_id:
                    return
                # An older session made it, and will take it along.
                try:
                    await self._metadata.multi([Delete(path, found.version), make])
                    return
                except NoNodeError:
                    continue

    async def keep(self, offer: Offer) -> None:
        """Make the offer again in each session; never returns. Errors come out."""
        path = self._paths.offer(offer.offer_id)
        while True:
            gone = trio.Event()
            found = await self._metadata.find(path, changed=gone)
            if found is not None and found.session_id == self._metadata.session_id:
                await gone.wait()
            else:
                await self.make(offer)

    async def withdraw(self, offer: Offer) -> None:
        """Withdraw the offer: nothing is given to it after this returns."""
        with suppress(NoNodeError):
            await self._metadata.delete(self._paths.offer(offer.offer_id))

    # For an owner that gives partitions away.

    async def give(
        self, offer: Offer, partitions: Mapping[PartitionName, VersionedOwner]
    ) -> None:
        """Make the offering process the owner of all these partitions, or of none.

        BadVersionError or NoNodeError if an owner record has changed, or the offer is gone.
        """
        await self._metadata.multi(
            [
                Check(self._paths.offer(offer.offer_id)),
                Check(offer.presence),
                *(
                    Put(
                        self._paths.owner(name),
                        seal_document(_successor(offer, name, owner.record)),
                        owner.version,
                    )
                    for name, owner in partitions.items()
                ),
            ]
        )

    async def standings(
        self, offer: Offer, partitions: Mapping[PartitionName, VersionedOwner]
    ) -> dict[PartitionName, Standing]:
        """Whose these partitions are, after a give that was refused or left without an answer.

        The multi is over by then: metadata answers in the order of requests, and never carries
        out a session's requests once the next session has begun.
        """
        paths = [self._paths.owner(name) for name in partitions]
        # Reads of one process never go back, so the others are at least as new as the first.
        await self._metadata.find(paths[0], freshness=Freshness.CERTAIN)
        found = await find_all(self._metadata, paths)
        standings = {}
        for (name, owner), path, stored in zip(partitions.items(), paths, found, strict=True):
            if stored is None:
                standings[name] = Standing.OTHERS
                continue
            record = open_document(stored.data, OwnerRecord, path=path)
            if stored.version == owner.version:
                standings[name] = Standing.OURS
            elif record.claim_id == _given_claim(offer, name, owner.record):
                standings[name] = Standing.GIVEN
            else:
                standings[name] = Standing.OTHERS
        return standings


def _successor(offer: Offer, name: PartitionName, owner: OwnerRecord) -> OwnerRecord:
    """The owner record of the successor."""
    return attrs.evolve(
        owner,
        epoch=Epoch(owner.epoch + 1),
        owner=offer.owner,
        presence=offer.presence,
        claim_id=_given_claim(offer, name, owner),
    )


def _given_claim(offer: Offer, name: PartitionName, owner: OwnerRecord) -> str:
    """The id of the claim: of this offer, partition and epoch, so no other claim has it."""
    return f"{offer.offer_id} {name}-{name.life} {owner.epoch + 1}"
