"""Exit codes of the command, and the errors they stand for."""

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
    """The cluster is unhealthy, or a drill, verification, simulation or check failed."""
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
    """The command ran, and what it checked is not as it should be."""


def exit_of(error: GeologError) -> Exit:
    """Exit code that tells a script the kind of error."""
    if isinstance(error, CheckFailedError):
        return Exit.FAILED
    return _EXIT_OF_CODE.get(error.code, Exit.ERROR)
