"""Every citation resolves within the repository: rules, laws, planted bugs and pages.

docs/PROTOCOL.md numbers the rules and names the files that keep them; docs/LAWS.md lists the
laws with their checkers and planted bugs. Both name only things that exist, and all of them.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from sim.laws.history.all_laws import HISTORY_LAWS
from sim.laws.state.all_laws import all_state_laws, all_wire_laws
from sim.planted.bugs import PLANTED_BUGS
from tests.static.checkout import ROOT, files_of_the_checkout, line_of, text_of

PROTOCOL = (ROOT / "docs" / "PROTOCOL.md").read_text(encoding="utf-8")
LAWS = (ROOT / "docs" / "LAWS.md").read_text(encoding="utf-8")
PLANTED = (ROOT / "docs" / "PLANTED_BUGS.md").read_text(encoding="utf-8")

RULE = re.compile(r"^\*\*(?P<id>[A-Z]\d+)\. .+?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
INDEX_ROW = re.compile(
    r"^\| \[(?P<subject>.+)\]\(#.+\) \| (?P<rules>.+) \| .+ \|$", re.MULTILINE
)
KEPT_BY = re.compile(r"\*Kept\s+by\*(?P<files>[^*]+)$")
QUOTED = re.compile(r"`([^`]+)`")
LAW = re.compile(
    r"^## Law `?(?P<number>\w+)`?.*?\n(?P<words>.+?)(?=^## |\Z)", re.MULTILINE | re.DOTALL
)
BUG_ROW = re.compile(
    r"^\| (?P<number>\d+) `(?P<name>[\w-]+)` \|.*\| (?P<laws>[^|]+) \|$", re.MULTILINE
)

# A citation may span two lines of a comment or docstring.
_GAP = r"(?:\s|\n\s*#)+"
_AND = rf"(?:,|{_GAP}and|{_GAP}to|,{_GAP}and){_GAP}"
_NUMBERS = rf"\d+(?:{_AND}\d+)*\b"
RULES_CITED = re.compile(rf"\bPROTOCOL{_GAP}(?P<list>[A-Z]\d+(?:{_AND}[A-Z]\d+)*)")
LAWS_CITED = re.compile(rf"\b[Ll]aws?{_GAP}(?P<list>{_NUMBERS})")
BUGS_CITED = re.compile(rf"\b[Pp]lanted{_GAP}bugs?{_GAP}(?P<list>{_NUMBERS})")
PAGE_CITED = re.compile(r"(?<![\w*{}])(?P<page>[\w./-]*\w\.md)\b")
# Sections and issues cannot be looked up here, so citing them is refused.
ELSEWHERE = re.compile(rf"\b(?:[Ss]ection|[Ii]ssue){_GAP}#?\d+|\brelay[_ ]rules\b")
RANGE = re.compile(r"(?P<letter>[A-Z])(?P<first>\d+)\s+to\s+[A-Z](?P<last>\d+)")
RULES_OF_A_FILE = re.compile(r"^Rules: (?P<cited>PROTOCOL [^.]+)\.$", re.MULTILINE)


@attrs.frozen
class Citation:
    """One citation, with its place as `path:line`."""

    place: str
    what: str


def rules() -> dict[str, str]:
    """The text of each rule."""
    return {found["id"]: found[0] for found in RULE.finditer(PROTOCOL)}


def files_of(rule: str) -> list[str]:
    """The files that keep a rule, from its text."""
    kept_by = KEPT_BY.search(rule)
    return QUOTED.findall(kept_by["files"]) if kept_by else []


def rules_in(text: str) -> list[str]:
    """The rules in a cited list: `N1 to N3, and L2` gives four."""
    spread = RANGE.sub(
        lambda found: ", ".join(
            f"{found['letter']}{number}"
            for number in range(int(found["first"]), int(found["last"]) + 1)
        ),
        text,
    )
    return re.findall(r"[A-Z]\d+", spread)


def laws() -> dict[str, str]:
    """The text of each law, by its number; `deletion` has no number."""
    return {found["number"]: found["words"] for found in LAW.finditer(LAWS)}


def named_in(words: str, kind: str) -> list[str]:
    """The names in a law's list items of this kind (e.g. `Planted`), in page order."""
    points = re.findall(rf"\*{kind}:\*(?P<point>.+?)(?=\n- |\n\n|\*Wire|\Z)", words, re.DOTALL)
    return [name for point in points for name in QUOTED.findall(point)]


def texts() -> Iterator[tuple[Path, str]]:
    for path in files_of_the_checkout():
        if path.suffix in {".py", ".md", ".toml", ".txt", ".yml"} or path.name == "Makefile":
            text = text_of(path)
            if text is not None:
                yield path, text


def citations(pattern: re.Pattern[str]) -> Iterator[tuple[Path, Citation]]:
    for path, text in texts():
        for found in pattern.finditer(text):
            yield path, Citation(line_of(path, text, found.start()), found[0])


def unknown(pattern: re.Pattern[str], known: set[str]) -> list[Citation]:
    """Citations of unknown numbers."""
    return [
        one
        for _, one in citations(pattern)
        if not set(rules_in(one.what) or re.findall(r"\d+", one.what)) <= known
    ]


def test_a_range_of_rules_is_all_of_them() -> None:
    assert rules_in("PROTOCOL N1 to N3, N7 and L2") == ["N1", "N2", "N3", "N7", "L2"]


def test_the_rules_of_a_subject_are_numbered_in_order() -> None:
    ids = [found["id"] for found in RULE.finditer(PROTOCOL)]

    assert len(ids) == len(set(ids)) > 100
    by_letter = defaultdict[str, list[int]](list)
    for one in ids:
        by_letter[one[0]].append(int(one[1:]))
    assert [letter for letter, numbers in by_letter.items() if numbers != sorted(numbers)] == []


def test_the_index_of_the_rules_is_true() -> None:
    subject_of = {}
    for part in PROTOCOL.split("\n## ")[1:]:
        ids = [found["id"] for found in RULE.finditer(part)]
        subject_of[part.splitlines()[0]] = f"{ids[0]}–{ids[-1]}"

    told = {row["subject"]: row["rules"] for row in INDEX_ROW.finditer(PROTOCOL)}

    assert told == subject_of


def test_each_rule_says_why_and_which_file_keeps_it() -> None:
    lacking = [
        number for number, rule in rules().items() if "*Why:*" not in rule or not files_of(rule)
    ]

    assert lacking == []


def test_every_file_that_keeps_a_rule_exists() -> None:
    gone = [
        f"{number}: {name}"
        for number, rule in rules().items()
        for name in files_of(rule)
        if not (ROOT / name).is_file()
    ]

    assert gone == []


def test_a_file_that_keeps_rules_names_them_in_its_docstring() -> None:
    kept = defaultdict[str, set[str]](set)
    for number, rule in rules().items():
        for name in files_of(rule):
            kept[name].add(number)
    told = {
        str(path.relative_to(ROOT)): set(rules_in(found["cited"]))
        for path, text in texts()
        if path.suffix == ".py"
        and (found := RULES_OF_A_FILE.search(ast.get_docstring(ast.parse(text)) or ""))
    }

    assert told == kept


def test_every_rule_that_is_cited_exists() -> None:
    assert unknown(RULES_CITED, set(rules())) == []


def test_the_rules_cite_each_other_by_numbers_that_exist() -> None:
    assert set(re.findall(r"\b[A-Z]\d{1,2}\b", PROTOCOL)) == set(rules())


def test_every_law_that_is_cited_exists() -> None:
    assert unknown(LAWS_CITED, set(laws())) == []


def test_every_planted_bug_that_is_cited_by_number_exists() -> None:
    numbers = {str(bug.number) for bug in PLANTED_BUGS.values()}

    assert unknown(BUGS_CITED, numbers) == []


def test_no_section_or_issue_is_cited_by_number() -> None:
    assert [one for _, one in citations(ELSEWHERE)] == []


def test_every_page_that_is_cited_exists() -> None:
    gone = [
        one
        for path, one in citations(PAGE_CITED)
        if not any(
            (place / one.what.lstrip("/")).is_file()
            for place in (ROOT, ROOT / "docs", path.parent)
        )
    ]

    assert gone == []


def test_the_laws_are_numbered_in_order_and_indexed() -> None:
    numbers = list(laws())

    assert numbers == [*map(str, range(1, len(numbers))), "deletion"]
    rows = re.findall(r"^\| \[`?(\w+)`?\]\(#", LAWS, re.MULTILINE)
    assert rows == numbers


def test_every_checker_of_states_and_of_the_wire_is_named_under_its_law() -> None:
    checkers = {
        (number, f"{type(law).__module__.replace('.', '/')}.py")
        for number, law in (*all_state_laws(), *all_wire_laws())
    }

    named = {
        (number, name)
        for number, words in laws().items()
        for name in QUOTED.findall(words)
        if re.search(r"/law_\d+_\w+\.py$", name)
    }

    assert checkers - named == set()
    files = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("sim/laws/**/law_*.py"))
    assert sorted({name for _, name in named}) == files


def test_every_checker_of_histories_is_named_under_its_law() -> None:
    checkers = {
        number: {law.__name__ for law in checks} for number, checks in HISTORY_LAWS.items()
    }

    named = {
        number: {name for name in named_in(words, "History") if "/" not in name}
        for number, words in laws().items()
    }

    assert {number: names for number, names in named.items() if names} == checkers


def test_every_planted_bug_is_named_under_each_law_that_finds_it() -> None:
    found_by = {row["name"]: row["laws"] for row in BUG_ROW.finditer(PLANTED)}
    assert set(found_by) == set(PLANTED_BUGS)

    missing = [
        f"law {law}: {name}"
        for name, told in found_by.items()
        for law in re.findall(r"\w+", told)
        if law != "crash"  # An assertion failed before a law could.
        and name not in QUOTED.findall(laws()[law])
    ]

    assert missing == []


def test_every_planted_bug_that_a_law_names_exists() -> None:
    named = {name for words in laws().values() for name in named_in(words, "Planted")}

    assert named == set(PLANTED_BUGS)


@pytest.mark.parametrize("page", ["PROTOCOL.md", "LAWS.md", "PLANTED_BUGS.md"])
def test_every_file_that_the_page_names_exists(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")

    named = [name for name in QUOTED.findall(text) if re.fullmatch(r"[\w/]+/[\w/]*\.py", name)]

    assert [name for name in named if not (ROOT / name).is_file()] == []
