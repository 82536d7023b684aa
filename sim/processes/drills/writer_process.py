"""Runs a writer as a separate process, `geolog append`, and records each of its answers.

Every answer that the process printed counts as acknowledged. This includes answers still in the
pipe when the process was killed, because a reader of the pipe would have seen them.
"""

import json
import math
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable

import attrs
import trio

from geolog.protocol.ids import DLSN
from sim.processes.cluster.plan import ClusterPlan

UNANSWERED_MAX = 2000
"""Maximum lines fed ahead of their answers."""

_FED_COUNT = 50
"""Lines fed at once."""


@attrs.frozen
class Acknowledged:
    """One record whose append was answered OK."""

    value: bytes
    dlsn: DLSN
    sequence: int
    home_epoch: int = 1


class WriterProcess:
    """Feeds lines to a `geolog append` process and collects its answers."""

    def __init__(
        self,
        plan: ClusterPlan,
        stream: str,
        make_value: Callable[[], bytes],
        *,
        records_s_max: float = math.inf,
    ) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.returncode: int | None = None
        self.stderr = b""
        self._argv = [sys.executable, "-P", "-m", "geolog", "append", stream]
        self._argv += ["-o", "jsonl", "--zookeeper", plan.zookeeper]
        self._argv += ["--cluster", plan.cluster, "--timeout", "60s"]
        self._make_value = make_value
        self._records_s_max = records_s_max
        self._unanswered: deque[bytes] = deque()
        self._process: trio.Process | None = None
        self._changed = trio.Event()
        self._has_enough = False

    def __repr__(self) -> str:
        return f"<WriterProcess acknowledged={len(self.acknowledged)} {self.returncode}>"

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run the process until it ends or is killed."""
        self._process = await trio.lowlevel.open_process(
            self._argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        task_status.started()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._feed, self._process)
                nursery.start_soon(self._read_errors, self._process)
                await self._read_answers(self._process)
                self.returncode = await self._process.wait()
                nursery.cancel_scope.cancel(reason="the writer has ended")
        finally:
            self._process.kill()
            with trio.CancelScope(shield=True):
                self.returncode = await self._process.wait()
            self._note_change()

    def send_signal(self, number: signal.Signals) -> None:
        """Send SIGKILL, SIGSTOP or SIGCONT."""
        assert self._process is not None
        self._process.send_signal(number)

    async def finish(self) -> None:
        """Feed no more lines, and wait until all have been answered and the process ended."""
        self._has_enough = True
        await self.wait_ended()

    async def wait_acknowledged(self, count: int) -> None:
        """Wait until `count` records are acknowledged or the process has ended."""
        while len(self.acknowledged) < count and self.returncode is None:
            await self._changed.wait()

    async def wait_ended(self) -> None:
        """Wait until the process has ended and all its answers are collected."""
        while self.returncode is None:
            await self._changed.wait()

    async def _feed(self, process: trio.Process) -> None:
        assert process.stdin is not None
        try:
            while not self._has_enough:
                while len(self._unanswered) >= UNANSWERED_MAX:
                    await self._changed.wait()
                values = [self._make_value() for _ in range(_FED_COUNT)]
                self._unanswered.extend(values)
                await process.stdin.send_all(b"".join(value + b"\n" for value in values))
                await trio.sleep(_FED_COUNT / self._records_s_max)
            await process.stdin.aclose()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # The process has ended; its answers are recorded.

    async def _read_answers(self, process: trio.Process) -> None:
        assert process.stdout is not None
        rest = b""
        async for chunk in process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                answer = json.loads(line)
                self.acknowledged.append(
                    Acknowledged(
                        self._unanswered.popleft(),
                        DLSN.parse(answer["dlsn"]),
                        answer["sequence"],
                    )
                )
            self._note_change()

    async def _read_errors(self, process: trio.Process) -> None:
        assert process.stderr is not None
        async for chunk in process.stderr:
            self.stderr += chunk

    def _note_change(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()
