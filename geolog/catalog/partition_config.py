"""Time-outs and other bounds of a partition's owner."""

import attrs


@attrs.frozen(kw_only=True)
class PartitionConfig:
    """Bounds on how an owner writes its partition."""

    add_timeout_s: float = 2.0
    """How long the oldest entry may wait for its ack set before other members are tried."""

    append_timeout_s: float = 60.0
    """How long an entry may wait in total, over failovers. Then its outcome is unknown and the
    writer fails. A value longer than a region takes to restart only costs memory. A block that
    ends without an error waits no longer than this for its appends."""

    member_patience_s: float = 1.0
    """How long a new ledger waits for silent members before it goes on without them."""

    retry_delay_s: float = 0.25
    """Pause before another ledger is tried, or metadata is asked again."""

    close_timeout_s: float = 5.0
    """Bound on leaving. After it the next owner recovers the open ledger."""

    better_ledger_s: float = 10.0
    """How long a member of the open ledger may be away before it is replaced, and how long that
    ledger may keep a placement that would not survive losing another region before a better one
    is looked for. Both are retried with growing pauses."""

    copies_patience_s: float = 2.0
    """How long to wait for the last copies of a closed ledger. If some do not arrive, the
    ledger goes to the repair queue."""

    prepared_age_s_max: float = 12 * 3600.0
    """How long a ledger made ahead may wait to be used before it is replaced by a new one. The
    record of an unused ledger expires after a day."""

    retention_every_s: float = 30.0
    """Pause between checks of the stream's retention."""

    prepare_retry_s: float = 2.0
    """Pause before retrying to make a ledger ahead; the open one goes on meanwhile."""
