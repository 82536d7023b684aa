"""A standalone cluster of Spark whose two workers are in two regions, each a real process."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import attrs
import pyspark
import pytest
import trio

import geolog
from geolog.catalog.sinks import SinkCatalog
from geolog.protocol.sink_copy import StagedLedger
from geolog.spark import spark_environment
from tests.spark.demo_stream import connected, kill_region
from tests.spark.short_java import SHORT_JAVA
from tests.spark.standalone_write_job import FAILING, PARTITIONS, ROWS, SLOW
from tests.static.checkout import ROOT
from tests.system.demo_process import DemoProcess, running_demo, wait_until

BASE_PYTHON = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
STREAM = "shop/visits"
VALUE_BYTES = 32 << 10
WORKERS = {"a": "127.0.0.1", "b": "127.0.0.2"}
"""The host of the worker in each region: Spark runs a task twice on two hosts only."""
CHUNK = 500
COUNT = 5 * CHUNK
BARE_PYTHON = "python-of-this-test"
"""On the workers' PATH, a Python with Spark and pyarrow; on the driver's, this Python."""

BARE = """\
#!/bin/sh
PYTHONPATH=$(echo "$PYTHONPATH" | tr : '\\n' | grep '\\.zip$' | tr '\\n' :){packages}
export PYTHONPATH
exec {python} -S "$@"
"""


@contextmanager
def spark_process(log: Path, *argv: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server of Spark in a process group of its own: a worker has executors."""
    environment = os.environ | spark_environment(log.parent / "java", {"PATH": ""}) | variables
    environment = {"SPARK_LOCAL_IP": "127.0.0.1"} | environment
    environment |= {"PYTHONPATH": str(ROOT)} | SHORT_JAVA
    with (
        log.open("wb") as out,
        subprocess.Popen(
            argv, stdout=out, stderr=out, env=environment, start_new_session=True
        ) as process,
    ):
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)


def wait_for(log: Path, pattern: str) -> str:
    def found() -> re.Match[str] | None:
        return re.search(pattern, log.read_text(errors="replace"))

    wait_until(lambda: found() is not None)
    match = found()
    assert match is not None
    return match.group(0)


@attrs.frozen
class Cluster:
    """Two workers, in regions a and b, and a demo with regions a, b and c."""

    master: str
    demo: DemoProcess
    directory: Path
    zookeeper: str

    @contextmanager
    def job(
        self, program: str, stream: str, **further: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run one of the programs in this folder."""
        argument = {
            "master": self.master,
            "zookeeper": self.zookeeper,
            "stream": stream,
            "directory": str(self.directory),
            **further,
        }
        log = self.directory / "job.log"
        argv = (sys.executable, "-m", f"tests.spark.{program}", json.dumps(argument))
        with spark_process(log, *argv, PATH=path_with(self.directory / "driver")) as job:
            yield job

    def rows(self, name: str, job: subprocess.Popen[bytes]) -> list[dict[str, object]]:
        """Wait for the rows of one read of the job."""
        file = self.directory / f"{name}.json"
        wait_until(lambda: file.exists() or job.poll() is not None)
        assert file.exists(), (self.directory / "job.log").read_text()
        rows: list[dict[str, object]] = json.loads(file.read_text())
        return rows


def command(directory: Path, text: str) -> Path:
    """Write the command `BARE_PYTHON`; return its directory."""
    directory.mkdir()
    path = directory / BARE_PYTHON
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return directory


def path_with(directory: Path) -> str:
    return os.pathsep.join([str(directory), os.environ["PATH"], os.defpath])


def bare_python(directory: Path) -> Path:
    """A command that starts the base Python, without the packages of this one."""
    found = find_spec("pyarrow")
    assert found is not None
    assert found.origin is not None
    packages = directory / "packages"
    packages.mkdir()
    (packages / "pyarrow").symlink_to(Path(found.origin).parent)
    return command(directory / "worker", BARE.format(packages=packages, python=BASE_PYTHON))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("standalone")
    (directory / "demo").mkdir()
    with ExitStack() as stack:
        log = directory / "master.log"
        deploy = "org.apache.spark.deploy"
        start = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master_argv = (str(SPARK_CLASS), f"{deploy}.master.Master", *start)
        stack.enter_context(spark_process(log, *master_argv))
        shape = ("--regions", "a,b,c", "--nodes-per-region", "1")
        demo = stack.enter_context(running_demo(directory / "demo", *shape))
        path = path_with(bare_python(directory))
        master = wait_for(log, r"spark://127\.0\.0\.1:\d+")
        command(directory / "driver", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        for region, host in WORKERS.items():
            work = ("--work-dir", str(directory / f"work-{region}"))
            size = ("--cores", "1", "--memory", "1g", master)
            place = ("--host", host, "--webui-port", "0")
            argv = (str(SPARK_CLASS), f"{deploy}.worker.Worker", *place, *work, *size)
            worker = directory / f"worker-{region}.log"
            variables = {"GEOLOG_REGION": region, "PATH": path, "SPARK_LOCAL_IP": host}
            stack.enter_context(spark_process(worker, *argv, **variables))
        match demo.ready:
            case {"zookeeper": str(zookeeper)}:
                write(zookeeper)
            case _:
                raise AssertionError(demo.ready)
        for region in WORKERS:
            wait_for(directory / f"worker-{region}.log", "Successfully registered with master")
        yield Cluster(master, demo, directory, zookeeper)


def write(zookeeper: str) -> None:
    rng = random.Random(20)  # What compresses well is read ahead as a whole.
    with connected(zookeeper) as log:
        log.create_stream(
            STREAM,
            ensemble_size=3,
            write_quorum=3,
            ack_quorum=2,
            min_regions=2,
            segment_bytes=32 << 20,
        )
        with log.open_writer(STREAM) as writer:
            for first in range(0, COUNT, CHUNK):
                pending = [
                    writer.append_nowait(rng.randbytes(VALUE_BYTES))
                    for _ in range(first, first + CHUNK)
                ]
                for one in pending:
                    one.wait()


def records_of(zookeeper: str) -> tuple[int, int, int]:
    """Count, bytes and digest of the stream, by a reader without Spark."""
    count = size = digest = 0
    with connected(zookeeper) as log, log.open_reader(STREAM) as reader:
        for record in reader:
            count += 1
            size += len(record.value)
            digest += zlib.crc32(record.value, record.sequence)
    return count, size, digest


def totals(rows: list[dict[str, object]]) -> tuple[int, ...]:
    return tuple(
        sum(int(str(row[name])) for row in rows) for name in ("rows", "bytes", "digest")
    )


def bytes_by(rows: list[dict[str, object]]) -> Counter[tuple[object, object]]:
    """Bytes of each worker's region and each region that served them."""
    counted: Counter[tuple[object, object]] = Counter()
    for row in rows:
        counted[row["worker"], row["served"]] += int(str(row["bytes"]))
    return counted


@pytest.mark.long
def test_tasks_that_fail_and_tasks_that_run_twice_write_each_row_once(cluster: Cluster) -> None:
    with connected(cluster.zookeeper) as log:
        log.create_stream(
            "shop/written", ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2
        )
    with cluster.job("standalone_write_job", "shop/written") as job:
        cluster.rows("written", job)

    attempts = {path.name for path in cluster.directory.glob("attempt-*")}
    again = {f"attempt-{partition}-1" for partition in (SLOW, FAILING)}
    assert again <= attempts, "Spark has repeated nothing"
    assert len(attempts) == PARTITIONS + len(again)
    with connected(cluster.zookeeper) as log, log.open_reader("shop/written") as reader:
        values = [record.value.decode() for record in reader]
    assert values == [
        f"{partition}-{number}" for partition in range(PARTITIONS) for number in range(ROWS)
    ]
    assert trio.run(staging_of, cluster.zookeeper, "repeated") == []


async def staging_of(zookeeper: str, sink: str) -> list[StagedLedger]:
    async with geolog.connect(zookeeper=zookeeper, cluster="demo", region="a") as log:
        access = log.access
        return await SinkCatalog(
            access.metadata, access.paths, access.ledgers, rng=access.rng
        ).listed(sink)


@pytest.mark.long
def test_workers_read_from_their_own_regions_survive_a_loss_and_need_geolog(
    cluster: Cluster,
) -> None:
    """One job for all: most of its time is Spark's start."""
    expected = records_of(cluster.zookeeper)
    assert expected[0] == COUNT

    held = {"held_region": "b", "bare_python": BARE_PYTHON}
    with cluster.job("standalone_job", STREAM, **held) as job:
        rows = cluster.rows("whole", job)

        assert totals(rows) == expected
        by = bytes_by(rows)
        assert {worker for worker, _ in by} == {"a", "b"}
        own = sum(size for (worker, served), size in by.items() if worker == served)
        assert own >= 0.95 * by.total(), by

        wait_until(lambda: any(cluster.directory.glob("began-*")))
        kill_region(cluster.demo, "b")
        (cluster.directory / "go").touch()
        rows = cluster.rows("cut", job)
        [bare] = cluster.rows("bare", job)

    assert totals(rows) == expected
    served = {row["served"] for row in rows if row["worker"] == "b"}
    assert "b" in served, "the region was cut off before the task began"
    assert served & {"a", "c"}, "the whole task was read before the region was cut off"

    error = str(bare["error"])
    assert "a worker of Spark cannot read geolog: No module named 'geolog'" in error
    assert str(BASE_PYTHON) in error
    assert "Install geolog[spark] there, or set PYSPARK_PYTHON" in error
