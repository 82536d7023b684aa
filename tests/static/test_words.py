"""The glossary stays one sorted list with one meaning for each word."""

import re

from tests.static.checkout import ROOT

ROW = re.compile(r"^\| \*\*(?P<word>[^*]+)\*\* \| (?P<meaning>.+) \|$", re.MULTILINE)


def words() -> list[str]:
    text = (ROOT / "docs" / "GLOSSARY.md").read_text(encoding="utf-8")
    return [row["word"] for row in ROW.finditer(text)]


def test_every_row_of_the_glossary_is_understood() -> None:
    text = (ROOT / "docs" / "GLOSSARY.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ")]

    assert len(rows) - 1 == len(words()) > 20, "one heading, then `| **word** | meaning |`"


def test_the_glossary_is_sorted() -> None:
    assert words() == sorted(words(), key=str.casefold)


def test_every_word_has_one_meaning() -> None:
    assert len({word.casefold() for word in words()}) == len(words())
