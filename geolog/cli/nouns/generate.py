"""`geolog generate`: prints completion scripts for shells."""

import sys

import click
from click.shell_completion import get_completion_class

from geolog.cli.invocation import COMPLETE_VARIABLE, Noun, examples


@click.group(cls=Noun, name="generate")
def command() -> None:
    """Print shell completion scripts."""


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
