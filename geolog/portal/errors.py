"""Errors of those who use the log from outside of trio."""

from topology.errors import ClosedError, GeologError


class ForkedError(ClosedError):
    """It was opened before this process was forked, and is the parent's: connect again."""


class CancelledCallError(ClosedError):
    """Whoever had asked for it gave up, and so it was not carried out to its end."""


class FailedBlockError(GeologError):
    """The block of a log, writer or reader was left by an error: nothing is flushed."""
