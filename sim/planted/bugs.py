"""The planted bugs, by name: each replaces a piece of a core or a shell during a history.

Production code does not know them. Each breaks one thing that a theory of operation relies on.
docs/PLANTED_BUGS.md lists them by number, docs/LAWS.md by the law that finds them.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from geolog.ledger.ledger_metadata import LedgerMetadata
from geolog.ledger.nodes.connection import NodeConnection
from geolog.ledger.nodes.node_pool import NodeLink
from geolog.ledger.recovery import ledger_recovery
from geolog.ledger.writing.ensemble_keeper import EnsembleKeeper
from geolog.ledger.writing.ledger_writer import LedgerWriter
from geolog.ledger.writing.replacement_finder import ReplacementFinder
from geolog.partition import takeover
from geolog.partition.segment_activation import SegmentActivation
from geolog.protocol import tail_view
from geolog.protocol.add_window import AddWindow
from geolog.protocol.fencing import FenceRound
from geolog.protocol.recovery import Recovery
from geolog.protocol.replica import LedgerReplica
from regions.storage import identity, restart
from regions.storage.entries import EntryStore
from regions.storage.journal import Journal
from regions.storage.outbox import Outbox
from regions.storage.protocol.ledgers import Ledgers
from regions.storage.protocol.records import RecordCodec
from regions.storage.read_lane import ReadLane
from regions.storage.replay import Replay
from sim.fakes.memory_disk import MemoryDisk
from sim.fakes.memory_metadata import MemoryMetadata
from sim.planted import client_bugs, node_bugs
from sim.planted.bridge_bugs import BRIDGE_BUGS
from sim.planted.connection_bugs import CONNECTION_BUGS
from sim.planted.cursor_bugs import CURSOR_BUGS
from sim.planted.damage_bugs import DAMAGE_BUGS
from sim.planted.directory_bugs import DIRECTORY_BUGS
from sim.planted.failover_bugs import FAILOVER_BUGS
from sim.planted.hand_over_bugs import HAND_OVER_BUGS
from sim.planted.isolation_bugs import ISOLATION_BUGS
from sim.planted.metadata_bugs import METADATA_BUGS
from sim.planted.move_bugs import MOVE_BUGS
from sim.planted.owner_bugs import OWNER_BUGS
from sim.planted.planted_bug import PlantedBug
from sim.planted.promise_bugs import PROMISE_BUGS
from sim.planted.proxy_bugs import PROXY_BUGS
from sim.planted.relay_bugs import RELAY_BUGS
from sim.planted.replica_bugs import REPLICA_BUGS
from sim.planted.session_bugs import SESSION_BUGS
from sim.planted.settings_bugs import SETTINGS_BUGS
from sim.planted.stream_bugs import STREAM_BUGS
from sim.planted.tail_bugs import TAIL_BUGS
from sim.planted.upkeep_bugs import UPKEEP_BUGS
from sim.planted.verification_bugs import VERIFICATION_BUGS
from sim.planted.version_bugs import VERSION_BUGS
from sim.planted.writer_bugs import WRITER_BUGS
from sim.world.draws.special_worlds import with_lone_members
from topology.errors import OutcomeUnknownError

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001

PLANTED_BUGS: dict[str, PlantedBug] = {
    "recovery-read-does-not-fence": PlantedBug(
        1,
        "recovery's reads do not fence",
        [(LedgerReplica, "_on_read", node_bugs.read_without_fence)],
    ),
    "recovery-from-zero": PlantedBug(
        2,
        "recovery starts at entry 0, whatever the LAC and the last fragment",
        [(ledger_recovery._Round, "run", client_bugs.recover_from_zero)],
    ),
    "corrupt-as-absent": PlantedBug(
        3,
        "a node reports a damaged entry as absent",
        [(EntryStore, "_checked", node_bugs.corrupt_is_absent)],
    ),
    "timeout-as-absent": PlantedBug(
        4,
        "recovery counts a silent member as one that has nothing",
        [(Recovery, "on_silence", client_bugs.silence_is_absence)],
    ),
    "one-absent-too-few": PlantedBug(
        5,
        "recovery ends a ledger with one ABSENT too few",
        [(Recovery, "_decide_entry", client_bugs.decide_with_one_less)],
    ),
    "ack-of-replaced-instance": PlantedBug(
        6,
        "confirmations of a replaced member count for its successor",
        [
            (AddWindow, "hold", client_bugs.hold_nothing),
            (AddWindow, "change", client_bugs.change_forgets_nothing),
        ],
    ),
    "fragment-starts-at-lac": PlantedBug(
        7,
        "a new fragment begins at the LAC, whose copies its new members lack",
        [(EnsembleKeeper, "_begin", client_bugs.begin_at_lac)],
    ),
    "metadata-without-cas": PlantedBug(
        8,
        "a ledger's record is overwritten at any version",
        [(LedgerMetadata, "replace", client_bugs.replace_blindly)],
    ),
    "fence-in-memory": PlantedBug(
        9,
        "a node keeps a fence only in memory",
        [(LedgerReplica, "_persist_fence", node_bugs.fence_in_memory)],
    ),
    "delete-drops-fence": PlantedBug(
        10,
        "a node that deletes a ledger forgets its fence",
        [(Ledgers, "delete", node_bugs.delete_and_forget)],
    ),
    "any-instance": PlantedBug(
        11,
        "nobody checks which instance a request is for, or which one answers",
        [
            (LedgerReplica, "on", node_bugs.on_any_instance),
            (NodeLink, "_connect_once", client_bugs.connect_to_anybody),
        ],
    ),
    "empty-disk-boots": PlantedBug(
        12,
        "a node that finds an empty disk in its place starts as a new one",
        [
            (identity, "_check_new", node_bugs.check_nothing),
            (identity, "_note_known", node_bugs.note_whoever_comes),
        ],
    ),
    "ack-before-sync": PlantedBug(
        13,
        "a node answers before the sync",
        [(Journal, "when_synced", node_bugs.call_at_once)],
    ),
    "failed-sync-retried": PlantedBug(
        14,
        "failed writes and syncs are retried",
        [(Journal, "_on_written", node_bugs.write_until_it_works)],
    ),
    "no-directory-sync": PlantedBug(
        15,
        "names of files are not synced",
        [(MemoryDisk, "sync_directory", node_bugs.sync_no_directory)],
    ),
    "damage-as-torn-tail": PlantedBug(
        16,
        "damage in the middle of a file is cut off as if it were a torn end",
        [(Replay, "_proven_end", node_bugs.end_at_first_gap)],
    ),
    "checksum-without-place": PlantedBug(
        17,
        "the checksum of a record's header does not cover ledger and entry",
        [
            (RecordCodec, "pack", node_bugs.pack_without_place),
            (RecordCodec, "unpack", node_bugs.unpack_without_place),
        ],
    ),
    "lac-ahead": PlantedBug(
        18,
        "an add carries a LAC that is not acknowledged",
        [
            (
                NodeConnection,
                "add_nowait",
                client_bugs.add_with_lac_of_sent,
            )
        ],
    ),
    "fence-forgets-lac": PlantedBug(
        19,
        "a fence resets a node's LAC",
        [(LedgerReplica, "restore_fence", node_bugs.fence_forgets_lac)],
    ),
    "writers-not-recovered": PlantedBug(
        20,
        "a new owner does not recover what named writers have in the log",
        [(takeover, "recovered_state", client_bugs.recovered_without_writers)],
    ),
    "fewer-regions": PlantedBug(
        27,
        "while a region is lost, fewer regions must confirm than the ledger says",
        [(AddWindow, "_release_acked_prefix", client_bugs.release_with_fewer_regions)],
    ),
    "replacement-anywhere": PlantedBug(
        28,
        "members are replaced by any nodes, whatever their regions",
        [
            (ReplacementFinder, "_replace", client_bugs.replace_anywhere),
            (LedgerWriter, "check_helps", client_bugs.check_nothing),
        ],
        made_for=with_lone_members,
    ),
    "unbounded-answers": PlantedBug(
        31,
        "answers wait at a node without a bound",
        [
            (ReadLane, "_has_room", property(node_bugs.has_always_room)),
            (Outbox, "wait_room", node_bugs.wait_for_nothing),
        ],
    ),
    "unknown-as-refused": PlantedBug(
        32,
        "an append whose answer is lost is reported as refused",
        [(OutcomeUnknownError, "outcome", "refused")],
    ),
    "ack-across-reconnect": PlantedBug(
        33,
        "an answer confirms everything sent before it, on any connection",
        [
            (AddWindow, "on_slot_back", client_bugs.send_nothing_again),
            (AddWindow, "on_synced", client_bugs.count_all_before),
        ],
    ),
    "tail-not-synced-again": PlantedBug(
        34,
        "records above the mark are served after a restart without another sync",
        [(restart, "create_file", node_bugs.create_file_unsynced)],
    ),
    "recovery-moves-lac": PlantedBug(
        35,
        "an add of recovery moves a node's LAC to that entry",
        [(LedgerReplica, "restore_entry", node_bugs.any_add_moves_lac)],
    ),
    "next-before-closed": PlantedBug(
        36,
        "the next ledger is written before its predecessor is closed",
        [(SegmentActivation, "_activated", client_bugs.activate_meanwhile)],
    ),
    "fence-of-one-write-set": PlantedBug(
        37,
        "a fence is accepted when it blocks one write set",
        [(FenceRound, "on_fenced", client_bugs.fence_one_write_set)],
    ),
    "tail-at-have": PlantedBug(
        39,
        "the end of an open ledger is where an ack set no longer says HAVE",
        [(tail_view, "_end_of", client_bugs.end_at_have)],
    ),
    "metadata-not-synced": PlantedBug(
        40,
        "the end of a stream is read from a metadata server that may lag",
        [(MemoryMetadata, "_catch_up", client_bugs.catch_up_with_nobody)],
    ),
    "new-members-by-old-regions": PlantedBug(
        76,
        "new members are judged by the regions of the members they replace",
        [(LedgerWriter, "could_go_on_with", client_bugs.go_on_by_old_regions)],
        is_of_exchange=True,
    ),
    "fence-before-sync": PlantedBug(
        51,
        "a node answers a fence before it is on disk",
        [(LedgerReplica, "_on_fence", node_bugs.answer_fence_at_once)],
    ),
    **BRIDGE_BUGS,
    **CONNECTION_BUGS,
    **CURSOR_BUGS,
    **PROMISE_BUGS,
    **DAMAGE_BUGS,
    **DIRECTORY_BUGS,
    **HAND_OVER_BUGS,
    **PROXY_BUGS,
    **METADATA_BUGS,
    **OWNER_BUGS,
    **RELAY_BUGS,
    **MOVE_BUGS,
    **FAILOVER_BUGS,
    **ISOLATION_BUGS,
    **REPLICA_BUGS,
    **SESSION_BUGS,
    **SETTINGS_BUGS,
    **STREAM_BUGS,
    **TAIL_BUGS,
    **UPKEEP_BUGS,
    **VERIFICATION_BUGS,
    **VERSION_BUGS,
    **WRITER_BUGS,
}
"""Every planted bug, by name."""


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant this bug while the block runs."""
    with ExitStack() as replaced:
        for owner, attribute, bad in PLANTED_BUGS[name].patches:
            replaced.enter_context(_replaced(owner, attribute, bad))
        yield


@contextmanager
def _replaced(owner: object, attribute: str, bad: object) -> Iterator[None]:
    good = vars(owner)[attribute]
    setattr(owner, attribute, bad)
    try:
        yield
    finally:
        setattr(owner, attribute, good)
