"""The command's root: it knows the nouns, imports the one in use, and ends in an exit code."""

import importlib
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
from geolog.cli.terminal.standard_output import StandardOutput, named_stdout
from topology.errors import GeologError


@attrs.frozen
class NounPlace:
    """Where a noun's commands are, and its line in `geolog --help`."""

    module: str
    line: str


NOUNS = {
    "demo": NounPlace("geolog.cli.nouns.demo", "A whole multi-region cluster on this machine."),
    "serve": NounPlace("geolog.cli.nouns.serve", "Run one server: storage, zookeeper or wan."),
    "stream": NounPlace(
        "geolog.cli.nouns.stream", "Make, describe, change, seal and cut streams."
    ),
    "append": NounPlace(
        "geolog.cli.nouns.append", "Append records from stdin, safe to repeat."
    ),
    "read": NounPlace("geolog.cli.nouns.read", "Read records to stdout, or follow them."),
    "verify": NounPlace(
        "geolog.cli.nouns.verify", "Read and compare every copy of every entry."
    ),
    "segment": NounPlace("geolog.cli.nouns.segment", "List the segments a stream consists of."),
    "ledger": NounPlace("geolog.cli.nouns.ledger", "Look into, read, end and repair ledgers."),
    "placement": NounPlace("geolog.cli.nouns.placement", "What placement would do, and why."),
    "region": NounPlace(
        "geolog.cli.nouns.region", "The regions, and where new entries may go."
    ),
    "node": NounPlace(
        "geolog.cli.nouns.node", "The storage nodes: list, describe, replace them."
    ),
    "cluster": NounPlace(
        "geolog.cli.nouns.cluster", "Whether the cluster is well, and what it can lose."
    ),
    "wan": NounPlace(
        "geolog.cli.nouns.wan", "The emulated WAN of a demo: show, change, cut it."
    ),
    "bench": NounPlace("geolog.cli.nouns.bench", "Measure appends and reads beside the floor."),
    "drill": NounPlace("geolog.cli.nouns.drill", "Break a cluster on purpose and judge it."),
    "sim": NounPlace("geolog.cli.nouns.sim", "Simulate a cluster under faults, from one seed."),
    "config": NounPlace("geolog.cli.nouns.config", "Show and check the settings."),
    "generate": NounPlace("geolog.cli.nouns.generate", "Completion for your shell."),
}


class Root(Noun):
    """`geolog` itself: each noun is imported when it is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's shape.
        """The nouns, in the order in which one meets them."""
        return list(NOUNS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's shape.
        cmd_name: str,
    ) -> click.Command | None:
        """Import the noun's file and take its command."""
        if cmd_name not in NOUNS:
            return None
        found = importlib.import_module(NOUNS[cmd_name].module).command
        assert isinstance(found, click.Command)
        return found

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The global options, then --version and --help."""
        return [*global_options(), *super().get_params(ctx)]

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's shape.
        formatter: click.HelpFormatter,
    ) -> None:
        """The nouns, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.line) for name, place in NOUNS.items()])


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 96},
    epilog="Start with: geolog demo. Recipes: docs/RECIPES.md",
)
@click.version_option(package_name="geolog")
def root() -> None:
    """A log that spans regions: losing a whole region loses no acknowledged record."""


def main() -> None:
    """Run the command of this process and end the process with its exit code."""
    if not __debug__:
        sys.exit("geolog: refuses to run under python -O: its assertions guard your data")
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
    """Answer the shell that asks what may stand next: see `geolog generate completion`."""
    from click.shell_completion import shell_complete

    return shell_complete(root, {"obj": Invocation()}, "geolog", COMPLETE_VARIABLE, instruction)


def run(arguments: list[str]) -> int:
    """Carry one command out; every error becomes one message on stderr and an exit code."""
    invocation = Invocation()
    try:
        # Not by root.main, which has ideas of its own about broken pipes.
        with root.make_context("geolog", arguments, obj=invocation) as context:
            root.invoke(context)
        return Exit.DONE
    except click.exceptions.Exit as done:
        return done.exit_code
    except BaseException as error:  # noqa: BLE001 - The border: nothing passes it as a traceback.
        if invocation.is_debug and not isinstance(
            error, (click.ClickException, CheckFailedError)
        ):
            traceback.print_exc()
        return _explain(error)


def _explain(error: BaseException) -> int:
    """Say what went wrong, in one message, and give its exit code."""
    leaves = sorted(_leaves(error), key=_weight)
    match leaves[0]:
        case KeyboardInterrupt() | click.Abort():
            return Exit.INTERRUPTED
        case BrokenPipeError():
            # Whoever read our output has seen enough (`geolog read … | head`).
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
            tell(f"geolog: stdout takes no more: {reason}. What was printed last is lost")
            return Exit.ERROR
        case OSError(strerror=str(reason), filename=name):
            where = "" if name is None else f" {name}"
            tell(f"geolog: the operating system refused{where}: {reason}")
            return Exit.ERROR
        case other:
            tell(
                f"geolog: unexpected {type(other).__name__}: {other} "
                "(a fault of geolog itself; --debug shows where)"
            )
            return Exit.ERROR


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _leaves(part)
    else:
        yield error


def _weight(error: BaseException) -> int:
    """Of several errors at once, which is the cause: an interrupt first, a surprise last."""
    order = (KeyboardInterrupt, click.ClickException, BrokenPipeError, GeologError)
    return next((i for i, kind in enumerate(order) if isinstance(error, kind)), len(order))


def show_warnings() -> None:
    """From here on print on stderr what is logged as a warning, or worse.

    What kazoo warns of is told in our own words.
    """
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.addFilter(lambda record: record.name.partition(".")[0] != "kazoo")
    logging.getLogger().addHandler(handler)


def _open_closed_streams() -> None:
    """Let closed standard streams lead nowhere: else a socket might be given their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _forget_stdout() -> None:
    """Let nothing be written to a closed pipe, also not by the interpreter as it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
