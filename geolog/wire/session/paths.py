"""Paths of a write proxy's endpoint: `/v1/streams/NAMESPACE/NAME/append` and `…/read`."""

import re
from collections.abc import Mapping
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

import attrs

from geolog.protocol.stream_pattern import StreamPattern, is_pattern
from geolog.protocol.stream_state import StreamName
from geolog.wire.limits import INT64_MAX
from topology.errors import InvalidArgumentError
from topology.nearest import suggestion

_STREAM_PATH = re.compile(r"/v1/streams/([^/]+)/([^/]+)/(append|read)")
_OWNER_PATH = re.compile(r"/v1/owner/([^/]+)/([^/]+)")
_NUMBER = re.compile(r"[0-9]{1,19}")

_AVOIDED_MAX = 16

APPEND_QUERY = frozenset({"partition", "writer", "redirect", "avoid"})
"""Parameters of an append path."""
CURSOR_QUERY = frozenset({"cursor", "shared", "take"})
"""Parameters of a read path that are for a cursor."""
READ_QUERY = CURSOR_QUERY | {"partition", "from", "to", "count", "follow", "credit"}
"""Parameters of a read path."""

OWNER_QUERY = frozenset({"partition"})
"""Parameters of a question for owners."""

_FORMS = "/v1/streams/NAMESPACE/NAME/append, /v1/streams/NAMESPACE/NAME/read and /v1/session"


class UnknownPathError(InvalidArgumentError):
    """The path is none of the endpoint's."""


@attrs.frozen(kw_only=True)
class AppendPath:
    """An append session: of one partition, or of a whole stream."""

    stream: StreamName
    partition: int | None = None
    writer: str | None = None
    redirect: Literal["follow", "forward"] = "follow"
    """Whether a client goes to the partition's owner itself, or the proxy forwards to it."""
    avoid: tuple[str, ...] = ()
    """Addresses of proxies that the client could not use just now."""

    def text(self) -> str:
        """The path and query that `parse_path` accepts."""
        given = {
            "partition": self.partition,
            "writer": self.writer,
            "redirect": None if self.redirect == "follow" else self.redirect,
            "avoid": ",".join(self.avoid) or None,
        }
        query = urlencode({name: one for name, one in given.items() if one is not None})
        path = f"/v1/streams/{self.stream.namespace}/{self.stream.name}/append"
        return f"{path}?{query}" if query else path


@attrs.frozen(kw_only=True)
class ReadPath:
    """A read session: a range of one partition, of a stream, or of all streams of a pattern."""

    stream: StreamName | StreamPattern
    partition: int | None = None
    start: str = "earliest"
    stop: str | None = None
    count: int | None = None
    is_following: bool = False
    credit: int | None = None
    """Records that the client takes before it sends a credit; None for no limit."""
    cursor: str | None = None
    is_shared: bool = False
    """Whether the cursor is shared with other readers."""
    is_taking: bool = False
    """Whether to take the cursor from a reader that has it."""

    def text(self) -> str:
        """The path and query that `parse_path` accepts."""
        given = {
            "partition": self.partition,
            "from": self.start,
            "to": self.stop,
            "count": self.count,
            "follow": "1" if self.is_following else None,
            "credit": self.credit,
            "cursor": self.cursor,
            "shared": "1" if self.is_shared else None,
            "take": "1" if self.is_taking else None,
        }
        query = urlencode({name: one for name, one in given.items() if one is not None})
        return f"/v1/streams/{self.stream.namespace}/{self.stream.name}/read?{query}"


@attrs.frozen
class SessionPath:
    """A session of geolog's own clients, for any number of streams."""


@attrs.frozen
class OwnerPath:
    """A question for the owners of a stream's partitions, or of one. Over HTTP only."""

    stream: StreamName
    partition: int | None


SESSION_PATH = "/v1/session"


def parse_path(target: str) -> AppendPath | ReadPath | SessionPath:
    """Parse a request's target. UnknownPathError, InvalidArgumentError."""
    parts = _split(target)
    if parts.path == SESSION_PATH:
        _query(parts.query, frozenset())
        return SessionPath()
    found = _STREAM_PATH.fullmatch(parts.path)
    if found is None:
        raise UnknownPathError(f"no such path: {parts.path[:200]!r}; the paths are {_FORMS}")
    is_append = found[3] == "append"
    query = _query(parts.query, APPEND_QUERY if is_append else READ_QUERY)
    partition = _number(query, "partition")
    if is_append:
        return AppendPath(
            stream=_stream_of(found),
            partition=partition,
            writer=query.get("writer"),
            redirect=_redirect(query),
            avoid=_avoided(query),
        )
    stream = _read_of(found)
    if isinstance(stream, StreamPattern) and partition is not None:
        raise InvalidArgumentError(
            f"partition={partition} is of one stream, and {str(stream)!r} is a pattern: leave"
            " it out, and select by the partition of each record"
        )
    return ReadPath(
        stream=stream,
        partition=partition,
        start=query.get("from", "earliest"),
        stop=query.get("to"),
        count=_number(query, "count"),
        is_following=_flag(query, "follow"),
        credit=_number(query, "credit"),
        cursor=query.get("cursor"),
        is_shared=_flag(query, "shared"),
        is_taking=_flag(query, "take"),
    )


def _split(target: str) -> SplitResult:
    try:
        return urlsplit(target)
    except ValueError as error:  # A target that begins like //[ is a host's address, but none.
        raise UnknownPathError(
            f"no such path: {target[:200]!r} ({error}); the paths are {_FORMS}"
        ) from error


def parse_owner_path(target: str) -> OwnerPath:
    """Parse the target of a question for owners. UnknownPathError, InvalidArgumentError."""
    parts = _split(target)
    found = _OWNER_PATH.fullmatch(parts.path)
    if found is None:
        raise UnknownPathError(
            f"no such path: {parts.path[:200]!r}; use /v1/owner/NAMESPACE/NAME"
        )
    query = _query(parts.query, OWNER_QUERY)
    return OwnerPath(_stream_of(found), _number(query, "partition"))


def _stream_of(found: re.Match[str]) -> StreamName:
    text = f"{unquote(found[1])}/{unquote(found[2])}"
    if is_pattern(text):
        raise InvalidArgumentError(
            f"{text[:200]!r} is a pattern: streams are read by pattern, but this path needs the"
            " name of one stream, e.g. shop/orders"
        )
    return StreamName.parse(text)


def _read_of(found: re.Match[str]) -> StreamName | StreamPattern:
    """The stream, or pattern of streams, of a read path."""
    text = f"{unquote(found[1])}/{unquote(found[2])}"
    return StreamPattern.parse(text) if is_pattern(text) else StreamName.parse(text)


def _query(text: str, known: frozenset[str]) -> dict[str, str]:
    query: dict[str, str] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        if name not in known:
            hint = suggestion(name, known)
            raise InvalidArgumentError(f"unknown query parameter {name!r:.60}{hint}")
        if name in query:
            raise InvalidArgumentError(f"query parameter {name!r} is given twice")
        query[name] = value
    return query


def _redirect(query: Mapping[str, str]) -> Literal["follow", "forward"]:
    found = query.get("redirect", "follow")
    if found == "follow":
        return "follow"
    if found == "forward":
        return "forward"
    raise InvalidArgumentError(f"redirect={found!r:.60} is neither follow nor forward")


def _avoided(query: Mapping[str, str]) -> tuple[str, ...]:
    addresses = tuple(one for one in query.get("avoid", "").split(",") if one)
    if len(addresses) > _AVOIDED_MAX:
        raise InvalidArgumentError(
            f"avoid has {len(addresses)} addresses; {_AVOIDED_MAX} are allowed"
        )
    return addresses


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not _NUMBER.fullmatch(text) or int(text) > INT64_MAX:
        raise InvalidArgumentError(
            f"{name}={text!r:.60} is not a whole number from 0 to {INT64_MAX}"
        )
    return int(text)


def _flag(query: Mapping[str, str], name: str) -> bool:
    text = query.get(name, "0")
    if text not in ("0", "1"):
        raise InvalidArgumentError(f"{name}={text!r:.60} is neither 0 nor 1")
    return text == "1"
