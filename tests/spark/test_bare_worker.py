"""A worker whose Python lacks geolog: the driver is told which, and what to do."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from geolog.spark import spark_environment
from tests.static.checkout import ROOT

pytestmark = pytest.mark.xdist_group("session")
NAME = "python-of-this-test"
# The worker has what Spark brings, and pyarrow.
BARE = """\
#!/bin/sh
PYTHONPATH=$(echo "$PYTHONPATH" | tr : '\\n' | grep '\\.zip$' | tr '\\n' :){packages}
export PYTHONPATH
exec {python} -S "$@"
"""


def script(directory: Path, text: str) -> Path:
    directory.mkdir()
    path = directory / NAME
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def test_the_driver_is_told_which_worker_lacks_geolog(
    zookeeper: str, orders: str, tmp_path: Path
) -> None:
    found = find_spec("pyarrow")
    assert found is not None
    assert found.origin is not None
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "pyarrow").symlink_to(Path(found.origin).parent)
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    bare = script(tmp_path / "worker", BARE.format(packages=packages, python=base))
    ours = script(tmp_path / "driver", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    argument = {
        "python": NAME,
        "worker_path": f"{bare.parent}:/usr/bin:/bin",
        "zookeeper": zookeeper,
        "stream": orders,
        "directory": str(tmp_path / "warehouse"),
    }
    environment = os.environ | spark_environment(tmp_path / "java", {"PATH": ""})
    environment |= {
        "PATH": f"{ours.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    job = subprocess.run(
        [sys.executable, ROOT / "tests/spark/bare_worker_job.py", json.dumps(argument)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )

    assert job.stdout, job.stderr
    error = json.loads(job.stdout.splitlines()[-1])
    assert "a worker of Spark cannot read geolog: No module named 'geolog'" in error
    assert str(base) in error
    assert "Install geolog[spark] there, or set PYSPARK_PYTHON" in error
