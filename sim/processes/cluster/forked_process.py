"""Starts the servers of a local cluster by forking one process that has imported them all.

A server's imports take about a second of a core, and a cluster has two dozen servers: forked
ones share the imports, and their memory. multiprocessing's fork server does the forking, in a
process without threads, and tells how each child ended. It ends with the supervisor.
"""

import contextlib
import multiprocessing
import os
import runpy
import sys
from collections.abc import Sequence
from multiprocessing.context import ForkServerProcess
from multiprocessing.reduction import DupFd
from typing import Protocol

import trio

_IMPORTED = [
    "geolog.cli.main",
    "geolog.cli.nouns.serve",
    "geolog.client.connect",
    "geolog.metadata.zookeeper",
    "geolog.transport.gateway",
    "regions.proxy.proxy",
    "regions.storage.data_directories",
    "regions.storage.file_disk",
    "regions.storage.node",
    "regions.zookeeper.server",
    "relay.server.relay",
    "sim.processes.wan.control",
    "sim.processes.wan.emulator",
]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(_IMPORTED)

LIFELINE = "GEOLOG_PARENT_PIPE"
"""The variable with the number of the pipe at whose end a server ends."""

PYTHON_MODULE = (sys.executable, "-P", "-m")
"""The beginning of every command line that can be forked; a module's name follows."""


class ForkedProcess:
    """A process that runs `python -P -m MODULE ARGUMENT...`, in a process group of its own."""

    def __init__(self, process: ForkServerProcess, stdout: trio.lowlevel.FdStream) -> None:
        self.stdout = stdout
        assert process.pid is not None
        self.pid = process.pid
        self._process = process

    def __repr__(self) -> str:
        return f"<ForkedProcess {self.pid}>"

    @classmethod
    async def start(
        cls, argv: Sequence[str], *, stderr: int, lifeline: int, environ: dict[str, str]
    ) -> "ForkedProcess":
        """Fork it. stderr, lifeline: descriptors that it gets; `LIFELINE` names the second."""
        assert tuple(argv[:3]) == PYTHON_MODULE, f"not a module of this Python: {argv}"
        read_end, write_end = os.pipe()
        stdout = trio.lowlevel.FdStream(read_end)
        try:
            process = _context.Process(
                target=_run,
                args=(tuple(argv[3:]), _Kept(write_end), _Kept(stderr), _Kept(lifeline)),
                kwargs={"environ": environ},
                daemon=True,
            )
            # It waits for the fork; at the first start for the imports, too.
            await trio.to_thread.run_sync(process.start)
        except BaseException:
            await trio.aclose_forcefully(stdout)
            raise
        finally:
            os.close(write_end)
        return cls(process, stdout)

    async def wait(self) -> int:
        """Wait until it has ended. Its exit code, or the negative number of a signal."""
        while (code := self._process.exitcode) is None:
            await trio.lowlevel.wait_readable(self._process.sentinel)
        return code


class _Sent(Protocol):
    """A descriptor on its way to another process."""

    def detach(self) -> int:
        """Take it, under its number here."""
        ...


class _Kept:
    """A descriptor that the forked process gets as well, under a number of its own."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[object, ...]:
        return _detached, (DupFd(self._number),)


def _detached(sent: _Sent) -> int:
    return sent.detach()


def _run(
    module_and_arguments: Sequence[str],
    stdout: int,
    stderr: int,
    lifeline: int,
    *,
    environ: dict[str, str],
) -> None:
    """Become the server, in the forked process."""
    os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, wanted in enumerate((nothing, stdout, stderr)):
        os.dup2(wanted, number)
    # With all others: one would keep the fork server alive when the supervisor has gone.
    os.closerange(3, lifeline)
    os.closerange(lifeline + 1, os.sysconf("SC_OPEN_MAX"))
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environ, **{LIFELINE: str(lifeline)})
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as name:
        name.write("geolog")
    module, *arguments = module_and_arguments
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
