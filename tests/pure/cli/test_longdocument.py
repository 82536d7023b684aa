"""A result printed item by item is the same document as one printed whole."""

import json

import pytest

from geolog.cli.terminal.long_document import LongDocument
from geolog.settings.command_config import Output

REST = {"totals": {"count": 2}, "name": "s"}


def printed(
    output: Output, items: list[dict[str, int]], capsys: pytest.CaptureFixture[str]
) -> str:
    with LongDocument("items", output) as document:
        for item in items:
            document.item(item)
        document.end(dict(REST))
    return capsys.readouterr().out


@pytest.mark.parametrize("items", [[], [{"a": 1}], [{"a": 1}, {"a": 2}]])
def test_json_is_one_document(
    items: list[dict[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert json.loads(printed("json", items, capsys)) == {"items": items, **REST}


def test_jsonl_has_a_line_per_item_and_one_for_the_rest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = printed("jsonl", [{"a": 1}, {"a": 2}], capsys).splitlines()
    assert [json.loads(line) for line in lines] == [{"a": 1}, {"a": 2}, REST]


def test_a_table_prints_its_own_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed("table", [{"a": 1}], capsys) == ""


def test_a_document_that_is_cut_off_ends_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    def cut_off() -> None:
        with LongDocument("items", "json") as document:
            document.item({"a": 1})
            raise KeyError

    with pytest.raises(KeyError):
        cut_off()
    assert capsys.readouterr().out == '{"items": [{"a": 1}\n'


def test_a_document_that_fails_before_its_first_item_prints_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(KeyError), LongDocument("items", "json"):
        raise KeyError
    assert capsys.readouterr().out == ""
