"""One cluster for all tests in this folder, and one stream per test."""

from collections.abc import Iterator
from itertools import count

import pytest

from geolog import blocking
from geolog.blocking.log import log_of
from sim.in_process import InProcessCluster
from tests.pure.portal.clusters import client_of, running_cluster

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[InProcessCluster]:
    with running_cluster() as running:
        yield running


@pytest.fixture
def log(cluster: InProcessCluster) -> Iterator[blocking.Log]:
    with log_of(client_of(cluster)) as opened:
        yield opened


@pytest.fixture
def stream(log: blocking.Log) -> str:
    name = f"test/stream-{next(_NUMBERS)}"
    log.create_stream(name, survive="1 region")
    return name
