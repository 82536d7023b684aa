"""Descriptors of a data directory's files: however many files, few stay open unused.

Theory of operation. A file has one descriptor or none. A call borrows it for as long as needed,
so no descriptor is closed under a read; a closed one is reopened by file name when needed. A
returned descriptor becomes idle; above the bound the one idle longest is closed. A file that is
being written, or about to be, keeps its descriptor: the kernel reports a failed write only to
descriptors that were open at the time.

When the process or the machine has no descriptor left, all idle ones are closed and the call is
retried once. If that fails too, the disk is not to blame: TooManyOpenFilesError.

Calls come from the event loop, the journal thread and the reading threads.

Rules: PROTOCOL J20.
"""

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)

_CLOSED = -1


@attrs.define(eq=False)
class Descriptor:
    """The descriptor of one file; returned by `Descriptors.adopt`."""

    _open_again: Callable[[], int]
    number: int
    users_count: int = 0
    is_kept: bool = False
    """Whether it stays open while unused."""
    is_over: bool = False
    """Whether the file is closed for good."""


@attrs.frozen
class DescriptorStatistics:
    """How many files are open, and how many were reopened."""

    open_count: int
    idle_count: int
    reopened_count: int


class Descriptors:
    """The descriptors of one data directory.

    Invariants.
    1. A borrowed descriptor is neither closed nor idle.
    2. At most `idle_max` are idle, not counting those borrowed or kept.
    """

    def __init__(self, idle_max: int) -> None:
        self._idle_max = idle_max
        self._idle: OrderedDict[Descriptor, None] = OrderedDict()
        self._open_count = self._reopened_count = 0
        # The garbage collector may close a file in the middle of any of this, in this thread.
        self._lock = threading.RLock()

    def statistics(self) -> DescriptorStatistics:
        """Current counts."""
        return DescriptorStatistics(self._open_count, len(self._idle), self._reopened_count)

    def open(self, open_file: Callable[[], int]) -> int:
        """Call it; if no descriptor is left, close the idle ones and call it once again."""
        try:
            return open_file()
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS:
                raise
        self.close_idle()
        return open_file()

    def adopt(self, number: int, open_again: Callable[[], int], *, is_kept: bool) -> Descriptor:
        """Take charge of a newly opened descriptor."""
        adopted = Descriptor(open_again, number, is_kept=is_kept)
        with self._lock:
            self._open_count += 1
            self._rest(adopted)
        return adopted

    @contextmanager
    def lent(self, descriptor: Descriptor) -> Iterator[int]:
        """Borrow it while the block runs; this may have to reopen it. OSError."""
        if not self.take_open(descriptor):
            if descriptor.is_over:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            self._take(descriptor, self.open(descriptor._open_again))  # noqa: SLF001
        try:
            yield descriptor.number
        finally:
            self.give_back(descriptor)

    def take_open(self, descriptor: Descriptor) -> bool:
        """Borrow it until `give_back` if it is open; False if it is not."""
        with self._lock:
            if descriptor.number == _CLOSED:
                return False
            descriptor.users_count += 1
            self._idle.pop(descriptor, None)
            return True

    def give_back(self, descriptor: Descriptor) -> None:
        """Return it; it becomes idle if nobody else uses it."""
        with self._lock:
            descriptor.users_count -= 1
            self._rest(descriptor)

    def keep(self, descriptor: Descriptor) -> None:
        """Keep it open from here on, if it is open."""
        with self._lock:
            descriptor.is_kept = True
            self._idle.pop(descriptor, None)

    def let_rest(self, descriptor: Descriptor) -> None:
        """Allow it to be closed when other files need descriptors more."""
        with self._lock:
            descriptor.is_kept = False
            self._rest(descriptor)

    def close(self, descriptor: Descriptor) -> None:
        """Close it for good, at once or when its last user returns it."""
        with self._lock:
            descriptor.is_over = True
            self._idle.pop(descriptor, None)
            self._rest(descriptor)

    def close_idle(self) -> None:
        """Close all that are unused."""
        with self._lock:
            while self._idle:
                self._close_now(self._idle.popitem(last=False)[0])

    def _take(self, descriptor: Descriptor, opened: int) -> None:
        with self._lock:
            descriptor.users_count += 1
            self._idle.pop(descriptor, None)
            if descriptor.number != _CLOSED:
                os.close(opened)  # Another reader was faster, and may be done with it.
                return
            descriptor.number = opened
            self._open_count += 1
            self._reopened_count += 1

    def _rest(self, descriptor: Descriptor) -> None:
        if descriptor.users_count or descriptor.number == _CLOSED:
            return
        if descriptor.is_over:
            self._close_now(descriptor)
        elif not descriptor.is_kept:
            self._idle[descriptor] = None
            self._idle.move_to_end(descriptor)
            while len(self._idle) > self._idle_max:
                self._close_now(self._idle.popitem(last=False)[0])

    def _close_now(self, descriptor: Descriptor) -> None:
        assert not descriptor.users_count, "a descriptor in use must not be closed"
        number, descriptor.number = descriptor.number, _CLOSED
        self._open_count -= 1
        os.close(number)
