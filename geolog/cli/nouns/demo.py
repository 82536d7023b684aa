"""`geolog demo`: runs a multi-region cluster on this machine, and controls a running one."""

import sys
from functools import partial
from pathlib import Path

import attrs
import click
import trio

from geolog.cli.exits import CheckFailedError
from geolog.cli.invocation import Noun, Verb, examples, this_invocation
from geolog.cli.settings.roles import DEMO, DemoConfig
from geolog.cli.settings.wan_file import read_wan
from geolog.cli.signals import ending_at_signals
from geolog.cli.terminal.output import show
from geolog.settings.sources import configured
from sim.processes.cluster.control import ask_control
from sim.processes.cluster.place import started_last
from sim.processes.cluster.plan import REGIONS_DEFAULT, ClusterShape
from sim.processes.wan.conditions import Wan
from sim.processes.wan.profile import default_wan

SERVER_COLUMNS = ("name", "state", "pid", "address", "location")


class Demo(Noun):
    """Group that runs a demo if no verb follows."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as a group does, but run as a command without a verb."""
        self.invoke_without_command = True
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the demo's options, then the global ones."""
        return self._as_verb.get_params(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write its options as a verb does, then its verbs."""
        self._as_verb.format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    @property
    def _as_verb(self) -> Verb:
        return Verb("demo", params=self.params)


@click.group(
    cls=Demo,
    name="demo",
    invoke_without_command=True,
    epilog=examples(
        "geolog demo",
        "geolog demo --stay --no-workload --data-dir demo",
        "geolog demo --regions a,b,c,d --nodes-per-region 2 --wan none",
    ),
)
@click.option(
    "--regions",
    default=",".join(REGIONS_DEFAULT),
    show_default=True,
    metavar="A,B,C",
    help="Names of the regions.",
)
@click.option(
    "--nodes-per-region",
    default=3,
    show_default=True,
    metavar="N",
    help="Storage nodes in each region.",
)
@click.option(
    "--proxies-per-region",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    metavar="N",
    help="Write proxies in each region.",
)
@click.option(
    "--relays-per-region",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    metavar="N",
    help="Relays in each region, for streams that other regions mirror.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Directory for data and logs. [default: one in $TMPDIR, removed at the end]",
)
@click.option(
    "--keep", is_flag=True, help="Keep the data; without --data-dir, in a new directory."
)
@click.option(
    "--base-port",
    type=click.IntRange(1, 65535),
    metavar="P",
    help="Use consecutive ports, starting at P. [default: those of the last demo if free]",
)
@click.option(
    "--stay/--no-stay",
    default=None,
    help="Keep running until Ctrl-C. [default: --stay if stdin is a terminal]",
)
@click.option("--no-workload", is_flag=True, help="Start only the servers, and keep running.")
@click.option(
    "--ready-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write addresses, process ids and logs to this file as JSON once all servers answer.",
)
@click.option(
    "--wan",
    metavar="FILE|none",
    help="File that describes the links between regions (docs/WAN.md), or none for no emulated"
    " WAN. [default: intercontinental round trips]",
)
@click.pass_context
def command(
    ctx: click.Context,
    *,
    regions: str,
    nodes_per_region: int,
    proxies_per_region: int,
    relays_per_region: int,
    data_dir: Path | None,
    keep: bool,
    base_port: int | None,
    stay: bool | None,
    no_workload: bool,
    ready_file: Path | None,
    wan: str | None,
) -> None:
    """Run a multi-region cluster on this machine: write, lose a region, read everything back.

    The commands below control a running demo from another terminal. TARGET is a region, a
    server, zookeeper, storage, relay, proxy, wan or all.
    """
    this_invocation().takes_demo = False
    if ctx.invoked_subcommand is not None:
        ctx.obj.flags |= {"demo.data_dir": str(data_dir)} if data_dir else {}
        return
    from sim.processes.demo.report import StoryReport
    from sim.processes.demo.run import DemoOptions, run_demo

    this_invocation().starts_demo = True
    output = this_invocation().config.output
    if stay is None:
        stay = no_workload or sys.stdin.isatty()
    names = tuple(name.strip() for name in regions.split(",") if name.strip())
    shape = ClusterShape(
        regions=names,
        nodes_per_region=nodes_per_region,
        proxies_per_region=proxies_per_region,
        relays_per_region=relays_per_region,
    )
    options = DemoOptions(
        shape=attrs.evolve(shape, wan=_wan(wan, shape.regions)),
        data_dir=data_dir,
        keeps_data=keep,
        base_port=base_port,
        stays=stay,
        runs_workload=not no_workload,
        ready_file=ready_file,
        is_story_on_stderr=output != "table",
    )
    reports: list[StoryReport] = []

    def on_report(report: StoryReport) -> None:
        reports.append(report)
        if output != "table":
            show(report, output)

    trio.run(ending_at_signals, partial(run_demo, on_report=on_report), options)
    if not reports and options.runs_workload:
        raise click.Abort
    if not all(report.is_good for report in reports):
        raise CheckFailedError("the demo failed: see the problems above")


def _wan(wan: str | None, regions: tuple[str, ...]) -> Wan | None:
    """Return the links that `--wan` describes."""
    if wan == "none":
        return None
    return default_wan(regions) if wan is None else read_wan(Path(wan), regions)


def _verb(name: str, sentence: str) -> None:
    """Add one verb that controls a running demo."""
    target = "" if name == "ls" else " eu-west"
    shown = examples(f"geolog demo {name}{target}", f"geolog demo {name} zookeeper")

    @command.command(name=name, help=sentence, short_help=sentence, epilog=shown)
    @click.argument("target", **({"default": "all"} if name == "ls" else {"required": True}))
    @click.option(
        "--data-dir",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Directory of the demo. [default: from the settings, else the demo started last]",
    )
    def act(target: str, data_dir: Path | None) -> None:
        invocation = this_invocation()
        config = configured(DemoConfig, invocation.decide(DEMO))
        directory = data_dir or config.data_dir or started_last()
        servers = trio.run(ask_control, directory, name, target)
        show(servers, invocation.config.output, SERVER_COLUMNS, empty="no server was affected")


_verb("ls", "List the servers of the demo.")
_verb("kill", "Kill TARGET with SIGKILL, like a power cut.")
_verb("stop", "Stop TARGET in an orderly way.")
_verb("pause", "Freeze TARGET with SIGSTOP: it stays alive but answers nothing.")
_verb("resume", "Resume a paused TARGET.")
_verb("restart", "Start TARGET again, on the same ports and data.")
