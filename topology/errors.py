"""The one tree of errors. Its root stands on the lowest floor, so that every floor can use it.

Each error says whose fault it is, whether trying again can help (`retriable`), and what became
of the request (`outcome`): `refused` is definite, nothing of it is in the log and nothing will
be; `unknown` means that it may or may not be; `duplicate`, of a record that its writer
numbered, that the log has a record under that number, or had one that was trimmed since, and
that nothing was appended now. Codes are chosen after
those of HTTP; the command maps them to its exit codes.

Rules: PROTOCOL S18.
"""

from typing import ClassVar, Literal

Outcome = Literal["refused", "unknown", "duplicate"]


class GeologError(Exception):
    """Root of every error that geolog raises on purpose."""

    code: ClassVar[int] = 500
    retriable: ClassVar[bool] = False
    outcome: Outcome = "refused"


class InvalidArgumentError(GeologError):
    """The caller asked for something that cannot be: mend the request and ask again."""

    code: ClassVar[int] = 400


class ClosedError(GeologError):
    """A log, writer or reader was used outside of its block: open another one."""

    code: ClassVar[int] = 400


class InvalidConfigError(InvalidArgumentError):
    """A setting is unknown, or its value impossible. The message names the nearest."""


class DamagedBytesError(GeologError):
    """Bytes do not match their checksum, length or layout. Another copy may be intact."""

    code: ClassVar[int] = 500


class NoSuchStreamError(GeologError):
    """No stream has this name (`geolog stream ls` lists those that exist)."""

    code: ClassVar[int] = 404


class NotFoundError(GeologError):
    """Something other than a stream, named by the caller, does not exist."""

    code: ClassVar[int] = 404


class NotPermittedError(GeologError):
    """The caller may not do this."""

    code: ClassVar[int] = 403


class ConflictError(GeologError):
    """The state is not what the caller said it was: read it again, then decide."""

    code: ClassVar[int] = 409


class TrimmedError(GeologError):
    """The records asked for were trimmed away."""

    code: ClassVar[int] = 410


class FencedError(GeologError):
    """Another writer owns the log now. Stop: trying again here can only lose records."""

    code: ClassVar[int] = 412


class TooLargeError(GeologError):
    """A record, batch, entry or frame is over its limit."""

    code: ClassVar[int] = 413


class OverCapacityError(GeologError):
    """A bound on bytes or requests in flight was reached: wait and send again."""

    code: ClassVar[int] = 429
    retriable: ClassVar[bool] = True


class UnavailableError(GeologError):
    """A server or a quorum does not answer now. Trying again later can help."""

    code: ClassVar[int] = 503
    retriable: ClassVar[bool] = True


class OutcomeUnknownError(GeologError):
    """No answer came in time, or it was lost: the request may have been carried out."""

    code: ClassVar[int] = 504
    retriable: ClassVar[bool] = True
    outcome: Outcome = "unknown"


class NotEnoughNodesError(GeologError):
    """Too few nodes or regions are up for what the stream asks for."""

    code: ClassVar[int] = 507
    retriable: ClassVar[bool] = True


class SealedError(GeologError):
    """The stream is sealed: what it holds can be read, and nothing is appended any more."""

    code: ClassVar[int] = 512


class DataLostError(GeologError):
    """A record that was acknowledged can be read from no replica. This is an alarm."""

    code: ClassVar[int] = 500
