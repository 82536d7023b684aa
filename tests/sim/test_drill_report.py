"""A drill's report tells when streams got no answers."""

from pathlib import Path
from xml.etree import ElementTree

import attrs

from sim.processes.drills.report import write_report
from sim.processes.drills.timeline import Span, Timeline
from sim.processes.drills.verdict import RegionFigures, Verdict

VERDICT = Verdict(
    drill="kill-random",
    passed=True,
    problems=[],
    counts={"lost": 0},
    figures={"pause_s_max": 7.0},
    rounds=[],
    seed=3,
)


def a_timeline_with_a_pause() -> Timeline:
    timeline = Timeline()
    timeline.add_answers(100.0, "shop/slow & sure", 5)
    for second in range(10):
        timeline.add_answers(100.5 + second * 0.9, "shop/steady", 7)
    timeline.note_fault(102.0, "killed <node>")
    timeline.add_answers(107.0, "shop/slow & sure", 5)
    return timeline


def test_a_stream_is_unavailable_while_it_gets_no_answer_for_a_second() -> None:
    unavailable = a_timeline_with_a_pause().unavailable()

    assert unavailable["shop/steady"] == []
    assert [round(span.length_s, 3) for span in unavailable["shop/slow & sure"]] == [7.0, 1.6]


def test_a_stream_that_is_never_answered_again_is_unavailable_until_the_end() -> None:
    timeline = Timeline()
    timeline.add_answers(1.0, "shop/ends", 1)
    timeline.add_answers(1.0, "shop/goes-on", 1)
    timeline.add_answers(6.0, "shop/goes-on", 1)

    assert timeline.unavailable()["shop/ends"] == [Span(0.0, 5.0)]


def test_the_picture_is_xml_that_names_streams_and_faults() -> None:
    picture = ElementTree.fromstring(a_timeline_with_a_pause().svg("a < b"))

    texts = " ".join(picture.itertext())
    assert "a < b" in texts
    assert "shop/slow & sure" in texts
    assert texts.count("killed <node>") == 2  # At the line, and where it is pointed at.
    assert "7.0 s" in texts


def test_a_directory_gets_the_verdict_in_three_forms(tmp_path: Path) -> None:
    write_report(tmp_path / "report", VERDICT, a_timeline_with_a_pause())

    names = {path.suffix for path in (tmp_path / "report").iterdir()}
    assert names == {".json", ".md", ".svg"}
    text = (tmp_path / "report" / "verdict").with_suffix(".md").read_text()
    assert "| shop/slow & sure | 8.6 | 7.0 | 2 |" in text
    assert "| 2.0 | killed <node> |" in text


def test_regions_and_rounds_are_tables_of_their_own(tmp_path: Path) -> None:
    figures = RegionFigures(
        region="eu-west",
        unavailable_s=6.25,
        longest_s=6.25,
        p50_during_ms=3000.0,
        p99_during_ms=6200.0,
    )
    verdict = attrs.evolve(VERDICT, regions=[figures], rounds=[{"outage_s_max": 6.5}])

    write_report(tmp_path / "report", verdict, Timeline())

    text = (tmp_path / "report" / "verdict").with_suffix(".md").read_text()
    assert "| eu-west | 6.250 | 6.250 | 3000.000 | 6200.000 |" in text
    assert "| outage_s_max |\n|---|\n| 6.500 |" in text


def test_a_drill_without_a_timeline_gets_no_picture(tmp_path: Path) -> None:
    write_report(tmp_path / "report", VERDICT, Timeline())

    assert not (tmp_path / "report" / "timeline.svg").exists()
    assert "timeline" not in (tmp_path / "report" / "verdict").with_suffix(".md").read_text()


def test_a_name_that_ends_in_json_gets_only_the_json(tmp_path: Path) -> None:
    write_report(tmp_path / "verdict.json", VERDICT, a_timeline_with_a_pause())

    assert (tmp_path / "verdict.json").read_text().startswith('{\n  "drill": "kill-random"')
