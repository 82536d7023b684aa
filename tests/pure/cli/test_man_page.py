"""Man pages say what the help says, in lines that roff takes for text."""

import re

import click
import pytest

from geolog.cli.invocation import Invocation
from geolog.cli.main import root
from geolog.cli.terminal.man_page import man_pages

MACROS = {".TH", ".SH", ".PP", ".TP", ".B", ".BR", ".nf", ".fi"}


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    context = click.Context(root, info_name="geolog", obj=Invocation())
    return dict(man_pages(context, version="1.2"))


def test_every_command_has_a_page_and_the_pages_lead_up(pages: dict[str, str]) -> None:
    assert {"geolog.1", "geolog-stream.1", "geolog-stream-create.1"} <= pages.keys()
    above = {
        name: found[1].replace(r"\-", "-") + ".1"
        for name, text in pages.items()
        if (found := re.search(r"^\.BR (\S+) \(1\)$", text, re.MULTILINE))
    }
    assert pages.keys() - above.keys() == {"geolog.1"}
    assert set(above.values()) <= pages.keys()


def test_a_page_has_the_options_and_the_examples_of_the_help(pages: dict[str, str]) -> None:
    page = pages["geolog-append.1"]

    assert '.TH "GEOLOG-APPEND" "1" "" "geolog 1.2" "geolog"\n' in page
    assert r"\fB\-\-keyless\-ok\fR" in page
    assert r"\fB\-o, \-\-output [table|json|jsonl]\fR" in page
    assert ".nf\ngeolog append shop/orders orders.txt more\\-orders.txt\n" in page


def test_only_macros_begin_with_a_control_character(pages: dict[str, str]) -> None:
    control = {
        line.split()[0]
        for text in pages.values()
        for line in text.splitlines()
        if line[:1] in (".", "'")
    }

    assert control <= MACROS
