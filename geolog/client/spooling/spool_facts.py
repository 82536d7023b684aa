"""The writer and stream of a spool: its file `spool.json`, and the errors of spools."""

import json
from typing import ClassVar, Literal

import attrs

from topology.errors import (
    ConflictError,
    DamagedBytesError,
    FencedError,
    GeologError,
    public,
)

FORMAT = 1
Numbering = Literal["own", "given"]


@public
class SpoolMismatchError(ConflictError):
    """The directory holds the spool of another writer, stream or cluster: name another one."""


@public
class SpoolInUseError(ConflictError):
    """Another process has the spool open: end it, or give this one a spool of its own."""


@public
class SpoolDamagedError(DamagedBytesError):
    """Bytes that were on disk are gone or changed. `geolog spool export` saves the others."""


@public
class SpoolSeqsTakenError(FencedError):
    """Another program appends under the writer id of a spool: give it an id of its own."""


@public
class SpoolWriteError(GeologError):
    """The spool's disk is full or fails. Records that were on it stay, and are sent."""

    code: ClassVar[int] = 507


@attrs.frozen(kw_only=True)
class SpoolFacts:
    """The writer of a spool, and what it has learned of the log."""

    cluster: str
    stream: str
    """A stream, or one partition of it."""
    writer_id: str
    numbering: Numbering | None = None
    """Whether the spool numbers the records itself; None until the first record."""
    seq_base: int | None = None
    """Added to the seqs in frames; None until a spool that numbers has reached the log."""
    life: str | None = None
    """The life of the stream; None until the log was reached."""
    home_epoch: int | None = None
    """The home that has everything that is answered."""

    def check_same(self, wanted: "SpoolFacts", directory: str) -> None:
        """SpoolMismatchError if the spool is of another writer."""
        for what, has, needed in (
            ("cluster", self.cluster, wanted.cluster),
            ("stream", self.stream, wanted.stream),
            ("writer", self.writer_id, wanted.writer_id),
        ):
            if has != needed:
                raise SpoolMismatchError(
                    f"{directory} is the spool of {what} {has!r}, not {needed!r}: name a"
                    " directory of its own for each writer (`geolog spool show` tells what one"
                    " holds)"
                )


def encode_facts(facts: SpoolFacts) -> bytes:
    """The content of `spool.json`."""
    document = {"format": FORMAT, **attrs.asdict(facts)}
    return json.dumps(document, indent=1).encode() + b"\n"


def decode_facts(data: bytes, where: str) -> SpoolFacts:
    """Parse `spool.json`. SpoolDamagedError."""
    try:
        document = json.loads(data)
        found = document.pop("format")
        if found != FORMAT:
            raise SpoolDamagedError(
                f"{where} has format {found}; this version of geolog reads format {FORMAT}"
            )
        return SpoolFacts(**document)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise SpoolDamagedError(f"{where} is damaged: {error}") from error
