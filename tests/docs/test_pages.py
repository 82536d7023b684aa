"""The commands in the documentation do what the pages say, and its links resolve."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs
import pytest

from tests.docs.console_blocks import Command, commands_of
from tests.docs.hosts import HOST_PLACES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

# A newcomer reads these first. The other pages that need a demo take a few minutes together.
FIRST_PAGES = {ROOT / "README.md", ROOT / "docs" / "GETTING_STARTED.md"}

# Generous: a busy machine is slow, and the page is not to blame.
DEMO_READY_S = 100.0
DEMO_GONE_S = 100.0
COMMAND_S = 100.0


@attrs.frozen
class Place:
    """Where a page's commands run: a directory and extra environment variables."""

    directory: Path
    environment: dict[str, str] = attrs.field(factory=dict)

    def run(self, command: Command) -> subprocess.CompletedProcess[str]:
        bin_path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", command.text],
            cwd=self.directory,
            env={**os.environ, "PATH": bin_path, "COLUMNS": "100", **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )


@pytest.fixture
def scratch(tmp_path: Path) -> Place:
    """An empty directory."""
    return Place(tmp_path)


@pytest.fixture
def checkout() -> Place:
    """The checkout; make only prints what it would do, so that no test runs all tests."""
    return Place(ROOT, {"MAKEFLAGS": "n"})


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A demo cluster without WAN latency."""
    options = ("--wan", "none", "--relays-per-region", "1")
    with running_demo(tmp_path_factory.mktemp("demo"), *options) as place:
        yield place


@pytest.fixture(scope="module")
def wandemo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A small demo cluster with the default WAN latencies."""
    options = ("--nodes-per-region", "1", "--relays-per-region", "0")
    with running_demo(tmp_path_factory.mktemp("wan"), *options) as place:
        yield place


@contextmanager
def running_demo(home: Path, *options: str) -> Iterator[Place]:
    """An empty directory, with a demo cluster that every geolog command finds by itself."""
    ready = home / "ready.json"
    log = home / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                *(Path(sys.executable).parent / "geolog", "demo", "--stay", "--no-workload"),
                *("--data-dir", str(home / "data"), "--ready-file", str(ready)),
                *("--proxies-per-region", "0", *options),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"TMPDIR": str(home)},
        )
    try:
        deadline_s = time.monotonic() + DEMO_READY_S
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline_s:
                pytest.fail(f"the demo did not get ready:\n{log.read_text()}", pytrace=False)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        directory = home / "reader"
        directory.mkdir()
        settings = str(home / "data" / "geolog.toml")
        yield Place(directory, {"GEOLOG_CONFIG": settings, "TMPDIR": str(home)})
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(DEMO_GONE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


DEMOS = {"demo", "wandemo"}
PLACES = {"checkout", "scratch", *DEMOS}


def runnable_pages() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        commands = commands_of(page.read_text(encoding="utf-8"))
        for place in sorted({command.place for command in commands} - HOST_PLACES):
            yield page, place


@pytest.mark.parametrize(
    ("page", "place_name"),
    [
        pytest.param(
            *(page, place),
            id=f"{page.relative_to(ROOT)}-{place}",
            marks=[pytest.mark.long] if place in DEMOS and page not in FIRST_PAGES else [],
        )
        for page, place in runnable_pages()
    ],
)
def test_the_commands_of_a_page_work_as_shown(
    page: Path, place_name: str, request: pytest.FixtureRequest
) -> None:
    assert place_name in PLACES, f"{page.name} names the place {place_name!r}"
    place = request.getfixturevalue(place_name)
    assert isinstance(place, Place)
    commands = [
        one for one in commands_of(page.read_text(encoding="utf-8")) if one.place == place_name
    ]
    if place_name == "demo" and any("cluster health" in one.text for one in commands):
        # Servers that other pages killed may have left ledgers in the repair queue.
        place.run(attrs.evolve(commands[0], text="geolog ledger repair --queue"))

    for command in commands:
        done = place.run(command)
        if done.returncode != command.exit_code or not command.agrees_with(done.stdout):
            pytest.fail(
                f"{page.relative_to(ROOT)}:{command.line_number}\n$ {command.text}\n"
                f"{done.stdout}exit code {done.returncode}",
                pytrace=False,
            )


LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    targets = [link["target"] for link in LINK.finditer(page.read_text(encoding="utf-8"))]

    dead = [
        target
        for target in targets
        if "://" not in target and not (page.parent / target).exists()
    ]

    assert dead == []


ANCHOR = re.compile(r"\]\((?P<target>[^)#\s:]*)#(?P<anchor>[^)\s]+)\)")
HEADING = re.compile(r"^#+ (?P<words>.+)$", re.MULTILINE)


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page: its headings in lower case, without punctuation."""
    headings = (found["words"] for found in HEADING.finditer(page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-") for words in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_into_a_page_leads_to_a_heading_of_it(page: Path) -> None:
    links = list(ANCHOR.finditer(page.read_text(encoding="utf-8")))

    dead = [
        link[0]
        for link in links
        if link["anchor"]
        not in anchors_of(page.parent / link["target"] if link["target"] else page)
    ]

    assert dead == []


SOURCE = re.compile(r"`(?P<path>[a-z][a-z_]*(?:/[a-z_]+)*/[a-z_]*(?:\.py|/))`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_source_file_that_a_page_names_exists(page: Path) -> None:
    named = [found["path"] for found in SOURCE.finditer(page.read_text(encoding="utf-8"))]

    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_readme_is_read_in_one_sitting_and_says_what_is_missing() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    assert len(readme.splitlines()) < 150
    assert "Not built yet:" in readme


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")

    missing = [
        page.name
        for page in PAGES
        if page.parent == ROOT / "docs" and f"({page.name})" not in index
    ]

    assert missing == ["README.md"]
