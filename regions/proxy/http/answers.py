"""Answers of the HTTP port: JSON, with the codes of a session and a status that fits each.

Codes that HTTP has not are told as the status that makes a client do the right thing: another
proxy's partition is 307, which keeps method and body, and not 302, which may change both.
"""

import json
import math
from collections.abc import Mapping
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from geolog.wire.session.codes import Code
from geolog.wire.session.documents import Document, document_of
from geolog.wire.session.messages import ErrorAnswer
from regions.proxy.held_partitions import MovedError
from regions.proxy.session_host import failure_of
from topology.errors import GeologError

NDJSON = "application/x-ndjson"

_STATUS: Mapping[int, int] = {
    Code.MOVED: HTTPStatus.TEMPORARY_REDIRECT,
    Code.SEALED: HTTPStatus.CONFLICT,
    Code.OVER_QUOTA: HTTPStatus.INSUFFICIENT_STORAGE,
    Code.REGION_UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
}


def status_of(code: int) -> int:
    """The status that goes with a session's code."""
    return _STATUS.get(code, code)


def json_answer(
    document: Document, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """One JSON document, with a line end for people at a terminal."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return Response(
        f"{text}\n", status_code=status, headers=headers, media_type="application/json"
    )


def retry_after(after_s: float) -> str:
    """The header's value: whole seconds, so rounded up."""
    return str(math.ceil(after_s))


def error_answer(error: ErrorAnswer) -> Response:
    """The answer to a request that failed as a whole."""
    headers = {}
    if error.location is not None:
        headers["location"] = error.location
    if error.retry_after_s is not None:
        headers["retry-after"] = retry_after(error.retry_after_s)
    return json_answer(document_of(error), status=status_of(error.code), headers=headers)


def plain_answer(status: int, error: str, *, code: int | None = None) -> Response:
    """The answer to a request that is not carried out, whatever state the proxy is in."""
    return error_answer(
        ErrorAnswer(
            id=None,
            code=status if code is None else code,
            error=error,
            outcome="refused",
            retriable=False,
        )
    )


def failure_answer(error: GeologError, request: Request) -> Response:
    """The answer to a request that met this error before it was carried out at all."""
    location = None
    if isinstance(error, MovedError) and error.http is not None:
        location = f"http://{error.http}{target_of(request)}"
    return error_answer(failure_of(error, None, location=location))


def client_in(request: Request) -> str:
    """The client that sent the request."""
    return request.client.host if request.client is not None else ""


def target_of(request: Request) -> str:
    """The request's path and query, as they were sent."""
    raw_path: bytes = request.scope["raw_path"]
    query: bytes = request.scope["query_string"]
    target = raw_path + b"?" + query if query else raw_path
    return target.decode("latin-1")
