"""Runs one server process of a local cluster: starts it, stops it, and starts it again."""

import enum
import json
import os
import signal
import subprocess

import attrs
import trio

from sim.processes.cluster.plan import ServerPlan
from topology.errors import UnavailableError

STOP_GRACE_S = 8.0
"""How long a server that was asked to stop may take before it is killed."""

_ANSWER_BYTES_MAX = 64 * 1024


class ServerState(enum.Enum):
    """State of a process, as the supervisor sees it."""

    DOWN = "down"
    STARTING = "starting"
    UP = "up"
    PAUSED = "paused"


class ServerFailedError(UnavailableError):
    """A server ended, or did not answer in time. The end of its log says why."""


class Server:
    """A process that runs `ServerPlan.argv`.

    It leads a process group of its own, so that a signal reaches what it has started too, while
    a terminal's Ctrl-C reaches the supervisor alone. The group is of the supervisor's session:
    should the supervisor vanish while the process is stopped, the kernel ends it.
    """

    def __init__(self, plan: ServerPlan, lifeline: int) -> None:
        self.plan = plan
        self.state = ServerState.DOWN
        self.ready: dict[str, object] = {}
        self.starts_count = 0
        self._lifeline = lifeline
        self._process: trio.Process | None = None
        self._ended = trio.Event()

    def __repr__(self) -> str:
        return f"<Server {self.plan.name} {self.state.value} pid={self.pid}>"

    @property
    def pid(self) -> int | None:
        """The process id, while there is a process."""
        return None if self._process is None else self._process.pid

    @property
    def node_id(self) -> str:
        """The id under which `geolog node ls` knows a storage node."""
        return str(self.ready.get("id", self.plan.address))

    @property
    def is_running(self) -> bool:
        """There is a process, answering or not."""
        return self.state is not ServerState.DOWN

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Start the process; report when it answers; return when it has ended.

        ServerFailedError before that if it ends first. Cancelled, it kills the process.
        """
        assert self.state is ServerState.DOWN, f"{self!r} runs already"
        self.state = ServerState.STARTING
        self._ended = trio.Event()
        self.plan.log.parent.mkdir(parents=True, exist_ok=True)
        self.starts_count += 1
        try:
            with self.plan.log.open("ab") as log:
                self._process = await self._open_process(log.fileno())
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
        """SIGKILL: as a power cut would, for this process and what it started."""
        self._signal_group(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end in order; a paused one is woken for it."""
        self._signal_group(signal.SIGTERM)
        self._signal_group(signal.SIGCONT)

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and answers nothing."""
        if self._signal_group(signal.SIGSTOP) and self.state is ServerState.UP:
            self.state = ServerState.PAUSED

    def resume(self) -> None:
        """SIGCONT."""
        if self._signal_group(signal.SIGCONT) and self.state is ServerState.PAUSED:
            self.state = ServerState.UP

    def describe(self) -> dict[str, object]:
        """What `geolog demo ls` shows."""
        return {
            "name": self.plan.name,
            "kind": self.plan.kind,
            "address": self.plan.address,
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

    async def _open_process(self, log: int) -> trio.Process:
        return await trio.lowlevel.open_process(
            list(self.plan.argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            pass_fds=(self._lifeline,),
            process_group=0,
            env=os.environ | {"GEOLOG_PARENT_PIPE": str(self._lifeline)},
        )

    async def _read_ready_line(self, process: trio.Process) -> None:
        assert process.stdout is not None
        answer = b""
        while b"\n" not in answer and len(answer) < _ANSWER_BYTES_MAX:
            chunk = await process.stdout.receive_some()
            if not chunk:
                code = await process.wait()
                raise ServerFailedError(
                    f"{self.plan.name} ended with code {code} before it answered; the end of "
                    f"{self.plan.log}:\n{self.log_end()}"
                )
            answer += chunk
        self.ready = json.loads(answer.partition(b"\n")[0])
        assert self.ready.get("ready") is True, f"{self.plan.name} began with {answer!r}"

    async def _drain(self, process: trio.Process) -> None:
        """A server says no more on stdout; if it does, it must not block on it."""
        assert process.stdout is not None
        async for _ in process.stdout:
            pass

    def _signal_group(self, number: signal.Signals) -> bool:
        """Signal the process and what it started; False if it is gone."""
        if self._process is None:
            return False
        try:
            # The group may outlive its leader, while what the leader started lives.
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        return True


@attrs.frozen
class Lifeline:
    """A pipe whose end tells every server that their supervisor is gone, also by SIGKILL."""

    read_end: int
    write_end: int

    @classmethod
    def open(cls) -> "Lifeline":
        """Make the pipe. Only the read end is handed to servers."""
        return cls(*os.pipe())

    def close(self) -> None:
        """Cut it: each server that still runs ends."""
        os.close(self.read_end)
        os.close(self.write_end)
