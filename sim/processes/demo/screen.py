"""The output of a demo: a banner, a line for each event, and the counts at the end.

It fits a terminal of 80 columns by 40 lines: neither the story nor the counts scroll the part
before them off the screen.
"""

import os
import shutil
import sys
from itertools import combinations
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sim.processes.cluster.plan import ClusterPlan, ServerPlan
from sim.processes.demo.report import Latencies, QueryReport, StoryReport

WIDTH_MAX = 80
_CALL_WIDTH_MAX = 42


class Screen:
    """Prints the demo's output."""

    def __init__(self, *, is_on_stderr: bool = False) -> None:
        self._console = Console(
            file=sys.stderr if is_on_stderr else sys.stdout, highlight=False, emoji=False
        )
        if not self._console.is_terminal or self._console.width > WIDTH_MAX:
            self._console.width = WIDTH_MAX

    def line(self, text: str) -> None:
        """Print a line verbatim."""
        self._console.print(escape(text), soft_wrap=True)

    def starting(self, plan: ClusterPlan) -> None:
        """Print at the very start, so that nobody waits in front of an empty screen."""
        nodes, zookeepers = len(plan.of_kind("storage")), len(plan.of_kind("zookeeper"))
        proxies = f"{count} proxies, " if (count := len(plan.of_kind("proxy"))) else ""
        relays = f"{count} relays, " if (count := len(plan.of_kind("relay"))) else ""
        self._console.rule("[bold]geolog demo[/]", align="left")
        self._console.print(
            f"starting {nodes} storage nodes, {proxies}{relays}{zookeepers} ZooKeepers in"
            f" {len(plan.regions)} regions …"
        )
        if plan.wan is not None and len(plan.regions) > 1:
            wan = plan.wan.wan
            trips = (
                f"{here}↔{there} {1e3 * wan.round_trip_s(here, there):.4g} ms"
                for here, there in combinations(wan.regions, 2)
            )
            self._console.print(f"[dim]emulated round trips: {', '.join(trips)}[/]")

    def banner(self, plan: ClusterPlan, took_s: float) -> None:
        """Print what runs where, and commands to try."""
        table = Table(box=None, pad_edge=False, header_style="dim")
        kinds = {"storage": "storage nodes", "zookeeper": "ZooKeeper"}
        if plan.of_kind("proxy"):
            kinds["proxy"] = "write proxies"
        if plan.of_kind("relay"):
            kinds["relay"] = "relays"
        for heading in ("region", *kinds.values()):
            table.add_column(heading, no_wrap=True)
        for region in plan.regions:
            servers = [server for server in plan.servers if server.region == region]
            ports = (_ports(servers, kind) for kind in kinds)
            table.add_row(f"[bold cyan]{region}[/]", *ports)
        self._console.print(table)
        self._console.print(
            f"[dim]ready after {took_s:.1f} s, on 127.0.0.1. In another terminal, try:[/]",
            soft_wrap=True,
        )
        self._calls(_to_try(plan))

    def happened(self, mark: str, what: str, details: str) -> None:
        """Print one event of the story: its mark (`good`, `bad`, `plain`), name and figures."""
        sign = {"good": "[green]●[/]", "bad": "[red]✗[/]", "plain": "[cyan]○[/]"}[mark]
        self._console.print(f"{sign} [bold]{what:<13}[/] {escape(details)}", soft_wrap=True)

    def report(self, report: StoryReport) -> None:
        """Print the counts, which decide the outcome, then the latencies."""
        self._console.rule(align="left")
        counts = Table(box=None, pad_edge=False, show_header=False)
        counts.add_column(justify="right", no_wrap=True)
        counts.add_column(no_wrap=True)
        for number, text in report.counts():
            counts.add_row(f"[bold]{number:,}[/]", text)
        self._console.print(counts)
        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading in (
            "appends",
            "records",
            "floor",
            "p50",
            "p99",
            "max",
            "pause",
            "lost",
        ):
            table.add_column(heading, justify="left" if heading[0] == "a" else "right")
        for latencies in report.latencies:
            table.add_row(*_latency_cells(latencies))
        self._console.print(table)
        if any(latencies.floor_ms is not None for latencies in report.latencies):
            self._console.print(
                "[dim]floor: round trip to the nearest other live region; "
                "pause: between two answers[/]"
            )
        if report.queried is not None:
            self._console.print(_airlines(report.queried))
        if report.is_good:
            self._console.print(
                f"[bold green]Nothing was lost.[/] {report.region_lost} died while "
                f"{report.writers_count} writers wrote the flights\n"
                f"to {report.segments_count} segments; {report.took_s:.0f} s in total. "
                f"sha256 {report.sha256[:16]}"
            )
        for problem in report.problems:
            self._console.print(f"[bold red]WRONG[/] {escape(problem)}")

    def _calls(self, calls: list[tuple[str, str]]) -> None:
        width = max(len(call) for call, _ in calls if len(call) <= _CALL_WIDTH_MAX)
        for call, remark in calls:
            if remark and len(call) > _CALL_WIDTH_MAX:
                self._console.print(f"  [dim]# {remark}:[/]", soft_wrap=True)
                remark = ""  # Behind the call it would be cut in two by the edge.
            comment = f"  [dim]# {remark}[/]" if remark else ""
            self._console.print(f"  {call:<{width}}{comment}", soft_wrap=True)

    def staying(self, plan: ClusterPlan, *, stream: str | None) -> None:
        """Print the last lines of a demo that stays up. stream: what its story wrote, if any.

        The next steps stand here, too: the story has scrolled the first ones away.
        """
        if stream is not None:
            self._console.print("[dim]In another terminal, try:[/]")
            self._calls(_after_story(plan, stream))
        self._console.print(
            f"[bold]The cluster runs until Ctrl-C.[/] Logs: {_short(plan.directory)}/logs",
            soft_wrap=True,
        )


def _to_try(plan: ClusterPlan) -> list[tuple[str, str]]:
    """Commands for another terminal, each with what it does."""
    command, region = _command(), plan.regions[-1]
    calls = [
        (f"{command} cluster health", "check the cluster"),
        (f"{command} stream create shop/orders", "create a stream to append to"),
        (f"{command} demo kill {region}", "lose a region; undo: restart"),
    ]
    if proxies := plan.of_kind("proxy"):
        path = "/v1/streams/shop/orders/append?redirect=forward"
        curl = f"""curl -d '{{"value":"hi"}}' 'http://{proxies[0].http}{path}'"""
        python = _short(Path(sys.executable))
        talk = f"{python} -m sim.processes.demo.talk 'ws://{proxies[0].address}{path}'"
        calls[2:2] = [
            (curl, "append over HTTP"),
            (f"""echo '{{"value":"hi"}}' | {talk}""", "and over a WebSocket"),
        ]
    if plan.wan is not None:
        calls.append((f"{command} wan cut {region} all", "cut its links; undo: heal"))
    return calls


def _after_story(plan: ClusterPlan, stream: str) -> list[tuple[str, str]]:
    """Commands for a demo whose story is over: a record of one's own, and a region less."""
    command, near, far = _command(), plan.regions[1], plan.regions[-1]
    return [
        (f"echo hello | {command} append {stream}", "append a record, and read it afar"),
        (f"{command} read {stream} --region {far} --from last:1", ""),
        (f"{command} demo kill {near}", "lose a region; undo: restart"),
        (f"{command} cluster health", "say what the next loss would cost"),
    ]


def _ports(servers: list[ServerPlan], kind: str) -> str:
    ports = [server.address.partition(":")[2] for server in servers if server.kind == kind]
    return "  ".join(f":{port}" for port in ports) or "-"


def _latency_cells(latencies: Latencies) -> list[str]:
    figures = (latencies.p50_ms, latencies.p99_ms, latencies.max_ms, latencies.pause_ms)
    return [
        latencies.when,
        f"{latencies.count:,}",
        "-" if latencies.floor_ms is None else _ms(latencies.floor_ms),
        *(_ms(figure) for figure in figures),
        str(latencies.lost_count),
    ]


def _airlines(queried: QueryReport) -> Table:
    """The answer of the query."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("airline")
    for heading in ("flights", "mean delay"):
        table.add_column(heading, justify="right")
    for row in queried.airlines:
        table.add_row(row.airline, f"{row.flights_count:,}", f"{row.delay_min_mean:.1f} min")
    return table


def _ms(figure: float) -> str:
    return f"{figure:,.1f} ms" if figure < 100 else f"{figure:,.0f} ms"


def _command() -> str:
    """How to call geolog here: by name, or by path if it is not on PATH."""
    if shutil.which("geolog"):
        return "geolog"
    return _short(Path(sys.executable).parent / "geolog")


def _short(path: Path) -> str:
    """A path as a user would type it here."""
    relative = os.path.relpath(path)
    return (
        relative
        if len(relative) < len(str(path)) and not relative.startswith("..")
        else str(path)
    )
