"""One small demo that the tests of this run share, and what begins first."""

from collections.abc import Iterator

import pytest

from tests.system.demo_process import DemoProcess, running_demo

LONGEST_FIRST = ("test_demo_story.py", "test_drills.py", "test_cli.py", "test_cli_bad_input.py")
"""Files that take a minute or more: at the end of a run the others would wait for them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the longest files begin first, and keep the order of the others."""

    def rank(item: pytest.Item) -> int:
        name = item.path.name
        return LONGEST_FIRST.index(name) if name in LONGEST_FIRST else len(LONGEST_FIRST)

    items.sort(key=rank)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoProcess]:
    """Run three regions with one node and one ZooKeeper server each; no Java on PATH."""
    directory = tmp_path_factory.mktemp("demo")
    with running_demo(directory, "--regions", "a,b,c", "--nodes-per-region", "1") as running:
        yield running
