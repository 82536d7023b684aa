"""Descriptors of a data directory's files: however many files, few stay open unused.

Theory of operation. A file has one descriptor or none. It is lent while a call needs it, so
none is closed under a read, and opened again by the name of its file when it is needed and was
closed. Given back, it rests among the idle ones; over the bound the one that rests for longest
is closed. A file that is written, or about to be, keeps its descriptor: the kernel tells of a
write that failed only to descriptors that were open then.

When the process or the machine has no descriptor left, all idle ones are closed and the call is
tried once more. If that does not help either it is nobody's disk that failed:
TooManyOpenFilesError.

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
    """The descriptor of one file; got by `Descriptors.adopt`."""

    _open_again: Callable[[], int]
    number: int
    users_count: int = 0
    is_kept: bool = False
    """Whether it stays open while nobody uses it."""
    is_over: bool = False
    """Whether the file is closed for good."""


@attrs.frozen
class DescriptorStatistics:
    """How many files are open, and how often one was opened again."""

    open_count: int
    idle_count: int
    reopened_count: int


class Descriptors:
    """Those of one data directory.

    Invariants.
    1. A descriptor that is lent is not closed, and does not rest.
    2. At most `idle_max` rest, besides those that are lent or kept.
    """

    def __init__(self, idle_max: int) -> None:
        self._idle_max = idle_max
        self._idle: OrderedDict[Descriptor, None] = OrderedDict()
        self._open_count = self._reopened_count = 0
        # Collecting garbage may close a file in the middle of any of this, in the same thread.
        self._lock = threading.RLock()

    def statistics(self) -> DescriptorStatistics:
        """Counts of now."""
        return DescriptorStatistics(self._open_count, len(self._idle), self._reopened_count)

    def open(self, open_file: Callable[[], int]) -> int:
        """Call it, once more without the idle ones if there is no descriptor left."""
        try:
            return open_file()
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS:
                raise
        self.close_idle()
        return open_file()

    def adopt(self, number: int, open_again: Callable[[], int], *, is_kept: bool) -> Descriptor:
        """Look after a descriptor that was just opened."""
        adopted = Descriptor(open_again, number, is_kept=is_kept)
        with self._lock:
            self._open_count += 1
            self._rest(adopted)
        return adopted

    @contextmanager
    def lent(self, descriptor: Descriptor) -> Iterator[int]:
        """Use it while the block runs; it may have to be opened. OSError."""
        if not self.take_open(descriptor):
            if descriptor.is_over:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            self._take(descriptor, self.open(descriptor._open_again))  # noqa: SLF001
        try:
            yield descriptor.number
        finally:
            self.give_back(descriptor)

    def take_open(self, descriptor: Descriptor) -> bool:
        """Take it if it is open, until `give_back`; False if it is not."""
        with self._lock:
            if descriptor.number == _CLOSED:
                return False
            descriptor.users_count += 1
            self._idle.pop(descriptor, None)
            return True

    def give_back(self, descriptor: Descriptor) -> None:
        """Let it rest, if nobody else uses it."""
        with self._lock:
            descriptor.users_count -= 1
            self._rest(descriptor)

    def keep(self, descriptor: Descriptor) -> None:
        """Leave it open from now on, if it is."""
        with self._lock:
            descriptor.is_kept = True
            self._idle.pop(descriptor, None)

    def let_rest(self, descriptor: Descriptor) -> None:
        """Close it when others are needed more."""
        with self._lock:
            descriptor.is_kept = False
            self._rest(descriptor)

    def close(self, descriptor: Descriptor) -> None:
        """Close it for good, at once or when its last user gives it back."""
        with self._lock:
            descriptor.is_over = True
            self._idle.pop(descriptor, None)
            self._rest(descriptor)

    def close_idle(self) -> None:
        """Close all that nobody uses."""
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
        assert not descriptor.users_count, "a descriptor is closed under its reader"
        number, descriptor.number = descriptor.number, _CLOSED
        self._open_count -= 1
        os.close(number)
