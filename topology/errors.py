"""The one tree of errors. Its root is on the lowest floor, so that every floor can use it.

Each error says whose fault it is, whether retrying can help (`retriable`), and what became of
the request (`outcome`). `refused` is definite: nothing of the request is in the log, and
nothing will be. `unknown`: it may or may not be in the log. `duplicate`, for a record numbered
by its writer: the log has a record under that number, or had one that was trimmed since, and
nothing was appended now. Codes follow those of HTTP; the command maps them to its exit codes.

Rules: PROTOCOL S18.
"""

from typing import ClassVar, Literal, TypeVar

Outcome = Literal["refused", "unknown", "duplicate"]


class GeologError(Exception):
    """Root of every error that geolog raises on purpose."""

    code: ClassVar[int] = 500
    retriable: ClassVar[bool] = False
    outcome: Outcome = "refused"


PublicError = TypeVar("PublicError", bound=type[GeologError])


def public(error: PublicError) -> PublicError:
    """Name an error after the package that exports it, as tracebacks are to show it."""
    error.__module__ = "geolog"
    return error


public(GeologError)


def first_of(group: BaseExceptionGroup[GeologError]) -> GeologError:
    """The first error of a group: several tasks may meet one each."""
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    assert isinstance(first, GeologError)
    return first


@public
class InvalidArgumentError(GeologError):
    """The request is impossible: fix it and try again."""

    code: ClassVar[int] = 400


@public
class ClosedError(GeologError):
    """A log, writer or reader was used outside its block: open another one."""

    code: ClassVar[int] = 400


@public
class InvalidConfigError(InvalidArgumentError):
    """A setting is unknown, or its value impossible. The message suggests the nearest."""


@public
class DamagedBytesError(GeologError):
    """Bytes do not match their checksum, length or layout. Another copy may be intact."""

    code: ClassVar[int] = 500


@public
class NoSuchStreamError(GeologError):
    """No stream has this name (`geolog stream ls` lists those that exist)."""

    code: ClassVar[int] = 404


@public
class NotFoundError(GeologError):
    """Something other than a stream, named by the caller, does not exist."""

    code: ClassVar[int] = 404


@public
class NotPermittedError(GeologError):
    """The caller may not do this."""

    code: ClassVar[int] = 403


@public
class ConflictError(GeologError):
    """The state is not what the caller expected: read it again, then decide."""

    code: ClassVar[int] = 409


@public
class TrimmedError(GeologError):
    """The requested records were trimmed away."""

    code: ClassVar[int] = 410


@public
class FencedError(GeologError):
    """Another writer owns the log now. Stop: trying again here can only lose records."""

    code: ClassVar[int] = 412


class OwnedDirectlyError(FencedError):
    """A direct writer owns the partition, so no proxy takes it before that writer has left."""


@public
class TooLargeError(GeologError):
    """A record, batch, entry or frame exceeds its limit."""

    code: ClassVar[int] = 413


@public
class OverCapacityError(GeologError):
    """A bound on bytes or requests in flight was reached: wait and send again."""

    code: ClassVar[int] = 429
    retriable: ClassVar[bool] = True
    retry_after_s: float = 1.0
    """How long to wait before the next attempt."""


@public
class UnavailableError(GeologError):
    """A server or a quorum does not answer now. Trying again later can help."""

    code: ClassVar[int] = 503
    retriable: ClassVar[bool] = True


class HandedOverError(UnavailableError):
    """The owner is handing the partition over: send to its next owner."""


class RestingError(HandedOverError):
    """The owner has given the partition up, as nobody appended: the next append takes it."""


@public
class OutcomeUnknownError(GeologError):
    """No answer came in time, or it was lost: the request may have been carried out."""

    code: ClassVar[int] = 504
    retriable: ClassVar[bool] = True
    outcome: Outcome = "unknown"


@public
class NotEnoughNodesError(GeologError):
    """Too few nodes or regions are up for what the stream requires."""

    code: ClassVar[int] = 507
    retriable: ClassVar[bool] = True


@public
class RegionUnavailableError(GeologError):
    """Nothing that could do this is up in the one region where it must be done."""

    code: ClassVar[int] = 519
    retriable: ClassVar[bool] = True


@public
class SealedError(GeologError):
    """The stream is sealed: it can be read, but not appended to."""

    code: ClassVar[int] = 512


@public
class DataLostError(GeologError):
    """No replica can return an acknowledged record. This is an alarm."""

    code: ClassVar[int] = 500
