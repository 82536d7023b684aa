"""The table of round trips between regions."""

from geolog.admin.region_latency import LatencyMatrix, LatencyRow, RegionDistance
from geolog.cli.terminal.latency_table import latency_lines
from geolog.cli.terminal.table import Tone


def distance(
    region: str, last_s: float | None, rtt_s: float | None, *, is_silent: bool = False
) -> RegionDistance:
    return RegionDistance(region=region, rtt_s=rtt_s, last_s=last_s, is_silent=is_silent)


def shout(text: str, tone: Tone) -> str:
    return text if tone in ("plain", "head") else f"{text}[{tone}]"


MATRIX = LatencyMatrix(
    regions=["a", "b", "c"],
    rows=[
        LatencyRow(
            region="a",
            measured_by="proxy-1",
            to=[
                distance("a", 0.0004, 0.0002),
                distance("b", 0.0803, 0.08),
                distance("c", 0.3, 0.15),
            ],
        ),
        LatencyRow(
            region="b",
            measured_by="proxy-2",
            to=[
                distance("a", 0.4, 0.08),
                distance("b", None, None),
                distance("c", 0.2, 0.2, is_silent=True),
            ],
        ),
    ],
)


def test_each_cell_has_the_last_round_trip() -> None:
    assert list(latency_lines(MATRIX, None)) == [
        "from \\ to      a       b       c",
        "a          400us  80.3ms   300ms",
        "b          400ms       -  silent",
        "c              -       -       -",
    ]


def test_colours_compare_it_with_the_median() -> None:
    lines = list(latency_lines(MATRIX, None, shout))

    assert [word.strip() for word in lines[1].split()] == [
        "a",
        "400us[good]",
        "80.3ms[good]",
        "300ms[warn]",
    ]
    assert lines[2].split() == ["b", "400ms[bad]", "-", "silent[bad]"]
