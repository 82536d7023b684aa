"""The one thread that runs trio for programs that do not run trio themselves.

It starts when something is first opened, and all threads and event loops of the process share
it. It ends with the interpreter: whatever is still open then is closed as after an error, and
nothing is flushed. After a fork the thread stays with the parent. The child gets its own when
it connects, and a ForkedError from every object that it inherited.
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
"""How long an exiting process waits for the thread, so a hanging server cannot block it."""

_FORKED = "opened before this process was forked: connect again in this process"


@attrs.define(eq=False)
class Tasks:
    """A nursery of the trio thread.

    Other threads may use only `is_over`.
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
        return f"<TrioThread {'running' if self.is_running else 'not running'}>"

    @property
    def is_running(self) -> bool:
        """Whether the thread takes calls."""
        return not self.is_forked and self._token is not None and self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.get_ident() == self._thread.ident

    @property
    def tasks(self) -> Tasks:
        """The tasks that belong to no block."""
        assert self._tasks is not None, "the thread was started"
        return self._tasks

    def start(self) -> None:
        """Start the thread and wait until it takes calls. UnavailableError."""
        self._thread.start()
        self._is_started.wait()
        if self._token is None:
            raise UnavailableError(
                f"trio cannot run in a thread of this process: {self._failure}"
            ) from self._failure

    def end(self) -> None:
        """Cancel everything that runs in the thread, then end it."""
        if self._ending is not None:
            try:
                self.post(self._ending.set)
            except ClosedError:
                return  # It has ended already.
            self._thread.join(_END_S_MAX)

    def post(self, function: Callable[[], object]) -> None:
        """Run a function in the thread soon. ClosedError if the thread has ended."""
        self.check_usable()
        assert self._token is not None, "the thread was started"
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            raise ClosedError(
                "geolog's thread has ended because the process is exiting"
            ) from None

    def check_usable(self) -> None:
        """Raise ForkedError in a forked child, where an inherited lock may never open."""
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
        # Keep the task alive in a forked child: collecting it there would run clean-up code on
        # connections that the parent still uses.
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
    """State that exists once per process."""

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
    """The trio thread of this process, started if necessary. UnavailableError."""
    return _PROCESS.shared_thread()
