"""Codes of a write proxy's errors, and the WebSocket close codes made of them.

The numbers are those of HTTP where it has one; `GeologError.code` uses the same.
"""

import enum

CLOSE_NORMAL = 1000
CLOSE_TOO_LARGE = 1009
"""A message is over the limit: the WebSocket closes by itself."""
CLOSE_RESTART = 1012
"""The proxy drains: connect to another one."""


class Code(enum.IntEnum):
    """Why a request was not carried out."""

    MOVED = 302
    BAD_MESSAGE = 400
    UNAUTHORIZED = 401
    FORBIDDEN = 403
    NOT_FOUND = 404
    CONFLICT = 409
    TRIMMED = 410
    FENCED = 412
    TOO_LARGE = 413
    OVER_CAPACITY = 429
    INTERNAL = 500
    UNAVAILABLE = 503
    TIMED_OUT = 504
    NOT_ENOUGH_NODES = 507
    SEALED = 512
    OVER_QUOTA = 517
    REGION_UNAVAILABLE = 519


def close_code(code: int) -> int:
    """The close code of a session that ends with this error."""
    return 4000 + code
