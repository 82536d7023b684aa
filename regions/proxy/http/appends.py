"""Appends over HTTP: `POST /v1/streams/NAMESPACE/NAME/append`, a record per line.

Theory of operation. The lines of a request are the frames of a session, `geolog.v1.json`: the
request is served by an `AppendSession` like any WebSocket, through a socket that gives it the
lines and keeps its answers. So numbers of named writers, order, redirects and outcomes are the
same. Each line gets one answer, in order.

A whole request is refused before its first line is appended if its body is too large, a line is
not an append, the stream does not exist, or another proxy owns the partition. Otherwise the
status is 200 if all lines are in the log, and that of the first line that is not if there is
one; the answers tell what became of each.

So all lines are parsed before the first is appended. The session gets what was parsed, unless
there is much: in memory that takes many times the bytes of the body, and may have to wait.
"""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Literal

import attrs
import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from geolog.protocol.append_failure import told_as_unknown
from geolog.transport.message_socket import SocketClosedError
from geolog.wire.session.codes import Code
from geolog.wire.session.documents import (
    RECORDS_MAX,
    BadFrameError,
    CheckedDocument,
    Document,
    FromProxy,
    message_of,
)
from geolog.wire.session.frames import JSON_FRAMES, FrameCodec
from geolog.wire.session.messages import AppendId, AppendRequest
from geolog.wire.session.paths import AppendPath, parse_path
from regions.proxy.append_session import AppendSession
from regions.proxy.append_targets import open_target
from regions.proxy.held_partitions import MovedError
from regions.proxy.http.answers import NDJSON, client_in, retry_after, status_of, target_of
from regions.proxy.http.bodies import Bodies
from regions.proxy.protocol.answer_shares import AnswerShares
from regions.proxy.session_host import SessionHost, failure_of
from topology.errors import (
    GeologError,
    InvalidArgumentError,
    OverCapacityError,
    TooLargeError,
    UnavailableError,
    first_of,
)

_PARSED_AT_ONCE = 64 << 10
_LINE_BYTES = 500
"""Bytes of lines that are parsed before other tasks run, and what each line counts besides."""

ANSWERS_BYTES_MAX = 64 << 20
"""Bytes of answers that clients have not taken; one may have a part of what others leave."""

_LINES_MAX = 2 * RECORDS_MAX
"""Lines of a body, blank ones included."""

_KEPT_BYTES_MAX = 16 << 20
_KEPT_RECORD_BYTES = 900
_KEPT_PER_BYTE = 16
"""Memory for lines that are parsed only once, in all requests; by records and bytes."""

_ACK = '{"type":"ack",'
_ERROR = '{"type":"error",'
"""How the answers to lines begin."""


class LineSocket:
    """The socket of a session whose frames are known already; keeps the answers."""

    def __init__(self, lines: Sequence[str], arrived_s: float) -> None:
        self._lines = lines
        self._arrived_s = arrived_s
        self._changed = trio.Event()
        self._closed: SocketClosedError | None = None
        self._taken_count = 0
        self.answers: list[str] = []

    def __repr__(self) -> str:
        return f"LineSocket({len(self.answers)} of {len(self._lines)} lines answered)"

    @property
    def subprotocol(self) -> str | None:
        """None: lines are JSON."""
        return None

    @property
    def origin(self) -> str | None:
        """None: it was checked with the request."""
        return None

    async def receive(self) -> str:
        """The next line; SocketClosedError once all are answered."""
        await self.wait_message()
        if self._closed is not None or self._taken_count == len(self._lines):
            raise self._closed or SocketClosedError(None, "the request is over")
        line = self._lines[self._taken_count]
        self._taken_count += 1
        return line

    @property
    def next_arrived_s(self) -> float | None:
        """When the request had come, while a line is left."""
        has_next = self._closed is None and self._taken_count < len(self._lines)
        return self._arrived_s if has_next else None

    async def wait_message(self) -> None:
        """Return while a line is left; else wait until all are answered."""
        if self.next_arrived_s is not None:
            return
        while self._closed is None and len(self.answers) < len(self._lines):
            await self._changed.wait()

    async def send(self, message: str | bytes) -> None:
        """Keep an answer."""
        self._keep(message)

    async def send_all(self, messages: Sequence[str | bytes]) -> None:
        """Keep several answers. Others run then: nobody reads these, so nothing else waits."""
        for message in messages:
            self._keep(message)
        await trio.lowlevel.checkpoint()

    def _keep(self, message: str | bytes) -> None:
        assert isinstance(message, str), "the session speaks JSON"
        if message.startswith((_ACK, _ERROR)):
            self.answers.append(message)
            self._tell_change()

    async def ping(self) -> None:
        """Return at once: the client waits for its answers."""
        await trio.lowlevel.checkpoint()

    async def close(self, close_code: int, reason: str = "") -> None:
        """End the session: the proxy drains."""
        self._closed = SocketClosedError(close_code, reason)
        self._tell_change()

    def _tell_change(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()


@attrs.define
class KeptBytes:
    """Memory of lines that are parsed already, of all requests."""

    bytes: int = 0


class LineFrames(FrameCodec):
    """The frames of `geolog.v1.json`, of which some are parsed already."""

    subprotocol = JSON_FRAMES.subprotocol

    def __init__(self, room: KeptBytes) -> None:
        self._checked: dict[str, CheckedDocument] = {}
        self._room = room
        self._kept_bytes = 0

    def __len__(self) -> int:
        return len(self._checked)

    def keep(self, text: str, document: Document, message: AppendRequest) -> None:
        """Parse this line only once, if there is room; until `close`."""
        size_bytes = _KEPT_RECORD_BYTES * len(message.records) + _KEPT_PER_BYTE * len(text)
        if self._room.bytes + size_bytes <= _KEPT_BYTES_MAX:
            self._room.bytes += size_bytes
            self._kept_bytes += size_bytes
            self._checked[text] = CheckedDocument(document, message)

    def close(self) -> None:
        """Forget what is left: the request is over."""
        self._checked.clear()
        self._room.bytes -= self._kept_bytes
        self._kept_bytes = 0

    def parse(self, frame: str | bytes) -> Document:
        """The document of a line. One that comes again, in another session, is parsed again."""
        assert isinstance(frame, str), "lines are text"
        checked = self._checked.pop(frame, None)
        return JSON_FRAMES.parse(frame) if checked is None else checked

    def encode(self, message: FromProxy) -> str | bytes:
        """As `geolog.v1.json` has it; so are the others."""
        return JSON_FRAMES.encode(message)

    def encode_read(self, type_: Literal["record", "gap"], document: Document) -> str | bytes:
        """The frame of a record or gap."""
        return JSON_FRAMES.encode_read(type_, document)

    def content(
        self,
        value: bytes | memoryview,
        key: bytes | memoryview | None,
        headers: Mapping[str, bytes] | None,
    ) -> Document:
        """The part of a record's document that its writer gave."""
        return JSON_FRAMES.content(value, key, headers)


class KeptResponse(Response):
    """A response that counts for its client until that has taken it."""

    media_type = NDJSON

    def __init__(
        self,
        shares: AnswerShares,
        client: str,
        content: str,
        status_code: int,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(content, status_code=status_code, headers=headers)
        self._shares = shares
        self._client = client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        self._shares.take(self._client, len(self.body))
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._shares.give_back(self._client, len(self.body))


class HttpAppends:
    """The endpoint."""

    def __init__(self, host: SessionHost, bodies: Bodies) -> None:
        self._host = host
        self._bodies = bodies
        self._kept = KeptBytes()
        self._untaken = AnswerShares(ANSWERS_BYTES_MAX, host.config.client_share)

    async def append(self, request: Request) -> Response:
        """Append the lines of the request, and answer each."""
        path = parse_path(target_of(request))
        assert isinstance(path, AppendPath), "the router sends appends here"
        if self._host.draining.is_set():
            raise _going_away()
        client = client_in(request)
        if self._untaken.is_full(client):
            raise OverCapacityError(
                f"client {client} has too many answers that it has not taken: take them first"
            )
        async with self._bodies.read(request) as body:
            arrived_s = trio.current_time()
            frames = LineFrames(self._kept)
            try:
                lines = await parsed_lines(body, frames)
                answers = await self._append_lines(client, path, lines, frames, arrived_s)
            finally:
                frames.close()
        return KeptResponse(
            self._untaken,
            client,
            "".join(f"{answer}\n" for answer in answers),
            _status_of(answers),
            _retry_headers(answers),
        )

    async def _append_lines(
        self,
        client: str,
        path: AppendPath,
        lines: list["_Line"],
        frames: LineFrames,
        arrived_s: float,
    ) -> list[str]:
        """An answer to each line; an error if none was begun."""
        texts = [line.text for line in lines]
        socket = LineSocket(texts, arrived_s)
        error, begun_end = await self._run_session(client, socket, frames, path)
        is_untouched = not (begun_end or socket.answers)
        if isinstance(error, MovedError) and error.http is None and is_untouched:
            # There is no address to send the client to.
            socket = LineSocket(texts, arrived_s)
            forwarded = attrs.evolve(path, redirect="forward")
            error, begun_end = await self._run_session(client, socket, frames, forwarded)
            is_untouched = not (begun_end or socket.answers)
        if error is not None and is_untouched:
            self._host.traffic.redirects_count += isinstance(error, MovedError)
            raise error
        unanswered = enumerate(lines[len(socket.answers) :], len(socket.answers))
        return socket.answers + [
            _answer_to_rest(line, error or _going_away(), is_taken=at < begun_end)
            for at, line in unanswered
        ]

    async def _run_session(
        self, client: str, socket: LineSocket, frames: LineFrames, path: AppendPath
    ) -> tuple[GeologError | None, int]:
        """Why the session ended, if not because all lines are answered.

        Behind it how many lines there are up to the last one that it has begun.
        """
        error: GeologError | None = None
        session: AppendSession | None = None
        try:
            async with open_target(self._host, path, client=client) as target:
                session = AppendSession(
                    socket,
                    frames,
                    self._host,
                    target,
                    path.writer,
                    client=client,
                    holds_back=False,
                )
                await session.run()
        except* GeologError as errors:
            error = first_of(errors)
        return error, 0 if session is None else session.begun_end


@attrs.frozen
class _Line:
    """One line of a body: an append."""

    text: str
    id: AppendId | None


async def parsed_lines(body: bytes, frames: LineFrames) -> list[_Line]:
    """The lines of a body, all of which are appends. InvalidArgumentError, TooLargeError."""
    if max(body.count(b"\n"), body.count(b"\r")) > _LINES_MAX:
        raise TooLargeError(
            f"the body has more than {_LINES_MAX} lines: send them in several requests"
        )
    lines: list[_Line] = []
    records_count = parsed_bytes = 0
    for number, data in enumerate(body.splitlines(), 1):
        parsed_bytes += _LINE_BYTES + len(data)
        if parsed_bytes >= _PARSED_AT_ONCE:
            parsed_bytes = 0
            await trio.lowlevel.checkpoint()
        if not data.strip():
            continue
        try:
            text = data.decode()
            document = JSON_FRAMES.parse(text)
            message = message_of(document)
        except UnicodeDecodeError as error:
            raise InvalidArgumentError(f"line {number} is not UTF-8: {error.reason}") from error
        except BadFrameError as error:
            raise InvalidArgumentError(
                f"line {number}: {error}; nothing was appended"
            ) from error
        if not isinstance(message, AppendRequest):
            raise InvalidArgumentError(
                f"line {number} is a credit or a commit: these are for sessions that read"
            )
        records_count += len(message.records)
        if records_count > RECORDS_MAX:
            raise TooLargeError(
                f"the body has more than {RECORDS_MAX} records: send them in several requests"
            )
        frames.keep(text, document, message)
        lines.append(_Line(text, message.id))
    if not lines:
        raise InvalidArgumentError('the body has no line: send e.g. {"value":"text"}')
    return lines


def _answer_to_rest(line: _Line, error: GeologError, *, is_taken: bool) -> str:
    """The answer to a line that the session did not answer."""
    if is_taken and error.outcome == "refused":
        error = told_as_unknown(error, f"{error}; the log may hold the record")
    answer = JSON_FRAMES.encode(failure_of(error, line.id))
    assert isinstance(answer, str), "JSON is text"
    return answer


def _status_of(answers: Sequence[str]) -> int:
    """The status that goes with answers: that of the first error."""
    error = next((one for one in answers if one.startswith(_ERROR)), None)
    if error is None:
        return HTTPStatus.OK
    code: int = json.loads(error)["code"]
    # A client that follows a redirect would append again what was appended here.
    return HTTPStatus.SERVICE_UNAVAILABLE if code == Code.MOVED else status_of(code)


def _retry_headers(answers: Sequence[str]) -> dict[str, str]:
    """When to send again what was refused because of a bound, if anything was."""
    errors = [json.loads(one) for one in answers if one.startswith(_ERROR)]
    after_s = [one.get("retry_after_s") for one in errors]
    told_s = [one_s for one_s in after_s if one_s is not None]
    return {"retry-after": retry_after(max(told_s))} if told_s else {}


def _going_away() -> GeologError:
    return UnavailableError("this proxy is going away: send to another one")
