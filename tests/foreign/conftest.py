"""One demo that the tests of this run share: three regions, each with a proxy."""

from collections.abc import Iterator

import pytest

from tests.foreign.proxy_urls import ProxyUrls
from tests.system.demo_process import DemoProcess, running_demo


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoProcess]:
    """Run it, without WAN latency."""
    directory = tmp_path_factory.mktemp("demo")
    small = ("--regions", "a,b,c", "--nodes-per-region", "1", "--proxies-per-region", "1")
    with running_demo(directory, *small) as running:
        yield running


@pytest.fixture(scope="session")
def proxies(demo: DemoProcess) -> dict[str, ProxyUrls]:
    """The proxy of each region."""
    return ProxyUrls.by_region(demo)
