"""`geolog generate`: prints completion scripts for shells, and writes man pages."""

import sys
from importlib.metadata import version
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from geolog.cli.invocation import COMPLETE_VARIABLE, Noun, examples, tell
from geolog.cli.terminal.man_page import man_pages
from geolog.settings.quantities import counted


@click.group(cls=Noun, name="generate")
def command() -> None:
    """Print shell completion scripts; write man pages."""


@command.command(
    epilog=examples(
        "geolog generate completion bash >> ~/.bashrc",
        "geolog generate completion zsh >> ~/.zshrc",
        "geolog generate completion fish > ~/.config/fish/completions/geolog.fish",
    )
)
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL: bash, zsh or fish.

    The script completes nouns, verbs, options and their choices.
    """
    shell_class = get_completion_class(shell)
    assert shell_class is not None
    script = shell_class(ctx.find_root().command, {}, "geolog", COMPLETE_VARIABLE).source()
    sys.stdout.write(script.lstrip("\n"))


@command.command(
    epilog=examples(
        "geolog generate man ~/.local/share/man/man1",
        "man geolog-stream-create   # If ~/.local/bin is on the PATH.",
    )
)
@click.argument(
    "directory", metavar="DIRECTORY", type=click.Path(path_type=Path, file_okay=False)
)
@click.pass_context
def man(ctx: click.Context, directory: Path) -> None:
    """Write a man page of each command to DIRECTORY, from the help of the command."""
    directory.mkdir(parents=True, exist_ok=True)
    pages = list(man_pages(ctx.find_root(), version=version("geolog")))
    for name, text in pages:
        (directory / name).write_text(text, encoding="utf-8")
    tell(f"{counted(len(pages), 'page')} written to {directory}")
