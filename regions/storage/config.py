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
    "compaction_bytes_per_s",
    "compaction_interval_s",
    "compaction_live_share_max",
    "scrub_bytes_per_s",
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
    """Limits and place of one storage node. Seconds and bytes, always."""

    location: str
    """Where the node stands: `/region/rack`. Kept in its cookie; it cannot change."""

    listen: Address
    """Where it listens; port 0 takes a free one."""

    cluster: str = "default"
    """Name of the cluster that it belongs to; connections that name another are refused."""

    advertise: Address | None = None
    """Where others reach it; the address it listens on unless something stands between."""

    node_id: str | None = None
    """Its name in the cluster, for good; the advertised address unless given."""

    journal_file_bytes: int = 256 << 20
    """When a journal file is sealed and the next begun: small ones make a restart quicker and
    give back space sooner, large ones cost fewer pauses of a few milliseconds."""

    journal_ahead_bytes: int = 8 << 20
    """Disk space that the open journal file takes before it is written, at most a quarter of a
    file: in it fences can still be written when the disk is full. Less when little is free."""

    in_flight_bytes_max: int = 64 << 20
    """Memory for what is received but not yet on disk, entries and all that waits for a sync;
    data directories have equal shares of it. At the bound connections that store or fence are
    not read on, so that their senders wait; nothing is refused."""

    group_bytes_max: int = 4 << 20
    """Entries that share one sync. More waiting bytes go with the next: a larger group means
    more throughput of a slow disk, and later answers for all in it."""

    mark_idle_s: float = 0.05
    """How long the journal rests before a mark says that all of it is synced."""

    tail_cache_bytes_max: int = 32 << 20
    """Memory for entries that were written, for readers at the tail; data directories have
    equal shares of it."""

    read_bytes_max: int = 4 << 20
    """Bytes of entries in one answer to a read, unless a single entry is larger."""

    free_bytes_min: int = 64 << 20
    """The reserve of a data directory, for fences and the journal itself. Above it stands the
    room that compaction copies in: as much as may live in a journal file that is compacted.
    When less than both is free, the directory takes no entries and ledgers until a quarter more
    is, but still reads, fences and compacts. The node then counts as read-only: no new ledgers
    are placed on it, though those of its other directories go on."""

    free_check_s: float = 1.0
    """How often the space left is looked at."""

    garbage_interval_s: float = 60.0
    """Pause between two rounds in which metadata is asked about each ledger of the node: one
    small read for each."""

    garbage_grace_s: float = 600.0
    """How long a ledger must be seen to be of no use here before its entries go."""

    allocated_expiry_s: float = 24 * 3600.0
    """A ledger that was made ahead and not activated for so long is given up."""

    compaction_live_share_max: float = 0.5
    """A journal file of whose entries less than this share belongs to ledgers that are needed
    here is compacted: higher wins more space, and writes what lives more often."""

    compaction_bytes_per_s: float = 16 << 20
    """How fast compaction copies, in each data directory."""

    compaction_interval_s: float = 30.0
    """Pause before the files are looked at again when none was worth being compacted."""

    scrub_bytes_per_s: float = 8 << 20
    """How fast stored entries are read and compared with their checksums, in each data
    directory. A small entry counts as 1 KiB."""

    scrub_interval_s: float = 7 * 24 * 3600.0
    """How often all of them are: each round begins so long after the one before, or when that
    is done; the first some minutes after a start."""

    connections_max: int = 1024
    """Connections at a time; more are closed at once. Fewer if the process may not open so many
    files: a node raises its own limit as far as it may, and says what that allows."""

    journal_files_open_max: int = 256
    """Journal files that stay open though nobody writes or reads them, in all data directories
    together; the one that rests for longest is closed, and opened again for the next read."""

    handshake_timeout_s: float = 5.0
    """How long a new connection may take to say hello before it is closed."""

    reads_max: int = 4096
    """Reads of one connection that are not answered yet, streamed ones until their last answer.
    More are refused as BUSY."""

    reads_max_all: int = 32768
    """The same for all connections together: some hundred bytes each."""

    follows_max: int = 4096
    """Followers of one connection that wait for something new. More are refused as BUSY."""

    follows_max_all: int = 32768
    """The same for all connections together: some hundred bytes each."""

    follow_wait_s_max: float = 60.0
    """How long a follower waits at most, whatever it asks for; then it may ask again."""

    outgoing_bytes_max: int = 4 << 20
    """Answers waiting for one slow connection. At the bound it is not read on until it takes
    some of them, so at most one more answer is added. Reads stop at half of it."""

    outgoing_bytes_max_all: int = 256 << 20
    """Answers waiting for all connections together, those being read from disk counted in
    advance. At the bound no read is begun until some are taken; adds and fences go on."""

    outgoing_stall_s: float = 30.0
    """How long a connection may take nothing of what waits for it before it is closed."""

    def __attrs_post_init__(self) -> None:
        values = attrs.asdict(self, recurse=False)
        for name in _POSITIVE:
            if values[name] <= 0:
                raise InvalidConfigError(f"{name} is {values[name]}; it must be above 0")
        if self.journal_file_bytes < _JOURNAL_FILE_BYTES_MIN:
            raise InvalidConfigError(
                f"journal_file_bytes is {self.journal_file_bytes}; the least is "
                f"{_JOURNAL_FILE_BYTES_MIN}"
            )
        if self.in_flight_bytes_max < ENTRY_BYTES_MAX:
            raise InvalidConfigError(
                f"in_flight_bytes_max is {self.in_flight_bytes_max}; it must hold one entry of "
                f"{ENTRY_BYTES_MAX}"
            )
