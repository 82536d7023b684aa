"""The verdict of a drill with writers in several regions: what was lost, and for how long.

RPO is zero unless acknowledged records are missing: then it is the age, at the next fault, of
the oldest one. RTO is the longest time from a fault until a writer is answered again.
"""

import statistics
from collections.abc import Sequence

import attrs

from sim.processes.drills.fault_span import FaultSpan
from sim.processes.drills.proxied_drill import ProxiedDrill
from sim.processes.drills.verdict import RegionFigures, audit_stream


@attrs.frozen(kw_only=True)
class ProxiedVerdict:
    """Counts, figures and problems that the drills on proxies have in common."""

    problems: list[str]
    counts: dict[str, int]
    figures: dict[str, float]
    regions: list[RegionFigures]


async def judge(drill: ProxiedDrill) -> ProxiedVerdict:
    """Read everything back, and compare."""
    log, stream, load, spans = drill.log, drill.stream, drill.load, drill.spans
    acknowledged = [one for writer in load.writers for one in writer.acknowledged]
    appended = {value for writer in load.writers for value in writer.appended}
    audit = await audit_stream(log, stream, acknowledged, appended)
    async with log.open_reader(stream) as reader:
        found = {record.dlsn: record.value async for record in reader}
    swapped = load.swapped_count([value for value in found.values() if value in appended])
    problems = audit.problems + load.problems()
    if swapped:
        problems.append(f"{swapped} records are before an earlier one of their writer")
    lost_s = [
        answered_s
        for writer in load.writers
        for one, answered_s in zip(writer.acknowledged, writer.answered_s, strict=True)
        if one.dlsn not in found
    ]
    outages_s = [outage_s for span in spans for outage_s in drill.outages_s(span)]
    return ProxiedVerdict(
        problems=problems,
        counts={
            "writers": len(load.writers),
            **attrs.asdict(audit),
            "swapped": swapped,
            "unknown": load.unknown_count,
        },
        figures={"rpo_s": _rpo_s(lost_s, spans), "rto_s": max(outages_s)},
        regions=[
            region_figures(drill, region)
            for region in sorted({writer.region for writer in load.writers})
        ],
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _rpo_s(lost_s: Sequence[float], spans: Sequence[FaultSpan]) -> float:
    ages_s = [
        min((span.begin_s - at_s for span in spans if span.begin_s >= at_s), default=0.0)
        for at_s in lost_s
    ]
    return max(ages_s, default=0.0)


def region_figures(drill: ProxiedDrill, region: str) -> RegionFigures:
    """The faults as the writers of one region noticed them."""
    latencies_s = [
        latency_s
        for writer in drill.load.writers
        for span in drill.spans
        if writer.region == region
        for latency_s in writer.latencies(span.begin_s, span.end_s)
    ]
    lengths_s = [pause.length_s for pause in drill.timeline.unavailable().get(region, [])]
    return RegionFigures(
        region=region,
        unavailable_s=sum(lengths_s),
        longest_s=max(lengths_s, default=0.0),
        p50_during_ms=1e3 * statistics.median(latencies_s) if latencies_s else None,
        p99_during_ms=1e3 * percentile(latencies_s, 0.99) if latencies_s else None,
    )
