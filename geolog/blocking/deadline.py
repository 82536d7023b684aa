"""`fail_after`: a deadline for all calls of a block."""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from topology.errors import InvalidArgumentError


class _Deadline(threading.local):
    """The deadline of each thread, on the monotonic clock."""

    at_s: float = math.inf


_DEADLINE = _Deadline()


def _now_s() -> float:
    return time.monotonic()  # noqa: TID251 - synchronous programs have no other clock.


@contextmanager
def fail_after(seconds: float) -> Iterator[None]:
    """Bound the total time that this thread's calls may wait in the block. TimeoutError.

    A call that runs out of time is cancelled before it raises. Blocks nest: the earliest
    deadline counts.
    """
    if not seconds >= 0:  # Refuses NaN, too.
        raise InvalidArgumentError(f"fail_after({seconds}): seconds must be >= 0")
    before_s = _DEADLINE.at_s
    _DEADLINE.at_s = min(before_s, _now_s() + seconds)
    try:
        yield
    finally:
        _DEADLINE.at_s = before_s


def remaining_s() -> float | None:
    """How long a call may still wait; None without a deadline."""
    if _DEADLINE.at_s == math.inf:
        return None
    return min(max(0.0, _DEADLINE.at_s - _now_s()), threading.TIMEOUT_MAX)
