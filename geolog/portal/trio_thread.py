"""The one thread in which trio runs for programs that do not.

It is started when something is first opened, and shared by all threads and event loops of the
process. It ends when the interpreter does: what is still open then is closed as by an error,
and nothing is flushed. A fork leaves the thread with the parent: the child gets one of its own
when it connects, and a ForkedError from all that it inherited.
"""

import atexit
import os
import threading
from collections.abc import Awaitable, Callable

import attrs
import trio

from geolog.portal.errors import ForkedError
from topology.errors import ClosedError, UnavailableError

_END_S_MAX = 10.0
"""How long the end of the process waits for the thread: a server that hangs is left alone."""

_FORKED = "it was opened before this process was forked: open another one here"


@attrs.define(eq=False)
class Tasks:
    """A nursery of the trio thread, as other threads see it.

    All but `is_over` is used in the trio thread only.
    """

    nursery: trio.Nursery
    is_over: bool = False

    def start(self, run: Callable[[], Awaitable[None]], name: str) -> bool:
        """Start a task, unless the nursery's block is over."""
        if self.is_over:
            return False
        self.nursery.start_soon(run, name=name)
        return True


class TrioThread:
    """A thread that runs trio; `shared_thread` gives the one of this process."""

    def __init__(self) -> None:
        self.is_forked = False
        self._is_started = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="geolog trio", daemon=True)
        self._token: trio.lowlevel.TrioToken | None = None
        self._root_task: trio.lowlevel.Task | None = None
        self._ending: trio.Event | None = None
        self._tasks: Tasks | None = None

    def __repr__(self) -> str:
        return f"<TrioThread {'runs' if self.is_running else 'does not run'}>"

    @property
    def is_running(self) -> bool:
        """Whether it takes calls."""
        return not self.is_forked and self._token is not None and self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in it."""
        return threading.get_ident() == self._thread.ident

    @property
    def tasks(self) -> Tasks:
        """Where tasks live that belong to no block."""
        assert self._tasks is not None, "the thread was started"
        return self._tasks

    def start(self) -> None:
        """Start it, and wait until it takes calls. UnavailableError."""
        self._thread.start()
        self._is_started.wait()
        if self._token is None:
            raise UnavailableError(
                f"trio cannot run in a thread of this process: {self._failure}"
            ) from self._failure

    def end(self) -> None:
        """End everything that runs in it, then the thread."""
        if self._ending is not None:
            try:
                self.post(self._ending.set)
            except ClosedError:
                return  # It has ended by itself.
            self._thread.join(_END_S_MAX)

    def post(self, function: Callable[[], object]) -> None:
        """Have a function run in the thread, soon. ClosedError."""
        self.check_usable()
        assert self._token is not None, "the thread was started"
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            raise ClosedError("geolog's thread has ended, as the process does") from None

    def check_usable(self) -> None:
        """Raise ForkedError in a child. Asked before a lock is taken: it may be held there."""
        if self.is_forked:
            raise ForkedError(_FORKED)

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        except BaseException as error:
            self._failure = error
            if self._is_started.is_set():
                raise  # A defect: threading prints it.
        finally:
            self._is_started.set()

    async def _serve(self) -> None:
        # Held for the child of a fork: what hangs on the task must not be collected there, as
        # it would tidy up after itself, on connections that the parent uses.
        self._root_task = trio.lowlevel.current_task()
        self._ending = trio.Event()
        async with trio.open_nursery() as nursery:
            self._tasks = Tasks(nursery)
            self._token = trio.lowlevel.current_trio_token()
            self._is_started.set()
            await self._ending.wait()
            nursery.cancel_scope.cancel(reason="the process ends")
        self._tasks.is_over = True


@attrs.define(eq=False)
class _Process:
    """What there is once per process."""

    lock: threading.Lock = attrs.field(factory=threading.Lock)
    thread: TrioThread | None = None
    of_parents: list[TrioThread] = attrs.field(factory=list)

    def shared_thread(self) -> TrioThread:
        with self.lock:
            if self.thread is None or not self.thread.is_running:
                thread = TrioThread()
                thread.start()
                self.thread = thread
            return self.thread

    def end(self) -> None:
        if self.thread is not None:
            self.thread.end()

    def after_fork_in_child(self) -> None:
        self.lock = threading.Lock()
        thread, self.thread = self.thread, None
        if thread is not None:
            thread.is_forked = True
            self.of_parents.append(thread)


_PROCESS = _Process()
atexit.register(_PROCESS.end)
os.register_at_fork(after_in_child=_PROCESS.after_fork_in_child)


def shared_thread() -> TrioThread:
    """The process's own, started if it does not run yet. UnavailableError."""
    return _PROCESS.shared_thread()
