"""All ledgers of a cluster, of every stream, one bucket at a time."""

from collections.abc import Sequence

from geolog.metadata.documents import open_document
from geolog.metadata.find_all import find_all
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import Freshness, Metadata, NoNodeError
from geolog.protocol.ids import InstanceId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord


class LedgerCatalog:
    """Lists ledger records. It may miss ledgers that are created or deleted meanwhile."""

    def __init__(self, metadata: Metadata, paths: ClusterPaths) -> None:
        self._metadata = metadata
        self._paths = paths

    async def buckets(self) -> list[str]:
        """Names of the buckets at the time of this call, in order of their ledgers."""
        try:
            return await self._metadata.children(
                self._paths.ledgers, freshness=Freshness.LATEST
            )
        except NoNodeError:
            return []

    async def records_in(self, bucket: str) -> list[LedgerRecord]:
        """The ledgers of one bucket, by id; at most a thousand."""
        parent = f"{self._paths.ledgers}/{bucket}"
        try:
            names = await self._metadata.children(parent)
        except NoNodeError:
            return []
        paths = [f"{parent}/{name}" for name in names]
        return [
            open_document(one.data, LedgerRecord, path=path)
            for path, one in zip(paths, await find_all(self._metadata, paths), strict=True)
            if one is not None
        ]

    async def with_member(self, instances: set[InstanceId]) -> list[LedgerRecord]:
        """The ledgers with one of these instances in a fragment, by id."""
        return [
            record
            for bucket in await self.buckets()
            for record in await self.records_in(bucket)
            if any(
                member.instance in instances
                for fragment in record.fragments
                for member in fragment.ensemble
            )
        ]

    async def records_of(self, ledgers: Sequence[LedgerId]) -> list[LedgerRecord | None]:
        """The records of these ledgers, in order; None for a ledger that is gone."""
        paths = [self._paths.ledger(ledger) for ledger in ledgers]
        return [
            None if one is None else open_document(one.data, LedgerRecord, path=path)
            for path, one in zip(paths, await find_all(self._metadata, paths), strict=True)
        ]
