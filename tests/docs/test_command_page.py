"""docs/COMMAND.md has a heading for every noun and verb of the real command, and no other."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from geolog.cli.invocation import Invocation
from geolog.cli.main import root

PAGE = Path(__file__).parents[2] / "docs" / "COMMAND.md"
HEADING = re.compile(r"^##+ (?P<words>.+)$", re.MULTILINE)


def commands(context: click.Context) -> Iterator[click.Context]:
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            child = context.command.get_command(context, name)
            assert child is not None
            yield from commands(click.Context(child, parent=context, info_name=name))


@pytest.fixture(scope="module")
def real() -> list[click.Context]:
    _, *found = commands(click.Context(root, info_name="geolog", obj=Invocation()))
    return found


@pytest.fixture(scope="module")
def sections() -> dict[str, str]:
    """The text below each heading."""
    _, *parts = re.split(r"^##+ ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: text for name, _, text in (part.partition("\n") for part in parts)}


def test_every_noun_and_verb_has_its_heading(
    real: list[click.Context], sections: dict[str, str]
) -> None:
    described = [name for name in sections if name.startswith("geolog ")]

    assert described == [context.command_path for context in real]


def test_every_verb_has_an_example(real: list[click.Context], sections: dict[str, str]) -> None:
    verbs = [one.command_path for one in real if not isinstance(one.command, click.Group)]

    assert [one for one in verbs if f"\n$ {one}" not in sections[one]] == []


def test_the_contents_lead_to_all_of_them(
    real: list[click.Context], sections: dict[str, str]
) -> None:
    links = re.findall(r"\(#(geolog-[a-z-]+)\)", sections["Contents"])

    # `relay divergence` is a group of verbs: the contents have its verbs.
    wanted = [one.command_path.replace(" ", "-") for one in real]
    assert sorted([*links, "geolog-relay-divergence"]) == sorted(wanted)
