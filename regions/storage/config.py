"""Settings of a storage node."""

import attrs

from geolog.transport.seam import Address
from geolog.wire.limits import ENTRY_BYTES_MAX
from topology.errors import InvalidConfigError

_JOURNAL_FILE_BYTES_MIN = 1 << 20


_POSITIVE = (
    "group_bytes_max",
    "mark_idle_s",
    "tail_cache_bytes_max",
    "read_bytes_max",
    "journal_ahead_bytes",
    "free_bytes_min",
    "free_check_s",
    "garbage_interval_s",
    "garbage_grace_s",
    "allocated_expiry_s",
    "compaction_rate_bytes_per_s",
    "compaction_interval_s",
    "compaction_live_share_max",
    "scrub_rate_bytes_per_s",
    "scrub_interval_s",
    "connections_max",
    "journal_files_open_max",
    "handshake_timeout_s",
    "reads_max",
    "reads_max_all",
    "follows_max",
    "follows_max_all",
    "follow_wait_s_max",
    "outgoing_bytes_max",
    "outgoing_bytes_max_all",
    "outgoing_stall_s",
)


@attrs.frozen(kw_only=True)
class StorageConfig:
    """Limits and location of one storage node. All values are in seconds and bytes."""

    location: str
    """Location of the node, `/REGION/RACK`. Its cookie records it; it cannot change."""

    listen: Address
    """Address to listen on; port 0 picks a free port."""

    cluster: str = "default"
    """Name of the node's cluster; connections that name another cluster are refused."""

    advertise: Address | None = None
    """Address at which others reach the node. If unset, the listen address."""

    node_id: str | None = None
    """Permanent name of the node in the cluster. If unset, the advertised address."""

    journal_file_bytes: int = 256 << 20
    """Seal the journal file at this size and begin the next. Small files make a restart faster
    and free space sooner; large files cause fewer pauses of a few milliseconds."""

    journal_ahead_bytes: int = 8 << 20
    """Disk space to allocate ahead of writes to the open journal file, at most a quarter of a
    file. It lets the node write fences when the disk is full. Less when little space is
    free."""

    in_flight_bytes_max: int = 64 << 20
    """Memory for data received but not yet synced; split equally among the data directories. At
    the bound the node stops reading from connections that store or fence, so their senders
    wait; it refuses nothing."""

    group_bytes_max: int = 4 << 20
    """Maximum bytes of entries in one sync; the rest wait for the next sync. Larger groups give
    a slow disk more throughput and answer every entry in the group later."""

    mark_idle_s: float = 0.05
    """Idle time of the journal before it writes a mark that says all of it is synced."""

    tail_cache_bytes_max: int = 32 << 20
    """Memory for recently written entries, for readers at the tail; split equally among the
    data directories."""

    read_bytes_max: int = 4 << 20
    """Maximum bytes of entries in one answer to a read, unless a single entry is larger."""

    free_bytes_min: int = 64 << 20
    """Free space to keep in a data directory, for fences and the journal itself. Compaction
    needs room on top: as much as may be live in one journal file that it compacts. When less
    than both is free, the directory takes no entries or ledgers until a quarter more is free;
    it still reads, fences and compacts. The node then counts as read-only: it gets no new
    ledgers, but ledgers in its other directories go on."""

    free_check_s: float = 1.0
    """Interval between checks of the free space."""

    garbage_interval_s: float = 60.0
    """Pause between two rounds that ask metadata about each ledger of the node; a round costs
    one small read for each ledger."""

    garbage_grace_s: float = 600.0
    """How long a ledger must count as garbage here before its entries are removed."""

    allocated_expiry_s: float = 24 * 3600.0
    """Age at which a ledger that was allocated ahead and never activated is removed."""

    compaction_live_share_max: float = 0.5
    """Compact a journal file when less than this share of its entries belongs to ledgers that
    are needed here. A higher share frees more space and rewrites live entries more often."""

    compaction_rate_bytes_per_s: float = 16 << 20
    """Maximum copy rate of compaction, for each data directory."""

    compaction_interval_s: float = 30.0
    """Pause before compaction looks again when no file was worth compacting."""

    scrub_rate_bytes_per_s: float = 8 << 20
    """Rate at which the scrub reads stored entries and verifies their checksums, for each data
    directory. Each entry counts as at least 1 KiB."""

    scrub_interval_s: float = 7 * 24 * 3600.0
    """Interval between the starts of two scrub rounds; a round that takes longer delays the
    next. The first round begins some minutes after a start."""

    connections_max: int = 1024
    """Maximum number of connections; further ones are closed at once. Fewer if the process may
    not open that many files: a node raises its own limit as far as it can, and logs the
    result."""

    journal_files_open_max: int = 256
    """Maximum number of idle journal files kept open, in all data directories together. The one
    idle longest is closed first, and reopened for its next read."""

    handshake_timeout_s: float = 5.0
    """Close a new connection that sends no hello within this time."""

    reads_max: int = 4096
    """Maximum number of unanswered reads of one connection; a streamed read counts until its
    last answer. Further reads are refused as BUSY."""

    reads_max_all: int = 32768
    """Maximum number of unanswered reads of all connections; each takes a few hundred bytes."""

    follows_max: int = 16384
    """Maximum number of waiting followers of one connection. More are refused as BUSY."""

    follows_max_all: int = 32768
    """Maximum number of waiting followers of all connections; each takes a few hundred
    bytes."""

    follow_wait_s_max: float = 600.0
    """Maximum time a follower waits, even if it requests more; then it may ask again."""

    outgoing_bytes_max: int = 4 << 20
    """Maximum bytes of answers queued for one connection. At the bound the node stops reading
    from it until it takes some, so at most one more answer is added. Reads stop at half of
    it."""

    outgoing_bytes_max_all: int = 256 << 20
    """Maximum bytes of answers queued for all connections, including reads in progress. At the
    bound no new read begins until some are taken; adds and fences go on."""

    outgoing_stall_s: float = 30.0
    """Close a connection that takes none of its queued answers for this long."""

    def __attrs_post_init__(self) -> None:
        values = attrs.asdict(self, recurse=False)
        for name in _POSITIVE:
            if values[name] <= 0:
                raise InvalidConfigError(f"{name} must be positive, got {values[name]}")
        if self.journal_file_bytes < _JOURNAL_FILE_BYTES_MIN:
            raise InvalidConfigError(
                f"journal_file_bytes must be >= {_JOURNAL_FILE_BYTES_MIN}, got "
                f"{self.journal_file_bytes}"
            )
        if self.in_flight_bytes_max < ENTRY_BYTES_MAX:
            raise InvalidConfigError(
                f"in_flight_bytes_max must be >= {ENTRY_BYTES_MAX}, the largest entry, got "
                f"{self.in_flight_bytes_max}"
            )
