"""One server process of a local cluster, across restarts."""

import enum
import json
import os
import signal

import attrs
import trio

from sim.processes.cluster.forked_process import ForkedProcess
from sim.processes.cluster.plan import ServerPlan
from topology.errors import UnavailableError

STOP_GRACE_S = 8.0
"""How long a server may take to stop before it is killed."""

_ANSWER_BYTES_MAX = 64 * 1024


class ServerState(enum.Enum):
    """State of a process as the supervisor knows it."""

    DOWN = "down"
    STARTING = "starting"
    UP = "up"
    PAUSED = "paused"


class ServerFailedError(UnavailableError):
    """A server ended or did not answer in time. The end of its log gives the reason."""


class Server:
    """A process that runs `ServerPlan.argv`.

    It leads its own process group, so a signal also reaches its children, while a terminal's
    Ctrl-C reaches only the supervisor. The group belongs to the supervisor's session: if the
    supervisor vanishes while the process is stopped, so does the fork server, and the kernel
    ends it.
    """

    def __init__(self, plan: ServerPlan, lifeline: int) -> None:
        self.plan = plan
        self.state = ServerState.DOWN
        self.ready: dict[str, object] = {}
        self.starts_count = 0
        self._lifeline = lifeline
        self._process: ForkedProcess | None = None
        self._ended = trio.Event()

    def __repr__(self) -> str:
        return f"<Server {self.plan.name} {self.state.value} pid={self.pid}>"

    @property
    def pid(self) -> int | None:
        """The process id, or None without a process."""
        return None if self._process is None else self._process.pid

    @property
    def node_id(self) -> str:
        """The id of a storage node in `geolog node ls`."""
        return str(self.ready.get("id", self.plan.address))

    @property
    def is_running(self) -> bool:
        """Whether there is a process, answering or not."""
        return self.state is not ServerState.DOWN

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Start the process, report when it answers, and return when it has ended.

        ServerFailedError if it ends before it answers. A cancellation kills the process.
        """
        assert self.state is ServerState.DOWN, f"{self!r} is already running"
        self.state = ServerState.STARTING
        self._ended = trio.Event()
        self.plan.log.parent.mkdir(parents=True, exist_ok=True)
        self.starts_count += 1
        try:
            with self.plan.log.open("ab") as log:
                self._process = await self._fork(log.fileno())
            await self._read_ready_line(self._process)
            self.state = ServerState.UP
            task_status.started()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._drain, self._process)
                await self._process.wait()
                nursery.cancel_scope.cancel(reason="the process has ended")
        finally:
            self._signal_group(signal.SIGKILL)
            if self._process is not None:
                with trio.CancelScope(shield=True):
                    await self._process.wait()
            self._process = None
            self.state = ServerState.DOWN
            self._ended.set()

    async def wait_ended(self) -> None:
        """Wait until there is no process."""
        if self.is_running:
            await self._ended.wait()

    def kill(self) -> None:
        """Send SIGKILL to the process and its children, which end as in a power cut."""
        self._signal_group(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to shut down cleanly; wake it if it is paused."""
        self._signal_group(signal.SIGTERM)
        self._signal_group(signal.SIGCONT)

    def pause(self) -> None:
        """Send SIGSTOP: it keeps its connections but does not answer."""
        if self._signal_group(signal.SIGSTOP) and self.state is ServerState.UP:
            self.state = ServerState.PAUSED

    def resume(self) -> None:
        """Send SIGCONT."""
        if self._signal_group(signal.SIGCONT) and self.state is ServerState.PAUSED:
            self.state = ServerState.UP

    def describe(self) -> dict[str, object]:
        """A row of `geolog demo ls`."""
        return {
            "name": self.plan.name,
            "kind": self.plan.kind,
            "address": self.plan.address,
            "http": self.plan.http,
            "location": self.plan.location,
            "state": self.state.value,
            "pid": self.pid,
            "log": str(self.plan.log),
        }

    def log_end(self, lines_count: int = 8) -> str:
        """The last lines of its log."""
        try:
            text = self.plan.log.read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines_count:])

    async def _fork(self, log: int) -> ForkedProcess:
        return await ForkedProcess.start(
            self.plan.argv, stderr=log, lifeline=self._lifeline, environ=dict(os.environ)
        )

    async def _read_ready_line(self, process: ForkedProcess) -> None:
        answer = b""
        while b"\n" not in answer and len(answer) < _ANSWER_BYTES_MAX:
            chunk = await process.stdout.receive_some()
            if not chunk:
                code = await process.wait()
                raise ServerFailedError(
                    f"{self.plan.name} ended with code {code} during start-up; the end of "
                    f"{self.plan.log}:\n{self.log_end()}"
                )
            answer += chunk
        self.ready = json.loads(answer.partition(b"\n")[0])
        assert self.ready.get("ready") is True, f"{self.plan.name} began with {answer!r}"

    async def _drain(self, process: ForkedProcess) -> None:
        """Discard further output, so that a server never blocks on stdout."""
        async for _ in process.stdout:
            pass

    def _signal_group(self, number: signal.Signals) -> bool:
        """Signal the process and its children; False if they are gone."""
        if self._process is None:
            return False
        try:
            # The group outlives its leader while a child of the leader lives.
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        return True


@attrs.frozen
class Lifeline:
    """A pipe that closes with the supervisor, even on SIGKILL; each server then ends."""

    read_end: int
    write_end: int

    @classmethod
    def open(cls) -> "Lifeline":
        """Open the pipe. Servers get only the read end."""
        return cls(*os.pipe())

    def close(self) -> None:
        """Close the pipe; each server still running ends."""
        os.close(self.read_end)
        os.close(self.write_end)
