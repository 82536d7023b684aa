"""Root of the command: imports the noun in use, runs it, and turns errors into exit codes."""

import logging
import os
import sys
import traceback
from collections.abc import Iterator

import attrs
import click

from geolog.cli.exits import CheckFailedError, Exit, exit_of
from geolog.cli.invocation import (
    COMPLETE_VARIABLE,
    Invocation,
    Noun,
    global_options,
    tell,
)
from geolog.cli.late_import import imported
from geolog.cli.terminal.standard_output import StandardOutput, named_stdout
from topology.errors import GeologError


@attrs.frozen
class NounPlace:
    """Module of a noun's commands, and the noun's line in `geolog --help`."""

    module: str
    line: str


NOUNS = {
    "demo": NounPlace("geolog.cli.nouns.demo", "Run a multi-region cluster on this machine."),
    "serve": NounPlace(
        "geolog.cli.nouns.serve", "Run one server: storage, proxy, relay, zookeeper or wan."
    ),
    "stream": NounPlace(
        "geolog.cli.nouns.stream", "Create, describe, change, seal and delete streams."
    ),
    "append": NounPlace("geolog.cli.nouns.append", "Append records from files or stdin."),
    "spool": NounPlace(
        "geolog.cli.nouns.spool", "Show, export and discard spools of writers on this machine."
    ),
    "read": NounPlace("geolog.cli.nouns.read", "Read records to stdout, or follow a stream."),
    "cursor": NounPlace(
        "geolog.cli.nouns.cursor", "List, describe, move and delete cursors of a stream."
    ),
    "verify": NounPlace(
        "geolog.cli.nouns.verify", "Read and compare every copy of a stream's entries."
    ),
    "segment": NounPlace("geolog.cli.nouns.segment", "List the segments of a stream."),
    "ledger": NounPlace("geolog.cli.nouns.ledger", "Inspect, read, close and repair ledgers."),
    "placement": NounPlace(
        "geolog.cli.nouns.placement", "Show, repair and simulate the placement of entries."
    ),
    "region": NounPlace(
        "geolog.cli.nouns.region", "List regions; forbid or allow placement in them."
    ),
    "node": NounPlace(
        "geolog.cli.nouns.node", "List, describe, check and replace storage nodes."
    ),
    "cluster": NounPlace(
        "geolog.cli.nouns.cluster", "Show the cluster's health and what it can lose."
    ),
    "relay": NounPlace(
        "geolog.cli.nouns.relay", "Show how regional streams reach other regions."
    ),
    "pipeline": NounPlace(
        "geolog.cli.nouns.pipeline", "Run jobs over whole streams with Spark."
    ),
    "sink": NounPlace(
        "geolog.cli.nouns.sink", "List and delete names under which Spark has written."
    ),
    "wan": NounPlace("geolog.cli.nouns.wan", "Show and change the emulated WAN of a demo."),
    "bench": NounPlace(
        "geolog.cli.nouns.bench", "Measure appends and reads against what the disk can do."
    ),
    "drill": NounPlace(
        "geolog.cli.nouns.drill", "Break a cluster on purpose and check that nothing is lost."
    ),
    "sim": NounPlace("geolog.cli.nouns.sim", "Simulate a cluster under faults, from a seed."),
    "config": NounPlace("geolog.cli.nouns.config", "Show and check settings."),
    "generate": NounPlace(
        "geolog.cli.nouns.generate",
        "Print shell completions; write man pages and systemd units.",
    ),
}


class Root(Noun):
    """`geolog` itself: imports a noun only when the command line names it."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's shape.
        """List the nouns in the order a new user meets them."""
        return list(NOUNS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's shape.
        cmd_name: str,
    ) -> click.Command | None:
        """Import the module of a noun and return its command."""
        if cmd_name not in NOUNS:
            return None
        found = imported(NOUNS[cmd_name].module).command
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the noun; `help NOUN VERB` is `NOUN VERB --help`."""
        if args[0] == "help":
            if not args[1:]:
                click.echo(ctx.get_help())
                ctx.exit()
            args = [*args[1:], "--help"]
        return super().resolve_command(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the global options, then --version and --help."""
        return [*global_options(), *super().get_params(ctx)]

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's shape.
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the nouns' lines without importing any noun."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.line) for name, place in NOUNS.items()])


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 96},
    epilog=(
        'Start with "geolog demo". Use "geolog COMMAND --help" for more about a command.'
        " Recipes: docs/RECIPES.md"
    ),
)
@click.version_option(package_name="geolog")
def root() -> None:
    """Geo-replicated log: losing a whole region loses no acknowledged record."""


def main() -> None:
    """Run the command line of this process and exit with its code."""
    if not __debug__:
        sys.exit(
            "geolog: refusing to run under python -O: the assertions it removes guard your data"
        )
    _open_closed_streams()
    sys.stdout = named_stdout(sys.stdout)
    show_warnings()
    if COMPLETE_VARIABLE in os.environ:
        sys.exit(_complete(os.environ[COMPLETE_VARIABLE]))
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
    except OSError as error:
        code = code or _explain(error)
        _forget_stdout()
    sys.exit(code)


def _complete(instruction: str) -> int:
    """Answer a shell's request for completions: see `geolog generate completion`."""
    from click.shell_completion import shell_complete

    return shell_complete(root, {"obj": Invocation()}, "geolog", COMPLETE_VARIABLE, instruction)


def run(arguments: list[str]) -> int:
    """Run one command line; turn every error into one message on stderr and an exit code."""
    invocation = Invocation()
    try:
        # Not root.main: it handles broken pipes in its own way.
        with root.make_context("geolog", arguments, obj=invocation) as context:
            root.invoke(context)
        return Exit.DONE
    except click.exceptions.Exit as done:
        return done.exit_code
    except BaseException as error:  # noqa: BLE001 - The outermost border: no traceback passes it.
        if invocation.is_debug and not isinstance(
            error, (click.ClickException, CheckFailedError)
        ):
            traceback.print_exc()
        return _explain(error)


def _explain(error: BaseException) -> int:
    """Print one message that says what went wrong; return its exit code."""
    leaves = sorted(_leaves(error), key=_weight)
    match leaves[0]:
        case KeyboardInterrupt() | click.Abort():
            return Exit.INTERRUPTED
        case BrokenPipeError():
            # The reader of our output has seen enough (`geolog read … | head`).
            _forget_stdout()
            return Exit.DONE
        case click.ClickException() as usage:
            usage.show()
            return usage.exit_code
        case GeologError() as ours:
            tell(f"geolog: {ours}")
            return exit_of(ours)
        case SystemExit() as exit_:
            return exit_.code if isinstance(exit_.code, int) else Exit.ERROR
        case OSError(strerror=str(reason), filename=StandardOutput.SHOWN):
            _forget_stdout()
            tell(f"geolog: cannot write to stdout: {reason}; the last output is lost")
            return Exit.ERROR
        case OSError(strerror=str(reason), filename=name):
            tell(f"geolog: {'operating system error' if name is None else name}: {reason}")
            return Exit.ERROR
        case other:
            tell(
                f"geolog: unexpected {type(other).__name__}: {other} "
                "(this is a bug in geolog; --debug prints the traceback)"
            )
            return Exit.ERROR


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _leaves(part)
    else:
        yield error


def _weight(error: BaseException) -> int:
    """Rank concurrent errors by likelihood of being the cause: interrupts first, bugs last."""
    order = (KeyboardInterrupt, click.ClickException, BrokenPipeError, GeologError)
    return next((i for i, kind in enumerate(order) if isinstance(error, kind)), len(order))


def show_warnings() -> None:
    """Print log records of level WARNING and above on stderr from now on.

    Except kazoo's: geolog reports the same facts in its own words.
    """
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.addFilter(lambda record: record.name.partition(".")[0] != "kazoo")
    logging.getLogger().addHandler(handler)


def _open_closed_streams() -> None:
    """Open closed standard streams on /dev/null, before a socket gets their descriptor."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _forget_stdout() -> None:
    """Point stdout at /dev/null: the exiting interpreter must not write to the pipe either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
