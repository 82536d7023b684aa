"""`geolog placement`: what placement would do."""

import json
import random
import sys

import click

from geolog.cli.invocation import Noun, this_invocation
from geolog.cli.output import Plain, plain, print_json
from topology.errors import InvalidArgumentError, NotFoundError
from topology.evaluation import evaluate


@click.group(cls=Noun, name="placement")
def command() -> None:
    """Where entries lie, and where they would lie."""


@command.command("evaluate")
@click.argument("file", metavar="[FILE]", default="-")
def evaluate_(file: str) -> None:
    """Answer what-if scenarios about placement: a JSON array in, a JSON array out.

    Reads stdin when FILE is absent or -. Needs no cluster. docs/PLACEMENT.md has the form.
    """
    scenarios = _scenarios(file)
    rng = random.Random()
    answers = [plain(evaluate(one, index, rng)) for index, one in enumerate(scenarios)]
    if this_invocation().config.output == "jsonl":
        for answer in answers:
            print_json(answer)
    else:
        print_json(answers)


def _scenarios(file: str) -> list[Plain]:
    name = "stdin" if file == "-" else file
    try:
        document: Plain = json.loads(_text_of(file), parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise InvalidArgumentError(
            f"{name} is not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except RecursionError:
        raise InvalidArgumentError(f"{name} is nested too deeply to be scenarios") from None
    if not isinstance(document, list):
        raise InvalidArgumentError(
            f"{name} holds no array of scenarios: write [{{…}}, …] even around one"
        )
    return document


def _text_of(file: str) -> str:
    try:
        if file == "-":
            return sys.stdin.buffer.read().decode()
        with open(file, "rb") as opened:
            return opened.read().decode()
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {file!r}") from None
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(
            f"{file} is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}"
        ) from None


def _refuse_constant(text: str) -> Plain:
    raise InvalidArgumentError(f"{text} is no value of JSON")
