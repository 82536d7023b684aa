"""The directory of an export: files of Parquet by day and hour, each batch of them once.

    day=2026-11-27/hour=18/batch-000007-part-….parquet    the rows
    _geolog/export.json                                   the stream whose rows these are
    _geolog/checkpoint/                                   how far the export is, kept by Spark
    _geolog/batches/000007.json                           the files of a batch
    _geolog/staging/batch-000007-…/                       files of a batch that is being written

Readers pass over names that begin with `_`.

Theory of operation. Spark numbers the batches, and repeats the last one with the same records
if it does not know that it has ended. Each attempt writes into a staging directory of its own.
The attempt whose list of files is stored under the batch's number has won; its files are then
renamed to where readers find them. An attempt that finds a list renames what is left of it, and
writes nothing. So a row is at one place only, a file that readers see is whole, and what an
attempt that was ended has left is deleted behind the next batch.

A checkpoint that was deleted, or replaced by an older one, plans other records under a number
that has a list. So the list says how its batch was planned, and such an attempt is refused.
"""

import hashlib
import json
import re
from collections.abc import Sequence

import attrs
import cattrs

from geolog.spark.job_files import JobFiles, StoredFile
from topology.errors import ConflictError, DamagedBytesError

HIDDEN = "_geolog"
CHECKPOINT = f"{HIDDEN}/checkpoint"

_IDENTITY = f"{HIDDEN}/export.json"
_STAGING = f"{HIDDEN}/staging"
_BATCHES = f"{HIDDEN}/batches"
_QUERY = f"{CHECKPOINT}/metadata"
"""Names the query, with an id that another checkpoint does not have."""
_FORMAT = 1
_STAGED = re.compile(r"batch-(\d+)-")


@attrs.frozen
class ExportIdentity:
    """The stream of which a directory has an export."""

    cluster: str
    stream: str
    format: int = _FORMAT


@attrs.frozen
class ExportedBatch:
    """A batch that is published: its files, where they were staged, and their rows."""

    batch: int
    records: int
    staging: str
    files: tuple[StoredFile, ...]
    """By their final names."""
    plan: str = ""
    """Tells its records from others, by `ExportTarget.plan_of`; empty in older lists."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)


class ExportTarget:
    """The directory of one export."""

    def __init__(self, files: JobFiles) -> None:
        self.files = files

    def __repr__(self) -> str:
        return f"ExportTarget({self.files!r})"

    def claim(self, identity: ExportIdentity) -> None:
        """Make it the export of this stream. ConflictError if it holds anything else."""
        if not self.files.is_there(_IDENTITY):
            others = [name for name in self.files.names_in("") if name != HIDDEN]
            if others:
                raise ConflictError(
                    f"{self.files.url('')} has {others[0]!r} in it, and is no export of"
                    " geolog: give an empty directory"
                )
            self.files.create(_IDENTITY, json.dumps(attrs.asdict(identity)))
        elif self.files.names_in(_BATCHES) and not self.files.is_there(_QUERY):
            raise ConflictError(
                f"{self.files.url('')} has an export whose checkpoint is gone: what comes next"
                " is not known. Export into a new directory"
            )
        try:
            found = cattrs.structure(json.loads(self.files.read(_IDENTITY)), ExportIdentity)
        except (ValueError, cattrs.BaseValidationError):
            raise DamagedBytesError(
                f"{self.files.url(_IDENTITY)} is damaged: export into a new directory"
            ) from None
        if found != identity:
            raise ConflictError(
                f"{self.files.url('')} holds the export of {found.stream} in cluster"
                f" {found.cluster}, not of {identity.stream} in {identity.cluster}: give a"
                " directory of its own"
            )

    def staging(self, batch: int, token: str) -> str:
        """The directory in which an attempt writes this batch."""
        return f"{_STAGING}/batch-{batch:06d}-{token}"

    def plan_of(self, batch: int) -> str:
        """What Spark's checkpoint has of a batch that was planned: unequal for other records.

        Spark stores it before it runs the batch, and reads it to repeat the batch.
        """
        stored = self.files.read(_QUERY), self.files.read(f"{CHECKPOINT}/offsets/{batch}")
        return hashlib.sha256("\n".join(stored).encode()).hexdigest()

    def published(self, batch: int, plan: str) -> ExportedBatch | None:
        """The batch if an attempt has published it, finished or not.

        ConflictError if that one has been planned otherwise.
        """
        name = _list_of(batch)
        if not self.files.is_there(name):
            return None
        try:
            made = cattrs.structure(json.loads(self.files.read(name)), ExportedBatch)
        except (ValueError, cattrs.BaseValidationError):
            raise DamagedBytesError(
                f"{self.files.url(name)} is damaged: export into a new directory"
            ) from None
        if made.plan and made.plan != plan:
            raise ConflictError(
                f"{self.files.url('')} has batch {batch} with other records than its checkpoint"
                " has planned now, so the checkpoint was replaced: put the newest one back, or"
                " export into a new directory"
            )
        return made

    def publish(self, batch: int, staging: str, records: int, plan: str) -> ExportedBatch:
        """Publish what was staged. ConflictError if another attempt was faster."""
        staged = self._staged(staging)
        made = ExportedBatch(
            batch,
            records,
            staging,
            tuple(attrs.evolve(one, name=_final(batch, one.name)) for one in staged),
            plan,
        )
        if not self.files.create(_list_of(batch), json.dumps(attrs.asdict(made))):
            raise ConflictError(
                f"another export into {self.files.url('')} has written batch {batch}: run one"
                " at a time"
            )
        return made

    def finish(self, made: ExportedBatch) -> None:
        """Move the files of a published batch to where readers find them.

        It may have been begun before. DataLostError is not possible: a file is at one of both
        places, unless somebody deleted it; then this raises OSError.
        """
        for file in self._staged(made.staging):
            self.files.rename(f"{made.staging}/{file.name}", _final(made.batch, file.name))
        for name in self.files.names_in(_STAGING):
            numbered = _STAGED.match(name)
            if numbered and int(numbered[1]) <= made.batch:
                self.files.delete(f"{_STAGING}/{name}")

    def _staged(self, staging: str) -> Sequence[StoredFile]:
        """The rows in a staging directory, by their names in it."""
        return [
            StoredFile(one.name.removeprefix(f"{staging}/"), one.size_bytes)
            for one in self.files.files_below(staging)
            if one.name.endswith(".parquet")
        ]


def _list_of(batch: int) -> str:
    return f"{_BATCHES}/{batch:06d}.json"


def _final(batch: int, staged: str) -> str:
    """`day=…/hour=…/part-….parquet`, with the number of the batch before the file's name."""
    directory, _, name = staged.rpartition("/")
    return f"{directory}/batch-{batch:06d}-{name}"
