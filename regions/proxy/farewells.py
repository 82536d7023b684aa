"""The last words to a client: why its session, or its whole request, ends."""

from geolog.wire.session.codes import Code
from geolog.wire.session.messages import ErrorAnswer
from topology.errors import GeologError

BUG = ErrorAnswer(
    id=None,
    code=Code.INTERNAL,
    error="the proxy met a bug of its own: its log has the details",
    outcome="unknown",
    retriable=False,
)
"""Tells a client of a bug: appends without an answer may be in the log."""


def first_of(group: BaseExceptionGroup[GeologError]) -> GeologError:
    """The first error of a group: several tasks of a session may meet one each."""
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    assert isinstance(first, GeologError)
    return first
