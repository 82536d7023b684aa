"""One small demo that the tests of this run share."""

from collections.abc import Iterator

import pytest

from tests.system.demo_process import DemoProcess, running_demo


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoProcess]:
    """Run three regions with one node and one ZooKeeper server each; no Java on PATH."""
    directory = tmp_path_factory.mktemp("demo")
    with running_demo(directory, "--regions", "a,b,c", "--nodes-per-region", "1") as running:
        yield running
