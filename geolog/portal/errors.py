"""Errors of those who use the log from outside of trio."""

from typing import ClassVar

from topology.errors import GeologError


class ClosedError(GeologError):
    """A log, writer or reader was used outside of its block: open another one."""

    code: ClassVar[int] = 400


class ForkedError(ClosedError):
    """It was opened before this process was forked, and is the parent's: connect again."""


class CancelledCallError(ClosedError):
    """Whoever had asked for it gave up, and so it was not carried out to its end."""


class FailedBlockError(GeologError):
    """The block of a log, writer or reader was left by an error: nothing is flushed."""
