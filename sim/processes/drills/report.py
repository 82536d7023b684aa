"""The verdict of a drill as files: JSON for programs, Markdown and a picture for people."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from sim.processes.drills.timeline import UNAVAILABLE_S_MIN, Timeline
from sim.processes.drills.verdict import Verdict


def write_report(place: Path, verdict: Verdict, timeline: Timeline) -> None:
    """Write JSON to a file `*.json`, or all three to a directory, which is made if needed."""
    document = json.dumps(attrs.asdict(verdict), indent=2) + "\n"
    if place.suffix == ".json":
        place.write_text(document, encoding="utf-8")
        return
    place.mkdir(parents=True, exist_ok=True)
    (place / "verdict.json").write_text(document, encoding="utf-8")
    if not timeline.is_empty:
        title = f"{verdict.drill}, seed {verdict.seed}: {_outcome(verdict)}"
        (place / "timeline.svg").write_text(timeline.svg(title), encoding="utf-8")
    text = "\n".join(_markdown(verdict, timeline)) + "\n"
    (place / "verdict").with_suffix(".md").write_text(text, encoding="utf-8")


def _markdown(verdict: Verdict, timeline: Timeline) -> Iterator[str]:
    yield f"# Drill {verdict.drill}: {_outcome(verdict)}"
    yield f"\nSeed {verdict.seed}.\n"
    yield from (f"- {problem}" for problem in verdict.problems)
    yield "\n| count or figure | value |\n|---|---|"
    yield from (f"| {name} | {count:,} |" for name, count in verdict.counts.items())
    yield from (f"| {name} | {figure:.3f} |" for name, figure in verdict.figures.items())
    if verdict.regions:
        yield from _table([attrs.asdict(region) for region in verdict.regions])
    if verdict.rounds:
        yield from _table(verdict.rounds)
    if timeline.is_empty:
        return
    yield f"\n| {timeline.lane_kind} | s without answers | longest | times |\n|---|---|---|---|"
    for lane, spans in timeline.unavailable().items():
        lengths_s = [span.length_s for span in spans]
        longest_s = max(lengths_s, default=0.0)
        yield f"| {lane} | {sum(lengths_s):.1f} | {longest_s:.1f} | {len(spans)} |"
    yield f"\nA pause below {UNAVAILABLE_S_MIN:.0f} s does not count.\n"
    yield "![Answers a second, and faults](timeline.svg)\n"
    yield "| s | fault |\n|---|---|"
    yield from (f"| {at_s:.1f} | {text} |" for at_s, text in timeline.faults)


def _table(rows: Sequence[Mapping[str, str | float]]) -> Iterator[str]:
    """Rows with the same keys, which head the columns."""
    yield f"\n| {' | '.join(rows[0])} |\n|{'---|' * len(rows[0])}"
    for row in rows:
        cells = (one if isinstance(one, str) else f"{one:.3f}" for one in row.values())
        yield f"| {' | '.join(cells)} |"


def _outcome(verdict: Verdict) -> str:
    return "passed" if verdict.passed else "FAILED"
