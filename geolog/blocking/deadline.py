"""How long the calls of a block may wait, all together."""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from topology.errors import InvalidArgumentError


class _Deadline(threading.local):
    """Each thread's own, by the monotonic clock."""

    at_s: float = math.inf


_DEADLINE = _Deadline()


def _now_s() -> float:
    return time.monotonic()  # noqa: TID251 - plain programs have no other clock.


@contextmanager
def fail_after(seconds: float) -> Iterator[None]:
    """Bound how long this thread's calls may wait in the block, in all. TimeoutError.

    A call that runs out of time is cancelled first. Blocks nest: the earliest deadline counts.
    """
    if not seconds >= 0:  # So that NaN is refused as well.
        raise InvalidArgumentError(f"fail_after({seconds}): it is a time from 0 on")
    before_s = _DEADLINE.at_s
    _DEADLINE.at_s = min(before_s, _now_s() + seconds)
    try:
        yield
    finally:
        _DEADLINE.at_s = before_s


def remaining_s() -> float | None:
    """How long a call may wait now; None without a deadline."""
    if _DEADLINE.at_s == math.inf:
        return None
    return min(max(0.0, _DEADLINE.at_s - _now_s()), threading.TIMEOUT_MAX)
