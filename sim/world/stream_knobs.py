"""The knobs of the main stream: its settings, its users, the operations on it."""

from typing import Literal

import attrs

from geolog.protocol.stream_state import WRITER_RETENTION_S
from sim.world.chance import Draws

AckChoice = Literal["durable", "received", "none"]
"""When an append is answered: once durable, once received, or never."""

_ANSWERS: tuple[AckChoice, ...] = ("durable", "durable", "received", "received", "none")
_PLAIN_SHARE = 0.3
_SEAL_SHARE = 0.2
_GROWTH_SHARE = 0.4
_EXPECTING_SHARE = 0.3
_DELETION_SHARE = 0.1


@attrs.frozen(kw_only=True)
class StreamKnobs:
    """How the stream is used. By default it is only written and read."""

    partitions: int = 1
    partitions_added: int = 0
    """How many partitions are added while the stream is used, one at a time."""
    growth_rest_s_max: float = 10.0
    """Longest rest of an operator before it adds a partition."""
    segment_age_s: float = 3600.0
    retention_s: float | None = None
    retention_bytes: int | None = None
    retention_every_s: float = 30.0
    """Pause of a writer between two checks of the retention."""
    truncation_rest_s_max: float | None = None
    """Longest rest of an operator between two truncations; None: no truncations."""
    seal_after_s_max: float | None = None
    """The latest time at which an operator seals the stream; None: nobody does."""
    answers: AckChoice = "durable"
    keyed_share: float = 0.0
    """Share of records that have a key."""
    alone_share: float = 0.0
    """Share of the tenures of unnamed writers that open one partition alone."""
    expecting_share: float = 0.0
    """Share of rounds that append a single record, with an expected sequence."""
    has_transactions: bool = False
    """Whether records have transaction ids, a few of which go back."""
    placed_share: float = 0.0
    """Share of readers' walks that begin at a position: a time, a transaction id."""
    reader_rest_s_max: float = 0.0
    """Longest rest of a reader in the middle of a walk; its next records may be trimmed
    meanwhile."""
    writer_retention_s: float = WRITER_RETENTION_S
    """How long an idle named writer is remembered after its records are trimmed."""
    deletion_rest_s_max: float | None = None
    """Longest life of a second stream, which is deleted and created again; None: there is
    none."""

    cursor_readers: int = 0
    """Processes that read by one cursor."""
    is_cursor_shared: bool = False
    """Whether they share it; otherwise one has it at a time."""
    is_cursor_proxied: bool = False
    """Whether every other one of them knows the write proxies alone."""
    cursor_seek_rest_s_max: float | None = None
    """Longest rest of an operator who sets its positions back; None: nobody does."""
    owners_apart: int = 0
    """Processes that own partitions one at a time. If there are any, all writers are copies of
    one application, under one writer id, and reach the owners over links."""
    owner_hold_s_max: float = 4.0
    """Longest time for which such a process keeps a partition."""
    hands_over: bool = False
    """Whether these processes give partitions to each other."""
    unmet_share: float = 0.0
    """Share of the records of such writers that are first sent with an expected sequence that
    they cannot get."""

    @property
    def may_forget_writers(self) -> bool:
        """Whether a named writer may be forgotten within a history."""
        return self.writer_retention_s < WRITER_RETENTION_S

    @property
    def is_plain(self) -> bool:
        """Whether the stream is only written and read, as a log of one partition."""
        return self == StreamKnobs()


PLAIN = StreamKnobs()


def draw_stream_knobs(draws: Draws) -> StreamKnobs:
    """Draw how a stream is used; some are plain, because other uses may hide defects."""
    if draws.happens("plain stream", _PLAIN_SHARE):
        return PLAIN
    does_grow = draws.happens("growth", _GROWTH_SHARE)
    is_sealed = draws.happens("seal", _SEAL_SHARE)
    is_expecting = draws.happens("expecting", _EXPECTING_SHARE)
    has_deletions = draws.happens("deletion", _DELETION_SHARE)
    truncations = draws.choice("truncation_rest_s_max", (None, 1.0, 4.0))
    remembered_s = draws.choice("writer_retention_s", (WRITER_RETENTION_S, 0.5, 2.0))
    return StreamKnobs(
        partitions=draws.choice("partitions", (1, 1, 2, 3)),
        partitions_added=draws.choice("partitions_added", (1, 2)) if does_grow else 0,
        segment_age_s=draws.choice("segment_age_s", (1.0, 3.0, 3600.0)),
        retention_s=draws.choice("retention_s", (None, None, 3.0, 10.0)),
        retention_bytes=draws.choice("retention_bytes", (None, None, 2_000, 20_000, 200_000)),
        retention_every_s=draws.choice("retention_every_s", (1.0, 5.0)),
        truncation_rest_s_max=truncations,
        seal_after_s_max=draws.choice("seal_after_s_max", (6.0, 20.0)) if is_sealed else None,
        answers=draws.choice("answers", _ANSWERS),
        keyed_share=draws.choice("keyed_share", (0.0, 0.7, 1.0)),
        alone_share=draws.choice("alone_share", (0.0, 0.5)),
        expecting_share=0.2 if is_expecting else 0.0,
        has_transactions=draws.happens("has_transactions", 0.5),
        placed_share=draws.choice("placed_share", (0.0, 0.3, 0.6)),
        reader_rest_s_max=draws.choice("reader_rest_s_max", (0.0, 0.1, 1.0)),
        writer_retention_s=remembered_s,
        deletion_rest_s_max=(
            draws.choice("deletion_rest_s_max", (2.0, 8.0)) if has_deletions else None
        ),
    )
