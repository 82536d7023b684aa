"""Errors that only callers outside of trio can get."""

from topology.errors import ClosedError, GeologError


class ForkedError(ClosedError):
    """Opened before this process was forked, by its parent: connect again in this process."""


class CancelledCallError(ClosedError):
    """The caller cancelled the call before it finished."""


class FailedBlockError(GeologError):
    """An error ended the block of a log, writer or reader: nothing is flushed."""
