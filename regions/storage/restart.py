"""From the files of a data directory to a journal: what is true, what is torn, what is rot.

Theory of operation. Files are replayed in order. If a file has an intact table, at its end or
in a table file next to it, the table is used. Any other file is walked record by record, up to
the point that a later file says was synced. In the last file, everything below its highest mark
was synced, and everything below the end noted in metadata: unreadable data there is rot. Beyond
that point nothing was certainly acknowledged, and nothing is known to be on disk. The valid
records up to the first bad one are copied to a new file, and the node answers nothing until
that file is synced (planted bug 34).

The old file is never written again: if the disk reported a failure to its last process, that
file's unsynced pages may look written and be gone (planted bug 14). It is cut only where
nothing but allocated space follows, and gets a table file, so that it is walked once. A table
at the end of a file that nothing proves synced to its end is true, but may be in memory only,
and it repeats promises that are in no synced record. So it is written to a table file before
any of it is answered, and counts from then on.

Rot, or a missing or shortened file, puts every ledger in doubt that may have had a record there
(`Ledgers.on_damage`). An entry named by a readable header or by the table is CORRUPT at worst.
The disk is changed only after everything was read: a refused start leaves it as it was.

Rules: PROTOCOL J4, J6, J11 and J16.
"""

from collections.abc import Callable

import attrs

from regions.storage.disk import Disk
from regions.storage.entries import EntryStore, JournalFile
from regions.storage.found_files import find_files
from regions.storage.journal import JournalEnd, JournalIdentity
from regions.storage.journal_end import NO_END
from regions.storage.leftovers import remove_retired, remove_unfinished, write_table_files
from regions.storage.open_file import OpenFile, create_file
from regions.storage.protocol.known_files import KnownFiles
from regions.storage.protocol.ledgers import Ledgers
from regions.storage.protocol.promises import promises_of
from regions.storage.protocol.records import FileHeader, RecordCodec
from regions.storage.replay import Replay


@attrs.frozen
class Restarted:
    """The state with which a node begins to answer."""

    ledgers: Ledgers
    entries: EntryStore
    files: KnownFiles
    opened: OpenFile
    start_number: int
    """Taken from the salt of the new file: no two starts share it."""


async def restart_journal(
    disk: Disk,
    identity: JournalIdentity,
    *,
    noted: JournalEnd = NO_END,
    cached_bytes_max: int,
    salt_source: Callable[[int], bytes],
) -> Restarted:
    """Replay all files, then begin a new one. Nothing may be answered before this returns.

    OlderDiskError if the journal ends before its `noted` end; WrongDataDirectoryError or
    UnknownFormatError if a file is from another node or of an unknown format.
    """
    found = await find_files(disk, identity)
    replay = Replay(found, noted, identity)
    await replay.on_files()
    header = FileHeader(
        replay.file_id_newest + 1,
        identity.instance,
        identity.cluster_id,
        salt_source(8),
        *replay.predecessor,
    )
    open_table = replay.on_tail(RecordCodec(header.file_id, header.salt))
    replay.on_end()
    # A start that was killed may have left the newest file's name in memory only. Power loss
    # must not take it and leave the next file, or it would count as lost.
    await disk.sync_directory()
    await remove_unfinished(disk, found.leftovers)
    await replay.cut_unwritten()
    opened = await create_file(disk, header, replay.tail)
    entries = EntryStore(replay.ledgers, cached_bytes_max=cached_bytes_max)
    for each in replay.kept_files():
        entries.add_file(each)
    entries.add_file(JournalFile(header.file_id, opened.file, open_table))
    promises = promises_of(replay.ledgers, replay.files)
    await write_table_files(disk, identity, replay.pending_tables, promises)
    await remove_retired(disk, replay.retired_there)
    # One bit less than the salt has, so that it fits a signed number.
    start_number = int.from_bytes(header.salt, "little") >> 1
    return Restarted(replay.ledgers, entries, replay.files, opened, start_number)
