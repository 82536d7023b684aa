"""Starts a PySpark program as a process of its own, which leads a process group."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import trio

_END_S = 5.0


def has_spark() -> bool:
    """Whether PySpark is installed: it is an extra."""
    return find_spec("pyspark") is not None


async def start_spark_program(
    module: str,
    argument: Mapping[str, object],
    *,
    directory: Path,
    log: Path,
    region: str | None = None,
) -> trio.Process:
    """Run the module with the argument as JSON, and pipes for its stdin and stdout.

    directory: it runs there. log: the file that gets what it and Spark say. region: where it is
    a client.
    """
    # Spark's start is a script: it needs a shell, whatever this process needs.
    path = os.pathsep.join([os.environ.get("PATH", ""), os.defpath]).strip(os.pathsep)
    placed = {} if region is None else {"GEOLOG_REGION": region}
    with log.open("ab") as out:
        return await trio.lowlevel.open_process(
            [sys.executable, "-P", "-m", module, json.dumps(argument)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=out,
            env=os.environ | {"PATH": path} | placed,
            cwd=directory,
            process_group=0,
        )


def kill_spark_program(process: trio.Process) -> None:
    """Kill the driver and its Java at once; Spark's Python workers end with Java."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # It has ended.


async def end_spark_program(process: trio.Process) -> None:
    """Close its input, which ends it; kill it if that takes too long."""
    with trio.CancelScope(shield=True):
        if process.stdin is not None:
            await process.stdin.aclose()
        with trio.move_on_after(_END_S):
            await process.wait()
        if process.returncode is None:
            kill_spark_program(process)
            await process.wait()
