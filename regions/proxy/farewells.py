"""The last words to a client: why its session, or its whole request, ends."""

from geolog.wire.session.codes import Code
from geolog.wire.session.messages import ErrorAnswer

BUG = ErrorAnswer(
    id=None,
    code=Code.INTERNAL,
    error="the proxy met a bug of its own: its log has the details",
    outcome="unknown",
    retriable=False,
)
"""Tells a client of a bug: appends without an answer may be in the log."""
