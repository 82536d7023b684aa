"""Conventions that no tool knows, one test each."""

import ast
import importlib
import pkgutil
import re
import tomllib
from collections.abc import Iterator

import pytest

from tests.static.checkout import (
    FLOORS,
    ROOT,
    files_of_the_checkout,
    line_of,
    python_files,
    text_of,
)
from topology.errors import GeologError

# Files with these names collect everything that has no better name.
FILE_NAMES_WITHOUT_A_NOUN = {"base", "common", "helper", "helpers", "manager", "misc", "types"}
FILE_NAMES_WITHOUT_A_NOUN |= {"util", "utils"}
# These endings name a role in our code instead of the thing itself.
CLASS_ENDINGS_WITHOUT_A_NOUN = {"Common", "Data", "Handler", "Helper", "Helpers", "Manager"}
CLASS_ENDINGS_WITHOUT_A_NOUN |= {"Processor", "Util", "Utils"}

# Packages that repeat the classes of `geolog.client`, by design.
SURFACES = {("geolog", "aio"), ("geolog", "blocking")}

# Written so that this line does not match itself.
OF_ONE_MACHINE = re.compile(
    r"(^|[^A-Za-z0-9_.])/(wor[k]|far[m]|hom[e])/"
    r"|py[p]i\.org|python[h]osted|registry\.np[m]js|repo1?\.mave[n]|deb\.debia[n]",
    re.IGNORECASE | re.MULTILINE,
)
UNFINISHED = re.compile(r"\b(TOD[O]|FIXM[E]|XX[X]|unittest\.moc[k]|MagicMoc[k])\b")


def classes() -> Iterator[tuple[str, str]]:
    for path in python_files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.name


def modules() -> Iterator[str]:
    for floor in FLOORS:
        yield floor
        for found in pkgutil.walk_packages([str(ROOT / floor)], prefix=f"{floor}."):
            if not found.name.endswith(".__main__"):
                yield found.name


def exceptions_of(module_name: str) -> list[type[BaseException]]:
    module = importlib.import_module(module_name)
    return [
        found
        for found in vars(module).values()
        if isinstance(found, type)
        and issubclass(found, BaseException)
        and found.__module__ == module_name
    ]


def test_every_exception_descends_from_the_one_root() -> None:
    strangers = [
        f"{module}.{found.__name__}"
        for module in modules()
        for found in exceptions_of(module)
        if not issubclass(found, GeologError)
    ]

    assert strangers == []


def test_every_file_is_named_by_a_noun_of_the_field() -> None:
    nameless = [
        str(path.relative_to(ROOT))
        for path in python_files()
        if path.stem in FILE_NAMES_WITHOUT_A_NOUN
        or path.parent.name in FILE_NAMES_WITHOUT_A_NOUN
    ]

    assert nameless == []


def test_every_class_is_named_after_the_thing_it_is() -> None:
    nameless = [
        f"{place} {name}"
        for place, name in classes()
        if re.split(r"(?=[A-Z])", name)[-1] in CLASS_ENDINGS_WITHOUT_A_NOUN
    ]

    assert nameless == []


def test_a_public_class_name_has_one_meaning_in_one_package() -> None:
    places: dict[str, list[str]] = {}
    for path in python_files():
        relative = path.relative_to(ROOT)
        if relative.parts[0] not in FLOORS or relative.parts[:2] in SURFACES:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(f"{relative}:{node.lineno}")

    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_file_names_a_machine_or_a_package_registry() -> None:
    found = [
        f"{line_of(path, text, hit.start())} {hit.group().strip()}"
        for path in files_of_the_checkout()
        if path.suffix != ".svg" and (text := text_of(path)) is not None
        for hit in OF_ONE_MACHINE.finditer(text)
    ]

    assert found == []


def test_nothing_is_left_unfinished_or_mocked() -> None:
    found = [
        f"{line_of(path, text, hit.start())} {hit.group()}"
        for path in python_files()
        if (text := text_of(path)) is not None
        for hit in UNFINISHED.finditer(text)
    ]

    assert found == []


def test_no_import_cycle_hides_behind_type_checking() -> None:
    guarded = [
        str(path.relative_to(ROOT))
        for path in python_files()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and node.module == "typing"
        and any(name.name == "TYPE_CHECKING" for name in node.names)
    ]

    assert guarded == []


def test_the_inits_of_the_command_are_free_of_imports() -> None:
    init = ROOT / "geolog" / "cli" / "__init__.py"

    statements = ast.parse(init.read_text(encoding="utf-8")).body

    assert [type(node) for node in statements] == [ast.Expr], "a docstring and nothing else"


@pytest.mark.parametrize("setting", ["ignore", "per-file-ignores"])
def test_every_disabled_lint_rule_has_a_reason_in_a_comment(setting: str) -> None:
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    lint = tomllib.loads("\n".join(lines))["tool"]["ruff"]["lint"]
    names = [str(name) for name in lint[setting]]
    assert names

    without = [
        name
        for name in names
        if not any(
            f'"{name}"' in line and _has_reason(lines, n) for n, line in enumerate(lines)
        )
    ]

    assert without == []


def _has_reason(lines: list[str], number: int) -> bool:
    """Whether a comment ends the line or stands right above it."""
    return "#" in lines[number] or lines[number - 1].startswith("#")
