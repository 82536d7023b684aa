"""Bounds of an owner."""

import attrs


@attrs.frozen(kw_only=True)
class PartitionConfig:
    """How an owner writes its partition."""

    add_timeout_s: float = 2.0
    """How long the oldest entry may wait for its ack set before other members are tried."""

    append_timeout_s: float = 60.0
    """How long entries may wait in all, over failovers; then their outcome is unknown and the
    writer gives up. Longer than any region's restart is worth waiting for is wasted memory. A
    block that ends well waits no longer for what it appended."""

    member_patience_s: float = 1.0
    """How long a new ledger waits for members that do not answer, before it goes without."""

    retry_delay_s: float = 0.25
    """Pause before a next ledger, or metadata, is tried again."""

    close_timeout_s: float = 5.0
    """How long leaving may take; then the next owner recovers what is left open."""

    better_ledger_s: float = 10.0
    """How long a member of the open ledger may be away before another takes its place, and how
    long that ledger may do with a placement that would not survive another region before a
    better one is looked for; each then again and again, ever less often."""

    copies_patience_s: float = 2.0
    """How long a ledger that was closed is watched for the copies that are still on their way;
    if some do not arrive, the ledger goes to the repair queue."""

    prepared_age_s_max: float = 12 * 3600.0
    """How long a ledger made ahead may wait to be used; then another is made. The record of one
    that is never used expires after a day."""

    retention_every_s: float = 30.0
    """Pause between looks at what the stream's retention lets go."""

    prepare_retry_s: float = 2.0
    """Pause before a ledger is made ahead again after that failed; the open one goes on."""
