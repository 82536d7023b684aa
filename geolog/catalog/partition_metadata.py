"""The partitions of a cluster's streams in metadata: one object for each kind of record."""

from geolog.catalog.home_moves import HomeMoves
from geolog.catalog.kept_rests import KeptRests
from geolog.catalog.metadata_session import MetadataSession
from geolog.catalog.offers import Offers
from geolog.catalog.partition_owners import PartitionOwners
from geolog.catalog.partition_trims import PartitionTrims
from geolog.catalog.segment_changes import SegmentChanges
from geolog.catalog.segment_records import SegmentRecords
from geolog.catalog.stream_homes import StreamHomes
from geolog.ledger.ledger_metadata import LedgerMetadata
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import Metadata


class PartitionMetadata:
    """All that metadata holds of the partitions of one cluster; take the part you need."""

    def __init__(
        self, metadata: Metadata, paths: ClusterPaths, ledgers: LedgerMetadata
    ) -> None:
        self.session = MetadataSession(metadata)
        self.owners = PartitionOwners(metadata, paths)
        self.offers = Offers(metadata, paths, self.owners)
        self.segments = SegmentRecords(metadata, paths)
        self.homes = StreamHomes(metadata, paths)
        self.home_moves = HomeMoves(metadata, paths, self.homes)
        self.trims = PartitionTrims(
            metadata, paths, ledgers, self.segments, self.homes, self.owners
        )
        self.rests = KeptRests(metadata, paths, self.segments, ledgers, self.owners, self.homes)
        self.changes = SegmentChanges(metadata, paths, ledgers, self.owners, self.homes)
