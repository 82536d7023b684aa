"""Errors as they travel between a proxy and a client, and back to the same kind of error.

The code names the kind; for kinds of one code that a writer tells apart, `kind` does.
"""

from geolog.wire.session.channel_messages import ToldError
from topology.errors import (
    ConflictError,
    DamagedBytesError,
    FencedError,
    GeologError,
    InvalidArgumentError,
    NoSuchStreamError,
    NotEnoughNodesError,
    NotPermittedError,
    OutcomeUnknownError,
    OverCapacityError,
    RegionUnavailableError,
    SealedError,
    TooLargeError,
    TrimmedError,
    UnavailableError,
)

_OF_CODES: dict[int, type[GeologError]] = {
    one.code: one
    for one in (
        ConflictError,
        DamagedBytesError,
        FencedError,
        InvalidArgumentError,
        NoSuchStreamError,
        NotEnoughNodesError,
        NotPermittedError,
        OutcomeUnknownError,
        OverCapacityError,
        RegionUnavailableError,
        SealedError,
        TooLargeError,
        TrimmedError,
        UnavailableError,
    )
}


def told(error: GeologError) -> ToldError:
    """The error as it travels."""
    return ToldError(
        code=error.code,
        error=str(error),
        outcome=error.outcome,
        kind=type(error).__name__,
        retry_after_s=error.retry_after_s if isinstance(error, OverCapacityError) else None,
    )


def error_of(one: ToldError, kinds: dict[str, type[GeologError]] | None = None) -> GeologError:
    """The error that was told; `kinds` adds classes that the codes do not tell."""
    class_ = (kinds or {}).get(one.kind) or _OF_CODES.get(one.code, GeologError)
    error = class_(one.error)
    error.outcome = one.outcome
    if isinstance(error, OverCapacityError) and one.retry_after_s is not None:
        error.retry_after_s = one.retry_after_s
    return error
