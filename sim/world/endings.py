"""How processes end: whether an error is expected, and how the trace shows it."""

import traceback
from pathlib import Path

from regions.storage.disk import DiskFailedError, DiskFullError
from topology.errors import GeologError

ENDINGS = frozenset(
    {
        "ambush-member",
        "kill-client",
        "kill-node",
        "power-loss-all",
        "power-loss-node",
        "power-loss-region",
    }
)
"""Faults that end processes and do nothing else."""

_ENDINGS = (DiskFailedError, DiskFullError)
"""Errors that may end a node, besides those that a retry can fix."""


def is_foreseen(error: BaseException) -> bool:
    """Whether a process may end with this error and be restarted."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_foreseen(part) for part in error.exceptions)
    return isinstance(error, GeologError) and (error.retriable or isinstance(error, _ENDINGS))


def words_of(error: BaseException | None) -> str:
    """The error, in one line of the trace."""
    if error is None:
        return "done"
    if isinstance(error, BaseExceptionGroup):
        return " + ".join(words_of(part) for part in error.exceptions)
    return f"{type(error).__name__}: {error}"


def words_of_crash(error: BaseException) -> str:
    """The error, and where in the code it was raised."""
    if isinstance(error, BaseExceptionGroup):
        return " + ".join(words_of_crash(part) for part in error.exceptions)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {frames[-1].name} ({Path(frames[-1].filename).name})" if frames else ""
    return f"{error!r}{where}"
