"""Phrases that read like a translation, each with what to write instead.

The list holds only what is never right; `docs/STYLE.md` describes the habit itself.
"""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.static.checkout import ROOT, files_of_the_checkout, python_files, text_of

PROSE = {".md", ".toml", ".txt"}

_NOUNS = "error|fault|reason|proof|answer|node|region|ledger|stream|record|entry|member"
_VERBS = (
    "is|was|were|are|has|had|stands|can|cannot|does|comes|came|goes|a|the|it|they|no|nobody"
)
REFUSED = {
    r"\bwhoever\b": "name the actor, e.g. 'the caller', 'a reader that …'",
    r"\bbeside\b": "'next to', 'with', 'besides'",
    r"\bfrom \d+ on\b": "'>= 0', 'must not be negative'",
    r"\bof now\b": "'current', 'now'",
    r"\banew\b": "'again', 'from scratch'",
    r"\b(?:thereof|thereby|wherein|hereby)\b": "plain words",
    rf"(?<!there )\bis no (?:{_NOUNS})\b": "'is not a …'",
    r"(?:^|[.:;!] )(?-i:Who) (?!does\b|do\b|can\b|is\?)[a-z]+\b[^?]*$": "e.g. 'A node that …'",
    rf"(?:^|[.!] )(?-i:What) (?:{_VERBS})\b[^?]*$": "e.g. 'Entries that …'",
    r"^(?-i:Which) [^?]*$": "a noun, e.g. 'Members that …'",
    r"\bas \d+(?:\.\d+)?(?:[KMG]iB|ms|s|h|d)\b": "'e.g. 64MiB'",
    r"\b(?:is|are) asked for\b": "name who asks, or 'requested'",
}
_EDGES = re.compile(r"^(?:[frbu]{0,2}[\"']+|#+)\s*|\s*[\"']+$", re.IGNORECASE)
"""Quotes with their prefix, or the sign of a comment."""

PATTERNS = [(re.compile(found, re.IGNORECASE), instead) for found, instead in REFUSED.items()]


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of comments and strings; every line of a file that is not code."""
    text = text_of(path) or ""
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name = tokenize.tok_name[token.type]
        if name in {"COMMENT", "STRING", "FSTRING_MIDDLE"}:
            for number, line in enumerate(token.string.splitlines(), token.start[0]):
                yield number, _EDGES.sub("", line.strip())


def translated(line: str) -> list[str]:
    return [
        f"{hit.group().strip()!r}: write {instead}"
        for pattern, instead in PATTERNS
        if (hit := pattern.search(line))
    ]


def test_nothing_reads_like_a_translation() -> None:
    pages = {path for path in files_of_the_checkout() if path.suffix in PROSE}
    found = [
        f"{path.relative_to(ROOT)}:{number} {phrase}"
        for path in sorted({*python_files(), *pages} - {Path(__file__)})
        for number, line in prose_of(path)
        for phrase in translated(line)
    ]

    assert found == []


def test_no_letter_is_lost_where_a_line_of_prose_ends(tmp_path: Path) -> None:
    page = tmp_path / "page.py"
    page.write_text(
        '"""It is over, but whoever\ntook it is gone."""\n\nx = f"for"  # whoever\n'
    )

    assert [line for _, line in prose_of(page)] == [
        "It is over, but whoever",
        "took it is gone.",
        "for",
        "whoever",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "Who was interrupted deletes the stream once more",
        "What stands in the way of a repair",
        "A stream that exists is no error.",
        "it is a time from 0 on",
        "a size, as 64MiB",
    ],
)
def test_a_translated_sentence_is_refused(line: str) -> None:
    assert len(translated(line)) == 1


@pytest.mark.parametrize(
    "line", ["Who is it?", "There is no node in eu-west.", "Besides, it works as before."]
)
def test_a_plain_sentence_passes(line: str) -> None:
    assert translated(line) == []
