"""Shows how the reads of a command were hedged."""

from geolog.ledger.replicas.hedging import ReadStatistics
from geolog.settings.quantities import format_bytes


def read_statistics_line(found: ReadStatistics) -> str:
    """The reads of a command in one line, e.g. `120 questions to replicas, none hedged`."""
    stages = [f"{count} at stage {stage}" for stage, count in found.hedged_count.items()]
    hedged = (
        f"{sum(found.hedged_count.values())} extra requests ({found.extra_share:.2%}:"
        f" {', '.join(stages)}), {found.won_count} of them answered first"
        if stages
        else "none hedged"
    )
    parts = [f"{found.asked_count} questions to replicas", hedged]
    if found.refused_count:
        parts.append(f"{found.refused_count} times no budget for more")
    if found.failed_count:
        parts.append(f"{found.failed_count} requests failed")
    if found.late_count:
        parts.append(f"{found.late_count} later than the limit")
    if found.damaged_count:
        damaged = (f"{node} {count}" for node, count in found.damaged_count.items())
        parts.append(f"damaged copies: {', '.join(damaged)}")
    if found.extra_bytes_count:
        parts.append(f"about {format_bytes(found.extra_bytes_count)} asked twice")
    return "; ".join(parts)
