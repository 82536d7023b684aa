"""The table of a benchmark of appends has a row for each load."""

from geolog.cli.terminal.bench_table import bench_lines
from geolog.cli.terminal.table import unpainted
from sim.processes.bench.figures import figure

FIGURES = [
    figure("1KiB one at a time rate", 1650.0, "records/s"),
    figure("1KiB one at a time p50", 0.5, "ms", floor=0.25, goal="<= 4 x the floor"),
    figure("1KiB one at a time p99", 12.5, "ms"),
    figure("64KiB rate", 2712.0, "records/s"),
    figure("64KiB throughput", 177.7, "MB/s", floor=222.0, goal=">= 0.75 of the floor"),
    figure("64KiB group write", 1_572_864, "bytes"),
    figure("64KiB p99.9", 1234.0, "ms"),
    figure("64KiB max", 2500.0, "ms"),
    figure("64KiB WebSocket hop throughput", 1100.0, "MB/s"),
    figure("64KiB via proxy rate", 900.0, "records/s"),
]


def test_a_load_is_a_row_in_units_of_people() -> None:
    head, single, many, hop, proxied = (
        line.split("  ") for line in bench_lines(FIGURES, None, unpainted)
    )
    cells = [
        [cell.strip() for cell in row if cell.strip()] for row in (single, many, hop, proxied)
    ]

    assert [cell.strip() for cell in head if cell.strip()] == [
        *("load", "records/s", "throughput", "floor", "of floor", "goal"),
        *("p50", "p99", "p99.9", "max", "group write"),
    ]
    assert cells == [
        ["1KiB one at a time", "1,650", "-", "250us", "2x", "<= 4x", "500us", "12.5ms", *"---"],
        [
            *("64KiB", "2,712", "178MB/s", "222MB/s", "80%", ">= 0.75"),
            *("-", "-", "1.23s", "2.5s", "1.5MiB"),
        ],
        ["64KiB WebSocket hop", "-", "1.1GB/s", *"--------"],
        ["64KiB via proxy", "900", *"---------"],
    ]


def test_a_narrow_terminal_gets_blocks() -> None:
    lines = list(bench_lines(FIGURES, 60, unpainted))

    assert max(map(len, lines)) <= 60
    assert sum(line.startswith("load") for line in lines) == 4
