"""What a seed draws of the one stream: how it is set, who uses it how, what is done to it."""

from typing import Literal

import attrs

from geolog.protocol.stream_state import WRITER_RETENTION_S
from sim.world.chance import Draws

AckChoice = Literal["durable", "received", "none"]
"""When an append is answered: once it is durable, once it is received, or never."""

_ANSWERS: tuple[AckChoice, ...] = ("durable", "durable", "received", "received", "none")
_PLAIN_SHARE = 0.3
_SEAL_SHARE = 0.2
_GROWTH_SHARE = 0.4
_EXPECTING_SHARE = 0.3
_DELETION_SHARE = 0.1


@attrs.frozen(kw_only=True)
class StreamKnobs:
    """As they are, all that happens to the stream is that it is written and read."""

    partitions: int = 1
    partitions_added: int = 0
    """How many more it gets while it is used, one at a time."""
    segment_age_s: float = 3600.0
    retention_s: float | None = None
    retention_bytes: int | None = None
    retention_every_s: float = 30.0
    """Pause of a writer between looks at what the retention lets go."""
    truncation_rest_s_max: float | None = None
    """Longest rest of an operator between two truncations; None: there are none."""
    seal_after_s_max: float | None = None
    """When an operator seals it at the latest; None: nobody does."""
    answers: AckChoice = "durable"
    keyed_share: float = 0.0
    """Share of records that have a key."""
    alone_share: float = 0.0
    """Share of the tenures of writers without names that are over one partition alone."""
    expecting_share: float = 0.0
    """Share of runs of appends that are one record, which expects a sequence."""
    has_transactions: bool = False
    """Whether records have transaction ids, a few of which go back."""
    placed_share: float = 0.0
    """Share of the walks of readers that begin at a place: a time, a transaction id."""
    reader_rest_s_max: float = 0.0
    """Longest rest of a reader in the middle of a walk: what it goes on with may be gone."""
    writer_retention_s: float = WRITER_RETENTION_S
    """How long a named writer is remembered that is idle, and whose records are trimmed."""
    deletion_rest_s_max: float | None = None
    """Longest life of a stream beside it, which is deleted and made again; None: there is no
    such stream."""

    @property
    def may_forget_writers(self) -> bool:
        """Whether a history is long enough that a named writer may be forgotten in it."""
        return self.writer_retention_s < WRITER_RETENTION_S

    @property
    def is_plain(self) -> bool:
        """Whether it is only written and read, as a log of one partition."""
        return self == StreamKnobs()


PLAIN = StreamKnobs()


def draw_stream_knobs(draws: Draws) -> StreamKnobs:
    """Draw how a stream is used; some are plain, so that nothing hides behind the rest."""
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
