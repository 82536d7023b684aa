"""Defects of cursors: each replaces a good method."""

from collections.abc import Iterable
from functools import partial

import attrs

from geolog.catalog.cursors import CursorCatalog
from geolog.metadata.documents import seal_document
from geolog.metadata.seam import BadVersionError, Freshness, NoNodeError
from geolog.protocol import cursor_commits
from geolog.protocol.cursor_commits import CursorCommits
from geolog.protocol.cursor_lease import PartitionCommit
from geolog.protocol.cursor_state import CursorName, CursorPartition, PartitionStanding
from geolog.protocol.ids import Position
from sim.planted.planted_bug import PlantedBug
from sim.world.draws.cursor_draws import with_cursors

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001

_commit = CursorCatalog.commit
_on_gained = CursorCommits.on_gained
_on_dropped = CursorCommits.on_dropped


async def commit_in_any_version(
    catalog: CursorCatalog,
    cursor: CursorName,
    reader: str,
    commits: Iterable[PartitionCommit],
) -> dict[int, PartitionStanding | None]:
    """After a refusal, commit whatever the record says now, lease or no lease."""
    asked = list(commits)
    found = await _commit(catalog, cursor, reader, asked)
    for one in asked:
        if found[one.partition] is not None or one.position is None:
            continue
        path = catalog._paths.cursor_partition(cursor, one.partition)
        stored = await catalog._metadata.find(path, freshness=Freshness.LATEST)
        record = attrs.evolve(one.standing.record, reader=reader).moved(one.position)
        if stored is not None:
            try:
                version = await catalog._metadata.put(
                    path, seal_document(record), stored.version
                )
            except (BadVersionError, NoNodeError):
                continue
            found[one.partition] = PartitionStanding(record, version)
    return found


def drop_and_remember(commits: CursorCommits, partition: int) -> None:
    """Remember what was done in the hold that ends."""
    done = commits._held[partition].done
    _on_dropped(commits, partition)
    remembered = vars(commits).setdefault("_remembered", {})
    remembered[partition] = done


def gain_with_memories(commits: CursorCommits, partition: int, stored: Position | None) -> int:
    """Commit what was done in an earlier hold."""
    hold = _on_gained(commits, partition, stored)
    commits._held[partition].done = vars(commits).get("_remembered", {}).get(partition)
    return hold


def is_different(held: cursor_commits._Held) -> bool:
    """Commit any position that metadata does not have."""
    return held.done is not None and held.done != held.stored


def move_anywhere(record: CursorPartition, position: Position | None) -> CursorPartition:
    """Take any position."""
    if position is None:
        return record
    return attrs.evolve(record, home_epoch=position.home_epoch, sequence=position.sequence)


CURSOR_BUGS: dict[str, PlantedBug] = {
    "lost-reader-commits": PlantedBug(
        94,
        "a commit by a reader that has lost its partition is accepted",
        [(CursorCatalog, "commit", commit_in_any_version)],
        made_for=partial(with_cursors, is_shared=False),
    ),
    "commit-goes-back": PlantedBug(
        95,
        "a reader that regains a partition commits the position of its earlier hold",
        [
            (CursorCommits, "on_dropped", drop_and_remember),
            (CursorCommits, "on_gained", gain_with_memories),
            (cursor_commits._Held, "is_ahead", property(is_different)),
            (CursorPartition, "moved", move_anywhere),
        ],
        made_for=with_cursors,
    ),
}
"""These bugs, by name."""
