"""What the command's exit codes mean, and which error gets which."""

import enum

from topology.errors import GeologError


class Exit(enum.IntEnum):
    """Exit codes of `geolog`."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    NOT_PERMITTED = 4
    UNAVAILABLE = 5
    """A server did not answer, or not in time."""
    FAILED = 10
    """Unhealthy; or a drill, verification, simulation or check did not pass."""
    INTERRUPTED = 130


_EXIT_OF_CODE = {
    400: Exit.USAGE,
    401: Exit.NOT_PERMITTED,
    403: Exit.NOT_PERMITTED,
    404: Exit.NOT_FOUND,
    429: Exit.UNAVAILABLE,
    503: Exit.UNAVAILABLE,
    504: Exit.UNAVAILABLE,
    507: Exit.UNAVAILABLE,
    519: Exit.UNAVAILABLE,
}


class CheckFailedError(GeologError):
    """The command did its work, and what it looked at is not as it should be."""


def exit_of(error: GeologError) -> Exit:
    """The exit code that tells a script what kind of error this was."""
    if isinstance(error, CheckFailedError):
        return Exit.FAILED
    return _EXIT_OF_CODE.get(error.code, Exit.ERROR)
