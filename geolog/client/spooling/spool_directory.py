"""The files of a spool: locked, written and synced, scanned when opened.

    lock           locked while a process has the spool open; holds its process id
    spool.json     what the spool is of
    N.frames       frames, one behind the other (see `geolog.wire.spool_frame`)
    mark           two slots, written in turn: how far the log has answered
    refused.jsonl  records that the log refused for good, one per line, with the error
    torn-N         bytes of a write that a crash cut off

All calls block: the writer makes them in threads, one at a time.
"""

import fcntl
import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import attrs

from geolog.client.spooling.spool_facts import (
    SpoolDamagedError,
    SpoolFacts,
    SpoolInUseError,
    SpoolWriteError,
    decode_facts,
    encode_facts,
)
from geolog.protocol.spool_queue import SpooledFrame
from geolog.wire.batch import Batch, open_batch
from geolog.wire.session.json_records import content_document
from geolog.wire.spool_frame import (
    MARK_BYTES,
    SpoolFrame,
    SpoolMark,
    decode_frame,
    decode_marks,
    encode_mark,
    scan_frames,
)
from topology.errors import DamagedBytesError, InvalidArgumentError, NotFoundError

_LOGGER = logging.getLogger(__name__)

_FACTS = "spool.json"
_MARK = "mark"
_REFUSED = "refused.jsonl"
_SUFFIX = ".frames"


@attrs.frozen
class RefusedRecord:
    """A record that the log refused for good."""

    seq: int
    error: str
    value: bytes
    key: bytes | None
    headers: dict[str, bytes]
    transaction_id: int | None


@attrs.frozen
class FoundSpool:
    """Contents of the files of a spool."""

    facts: SpoolFacts
    frames: tuple[SpooledFrame, ...]
    mark: SpoolMark
    refused: dict[int, frozenset[int]]
    """Rows kept in `refused.jsonl`, by frame."""
    faults: tuple[str, ...]
    """Damage; none in a spool that may be opened."""


class SpoolDirectory:
    """A spool that this process has locked."""

    def __init__(self, path: Path, lock_file: int, found: FoundSpool) -> None:
        self.path = path
        self.facts = found.facts
        self._lock_file = lock_file
        self._mark_file = -1
        self._mark_slot = 0
        self._open_file: int | None = None
        self._open_bytes = 0
        self.open_number = max((frame.file for frame in found.frames), default=-1) + 1
        """The number of the file that is written to, or that is begun next."""

    def __repr__(self) -> str:
        return f"SpoolDirectory({str(self.path)!r}, {self.facts.writer_id})"

    # Opening.

    @classmethod
    def open(cls, path: Path, wanted: SpoolFacts) -> tuple["SpoolDirectory", FoundSpool]:
        """Lock the spool, and make it if it is not there; read what it holds.

        SpoolInUseError, SpoolMismatchError, SpoolDamagedError, SpoolWriteError.
        """
        lock_file = -1
        try:
            _make(path)
            lock_file = _locked(path)
            if not (path / _FACTS).exists():
                strange = sorted(one.name for one in path.iterdir() if one.name != "lock")
                if strange:
                    raise InvalidArgumentError(
                        f"{path} is not a spool, and not empty (it has {strange[0]!r}): name an"
                        " empty directory, or one that does not exist"
                    )
                _replace(path / _FACTS, encode_facts(wanted))
            found = read_spool(path)
            found.facts.check_same(wanted, str(path))
            if found.faults:
                raise SpoolDamagedError(
                    f"spool {path} is damaged: {found.faults[0]}. Save the other records with"
                    f" `geolog spool export {path}`, then name another directory"
                )
            _move_torn_end(path)
            _cut_torn_line(path / _REFUSED)
            directory = cls(path, lock_file, found)
            directory._open_mark(found.mark)
        except OSError as error:
            _close(lock_file)
            raise write_error(path, error) from error
        except BaseException:
            _close(lock_file)
            raise
        return directory, found

    def _open_mark(self, mark: SpoolMark) -> None:
        # Both slots are written, so that a mark is never older than the one that was read.
        self._mark_file = os.open(self.path / _MARK, os.O_RDWR | os.O_CREAT, 0o600)
        for _ in range(2):
            self.write_mark(mark)
        _sync_directory(self.path)

    def close(self) -> None:
        """Release the files and the lock."""
        self.roll()
        _close(self._mark_file)
        _close(self._lock_file)

    # Writing.

    def write_facts(self, facts: SpoolFacts) -> None:
        """Replace what is known of the spool."""
        try:
            _replace(self.path / _FACTS, encode_facts(facts))
        except OSError as error:
            raise write_error(self.path, error) from error
        self.facts = facts

    def write_frame(self, data: bytes, *, file_bytes: int) -> tuple[int, int]:
        """Write and sync one frame; its file and its offset. SpoolWriteError.

        file_bytes: begin another file once this one is as long.
        """
        if self._open_bytes >= file_bytes:
            self.roll()
        is_new = self._open_file is None
        try:
            if self._open_file is None:
                self._open_file = os.open(
                    self._path_of(self.open_number), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600
                )
            offset = self._open_bytes
            _write_all(self._open_file, data, offset)
            os.fsync(self._open_file)
            if is_new:
                _sync_directory(self.path)
        except OSError as error:
            self._take_back()
            raise write_error(self.path, error) from error
        self._open_bytes = offset + len(data)
        return self.open_number, offset

    def _take_back(self) -> None:
        """Cut off what was written of a frame that nobody was promised."""
        if self._open_file is not None:
            with suppress(OSError):  # The next start finds a torn end instead.
                os.ftruncate(self._open_file, self._open_bytes)
                os.fsync(self._open_file)

    def roll(self) -> None:
        """End the open file."""
        if self._open_file is not None:
            _close(self._open_file)
            self._open_file, self._open_bytes = None, 0
            self.open_number += 1

    def delete(self, file: int) -> None:
        """Delete a file, whose records the log has."""
        try:
            self._path_of(file).unlink()
        except OSError as error:
            raise write_error(self.path, error) from error

    def write_mark(self, mark: SpoolMark) -> None:
        """Write and sync the mark. SpoolWriteError."""
        try:
            _write_all(self._mark_file, encode_mark(mark), self._mark_slot * MARK_BYTES)
            os.fsync(self._mark_file)
        except OSError as error:
            raise write_error(self.path, error) from error
        self._mark_slot = 1 - self._mark_slot

    def write_refused(self, frame: int, row: int, record: RefusedRecord) -> None:
        """Keep a refused record, synced. SpoolWriteError."""
        document = {
            "frame": frame,
            "row": row,
            "seq": record.seq,
            "error": record.error,
            **record_document(record),
        }
        line = json.dumps(document, ensure_ascii=False).encode() + b"\n"
        path = self.path / _REFUSED
        try:
            is_new = not path.exists()
            with path.open("ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            if is_new:
                _sync_directory(self.path)
        except OSError as error:
            raise write_error(self.path, error) from error

    # Reading.

    def read(self, frame: SpooledFrame) -> tuple[SpoolFrame, Batch]:
        """Read a frame back. SpoolDamagedError."""
        return read_frame(self.path, frame)

    def _path_of(self, file: int) -> Path:
        return self.path / f"{file:012d}{_SUFFIX}"


def read_frame(path: Path, frame: SpooledFrame) -> tuple[SpoolFrame, Batch]:
    """Read a frame of the spool in this directory, and open its batch. SpoolDamagedError."""
    name = path / f"{frame.file:012d}{_SUFFIX}"
    try:
        with name.open("rb") as file:
            file.seek(frame.offset)
            data = file.read(frame.length_bytes)
        found = decode_frame(data)
        return found, open_batch(found.sealed)
    except OSError as error:
        raise SpoolDamagedError(f"cannot read {name}: {error.strerror}") from error
    except DamagedBytesError as error:
        raise SpoolDamagedError(
            f"frame {frame.number} at byte {frame.offset} of {name} {error}"
        ) from error


def read_spool(path: Path) -> FoundSpool:
    """Read what a spool holds, without a lock. NotFoundError, SpoolDamagedError."""
    try:
        facts = decode_facts((path / _FACTS).read_bytes(), str(path / _FACTS))
    except FileNotFoundError as error:
        raise NotFoundError(
            f"{path} is not a spool: it has no {_FACTS}. Name the directory that was given as"
            " spool"
        ) from error
    marks = path / _MARK
    mark = decode_marks(marks.read_bytes()) if marks.exists() else SpoolMark()
    frames: list[SpooledFrame] = []
    damage = ""
    for name in sorted(path.glob(f"*{_SUFFIX}")):
        scan = scan_frames(name.read_bytes())
        if scan.fault is not None and not scan.is_torn:
            damage = f": byte {scan.whole_bytes} of {name.name} {scan.fault}"
        file = int(name.name.removesuffix(_SUFFIX))
        frames += [_spooled(one, file) for one in scan.frames]
    faults = tuple(f"{hole}{damage}" for hole in _holes(frames, mark))
    return FoundSpool(facts, tuple(frames), mark, _refused_rows(path), faults)


def refused_lines(path: Path) -> Iterator[bytes]:
    """The lines of the records that the log refused for good."""
    with suppress(FileNotFoundError), (path / _REFUSED).open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):  # Else a crash cut it off, and the record is sent again.
                yield line


def record_document(record: RefusedRecord) -> dict[str, object]:
    """The record as `geolog append --format jsonl` takes it."""
    document: dict[str, object] = dict(
        content_document(record.value, record.key, record.headers)
    )
    if record.transaction_id is not None:
        document["transaction_id"] = record.transaction_id
    return document


def _refused_rows(path: Path) -> dict[int, frozenset[int]]:
    rows: dict[int, set[int]] = {}
    for line in refused_lines(path):
        try:
            document = json.loads(line)
            rows.setdefault(int(document["frame"]), set()).add(int(document["row"]))
        except (ValueError, KeyError, TypeError) as error:
            raise SpoolDamagedError(f"{path / _REFUSED} is damaged: {error}") from error
    return {frame: frozenset(some) for frame, some in rows.items()}


def _holes(frames: Sequence[SpooledFrame], mark: SpoolMark) -> list[str]:
    """Frames that are missing, and that the log has not answered."""
    holes, expected = [], mark.frame
    for frame in frames:
        if frame.number > expected:
            holes.append(f"frames {expected} to {frame.number - 1} have no answer and are gone")
        expected = max(expected, frame.number + 1)
    return holes


def _spooled(found: SpoolFrame, file: int) -> SpooledFrame:
    return SpooledFrame(
        number=found.number,
        file=file,
        offset=found.offset,
        length_bytes=found.length_bytes,
        seq_first=found.seqs.first,
        seq_last=found.seqs.last,
        count=found.seqs.count,
    )


def _move_torn_end(path: Path) -> None:
    """Move the bytes of a write that a crash cut off out of the way."""
    names = sorted(path.glob(f"*{_SUFFIX}"))
    if not names:
        return
    last = names[-1]
    data = last.read_bytes()
    scan = scan_frames(data)
    if scan.fault is not None and scan.is_torn:
        aside = path / f"torn-{last.name.removesuffix(_SUFFIX)}"
        _LOGGER.warning(
            "spool %s: the last %d bytes are of a write that a crash cut off (%s); moved to %s."
            " No application was told that they were on disk",
            path, len(data) - scan.whole_bytes, scan.fault, aside.name,
        )  # fmt: skip
        _replace(aside, data[scan.whole_bytes :])
        with last.open("r+b") as file:
            file.truncate(scan.whole_bytes)
            os.fsync(file.fileno())
    if not scan.frames:
        last.unlink()
        _sync_directory(path)


def _cut_torn_line(path: Path) -> None:
    """Cut off a line that a crash left incomplete: its record has no answer, and goes again."""
    with suppress(FileNotFoundError), path.open("r+b") as file:
        data = file.read()
        whole_bytes = data.rfind(b"\n") + 1
        if whole_bytes < len(data):
            file.truncate(whole_bytes)
            os.fsync(file.fileno())


def write_error(path: Path, error: OSError) -> SpoolWriteError:
    """The error of a disk, in the terms of the spool."""
    return SpoolWriteError(
        f"cannot write the spool {path}: {error.strerror}. The records before are on disk; free"
        " space or name another disk, then open the writer again"
    )


def _make(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise InvalidArgumentError(f"{path} is a file: a spool needs a directory of its own")
    if not path.exists():
        path.mkdir(parents=True, mode=0o700)
        _sync_directory(path.parent)


def _locked(path: Path) -> int:
    lock_file = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(lock_file, 32, 0).decode(errors="replace").strip() or "unknown"
        _close(lock_file)
        raise SpoolInUseError(
            f"spool {path} is in use by process {holder}: a spool serves one writer at a time."
            " End that process, or name another directory and writer"
        ) from error
    os.ftruncate(lock_file, 0)
    os.pwrite(lock_file, f"{os.getpid()}\n".encode(), 0)
    return lock_file


def holder_of(path: Path) -> int | None:
    """The id of the process that has the spool open, if one has."""
    try:
        lock_file = os.open(path / "lock", os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(lock_file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(lock_file, 32, 0).strip()
        return int(text) if text.isdigit() else None
    finally:
        _close(lock_file)
    return None


def discard_spool(path: Path) -> None:
    """Delete the files of a spool that no process has open. SpoolInUseError, NotFoundError."""
    if not (path / _FACTS).exists():
        raise NotFoundError(f"{path} is not a spool: it has no {_FACTS}")
    lock_file = _locked(path)
    try:
        for one in sorted(path.iterdir()):
            is_ours = one.suffix == _SUFFIX or one.name.startswith("torn-")
            if is_ours or one.name in {_MARK, _REFUSED}:
                one.unlink()
        (path / _FACTS).unlink()  # Last: until here it is a spool, and can be discarded again.
        (path / "lock").unlink()
        with suppress(OSError):  # Something of somebody else is in it.
            path.rmdir()
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        _close(lock_file)


def _replace(path: Path, data: bytes) -> None:
    """Give a file this content, whole or not at all."""
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    _sync_directory(path.parent)


def _write_all(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _close(file: int) -> None:
    if file >= 0:
        os.close(file)
