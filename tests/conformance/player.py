"""Plays vectors against a live proxy, and tells of each whether it went as the vector says.

It knows WebSockets, HTTP, JSON and MessagePack, and nothing of geolog.
"""

import http.client
import json
from collections.abc import Sequence
from urllib.parse import urlsplit

import attrs
import h11
import msgpack
import trio
import trio_websocket
import wsproto.utilities

from tests.conformance.notation import Document, Memory, NotationError
from tests.conformance.vector_files import DRAIN, HTTP, OTHER, Step, Vector

ANSWER_S = 30.0
"""How long a proxy may take for one answer."""

LATE_S = 90.0
"""Likewise if it must wait for what does not come."""

_MESSAGE_BYTES_MAX = 64 << 20
_NORMAL = 1000


class UnexpectedError(Exception):
    """The proxy did something else than the vector says."""


@attrs.frozen(kw_only=True)
class Target:
    """The proxy to play against."""

    websocket: str | None
    """URL like ws://HOST:PORT."""
    http: str | None
    """URL like http://HOST:PORT."""
    stream: str
    other: str | None = None
    """URL like ws://HOST:PORT of another proxy of the same cluster."""
    drain: str | None = None
    """Command that makes the proxy end in good order."""

    def takes(self, case: str) -> bool:
        """Whether the case can be played."""
        return (self.http if case == HTTP else self.websocket) is not None

    def has(self, needs: str | None) -> bool:
        """Whether there is what a vector needs."""
        return {OTHER: self.other, DRAIN: self.drain}.get(needs or "", "") is not None


@attrs.frozen
class Outcome:
    """How one case of a vector went."""

    vector: Vector
    case: str
    failure: str | None
    """What went wrong, and in which step."""


async def play(vector: Vector, case: str, target: Target, run: str) -> Outcome:
    """Play one case. run: a text that no earlier run has used, for the names of writers."""
    memory = Memory({"stream": target.stream, "run": run})
    at, failure = 0, None
    try:
        async with trio.open_nursery() as nursery:
            player = _Player(target, case, memory, nursery)
            for step in vector.steps:
                at = step.number
                if step.is_for(case):
                    with trio.fail_after(LATE_S if step.is_late else ANSWER_S):
                        await player.perform(step)
            nursery.cancel_scope.cancel(reason="the vector is played")
    except* (
        *(trio_websocket.HandshakeError, trio_websocket.ConnectionClosed),
        *(h11.ProtocolError, wsproto.utilities.ProtocolError),
    ) as errors:
        failure = f"step {at}: the server does not speak WebSocket: {_first_of(errors)!r}"
    except* http.client.HTTPException as errors:
        failure = f"step {at}: the server does not speak HTTP: {_first_of(errors)!r}"
    except* ValueError as errors:
        failure = f"step {at}: the answer cannot be decoded: {_first_of(errors)!r}"
    except* (UnexpectedError, OSError) as errors:
        failure = f"step {at}: {_first_of(errors)!s}"
    except* trio.TooSlowError:
        failure = f"step {at}: nothing came in time"
    except* NotationError as errors:
        failure = f"step {at} of the vector: {_first_of(errors)!s}"
    return Outcome(vector, case, failure)


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


@attrs.define
class _Session:
    """One WebSocket."""

    connection: trio_websocket.WebSocketConnection
    is_binary: bool
    first: object = None
    """A message that was received ahead."""

    async def send(self, document: object) -> None:
        packed = msgpack.packb(document) if self.is_binary else _json_text(document)
        await self.connection.send_message(packed)

    async def receive(self) -> object:
        if self.first is not None:
            first, self.first = self.first, None
            return first
        frame = await self.connection.get_message()
        if isinstance(frame, bytes) != self.is_binary:
            wanted = "binary" if self.is_binary else "text"
            raise UnexpectedError(f"the frame is not {wanted}: {frame!r:.80}")
        return msgpack.unpackb(frame) if isinstance(frame, bytes) else json.loads(frame)


class _Player:
    def __init__(
        self, target: Target, case: str, memory: Memory, nursery: trio.Nursery
    ) -> None:
        self._target = target
        self._case = case
        self._memory = memory
        self._sessions: dict[str, _Session] = {}
        self._nursery = nursery

    async def perform(self, step: Step) -> None:
        if "refused" in step.document:
            await self._expect_refusal(step)
        elif step.deed == "connect":
            await self._connect(step)
        elif step.deed == "request":
            await self._request(step)
        elif step.deed == "drain":
            self._nursery.start_soon(self._drain)
        else:
            await self._talk(step, self._sessions[step.socket])

    async def _drain(self) -> None:
        # The command may wait until the proxy has ended, which waits for the sessions.
        command = self._target.drain or ""
        with trio.CancelScope(shield=True), trio.fail_after(LATE_S):
            done = await trio.run_process(
                command, shell=True, capture_stdout=True, capture_stderr=True, check=False
            )
        if done.returncode:
            raise UnexpectedError(f"{command!r} ended with {done.returncode}")

    async def _connect(self, step: Step) -> None:
        if step.document.get("at") == OTHER:
            await self._find_other(step)
            return
        await self._open(step, self._url(step))

    async def _find_other(self, step: Step) -> None:
        """Connect to that of two proxies which does not own the partition.

        One of them at least does not.
        """
        path = self._memory.text(str(step.document["connect"]))
        for place in (self._target.websocket, self._target.other):
            await self._open(step, f"{place}{path}")
            session = self._sessions[step.socket]
            session.first = await session.receive()
            if isinstance(session.first, dict) and session.first.get("type") != "hello":
                return
            await session.connection.aclose(_NORMAL)
        raise UnexpectedError("both proxies say that they own the partition")

    async def _open(self, step: Step, url: str) -> None:
        offered = self._offered(step)
        connection = await trio_websocket.connect_websocket_url(
            self._nursery,
            url,
            subprotocols=offered or None,
            max_message_size=_MESSAGE_BYTES_MAX,
        )
        chosen = connection.subprotocol
        if offered and chosen != self._case:
            raise UnexpectedError(f"the proxy chose subprotocol {chosen!r}, not {self._case}")
        self._sessions[step.socket] = _Session(connection, self._case.endswith("msgpack"))

    async def _expect_refusal(self, step: Step) -> None:
        wanted, status = step.document["refused"], None
        try:
            async with trio_websocket.open_websocket_url(
                self._url(step), subprotocols=self._offered(step)
            ):
                pass
        except trio_websocket.ConnectionRejected as error:
            status = error.status_code
        if status != wanted:
            raise UnexpectedError(f"the handshake was not refused with {wanted}: {status}")

    def _url(self, step: Step) -> str:
        text = self._memory.text(str(step.document["connect"]))
        return (
            text if text.startswith(("ws://", "wss://")) else f"{self._target.websocket}{text}"
        )

    def _offered(self, step: Step) -> list[str]:
        offered = step.document.get("offering", [self._case])
        assert isinstance(offered, list)
        return offered

    async def _talk(self, step: Step, session: _Session) -> None:
        document = step.document
        try:
            match step.deed:
                case "send":
                    await session.send(self._memory.filled(document["send"]))
                case "send_text":
                    await session.connection.send_message(str(document["send_text"]))
                case "send_hex":
                    frame = bytes.fromhex(str(document["send_hex"]))
                    await session.connection.send_message(frame)
                case "send_bytes_count":
                    count = self._memory.filled(document["send_bytes_count"])
                    assert isinstance(count, int)
                    await session.connection.send_message(b"x" * count)
                case "expect":
                    self._compare(document["expect"], await session.receive())
                case "expect_each":
                    await self._expect_each(session, document["expect_each"])
                case "expect_silence_s":
                    await self._expect_silence(session, document["expect_silence_s"])
                case "expect_close":
                    await self._expect_close(session, document["expect_close"])
                case "close":
                    await session.connection.aclose(_NORMAL)
                case _:
                    raise NotationError(f"{step.deed} is not for a session")
        except trio_websocket.ConnectionClosed as error:
            raise UnexpectedError(f"the proxy closed the session: {error}") from error

    def _compare(self, wanted: object, found: object) -> None:
        is_binary = self._case.endswith("msgpack")
        differences = list(self._memory.differences(wanted, found, is_binary=is_binary))
        if differences:
            raise UnexpectedError(f"{'; '.join(differences)}; in {found!r:.300}")

    async def _expect_each(self, session: _Session, wanted: object) -> None:
        """Expect these messages, in any order."""
        assert isinstance(wanted, list)
        is_binary, left = self._case.endswith("msgpack"), list(wanted)
        while left:
            found = await session.receive()
            for one in left:
                if not list(self._memory.differences(one, found, is_binary=is_binary)):
                    left.remove(one)
                    break
            else:
                raise UnexpectedError(f"{found!r:.300} is none of {left!r:.300}")

    async def _expect_silence(self, session: _Session, for_s: object) -> None:
        assert isinstance(for_s, float)
        with trio.move_on_after(for_s):
            raise UnexpectedError(f"not silent: {await session.receive()!r:.80}")

    async def _expect_close(self, session: _Session, code: object) -> None:
        try:
            found = await session.receive()
        except trio_websocket.ConnectionClosed as error:
            closed = None if error.reason is None else error.reason.code
            if closed != code:
                raise UnexpectedError(f"closed with {closed}, not with {code}") from error
        else:
            raise UnexpectedError(f"not closed, but {found!r:.80}")

    async def _request(self, step: Step) -> None:
        document = step.document
        method, _, target = self._memory.text(str(document["request"])).partition(" ")
        tries_max, announced = document.get("tries_max", 1), None
        assert isinstance(tries_max, int)
        if "announced_bytes_count" in document:
            announced = str(document["announced_bytes_count"])
        status, headers, text = 0, dict[str, str](), ""
        for _ in range(tries_max):
            status, headers, text = await trio.to_thread.run_sync(
                self._ask, method, target, self._body_of(document), announced
            )
            if status == document["status"]:
                break
        if status != document["status"]:
            raise UnexpectedError(
                f"status {status}, not {document['status']}: {text.strip()!r:.300}"
            )
        if "headers" in document:
            self._compare(document["headers"], headers)
        if "answers" in document:
            self._compare(document["answers"], _answers_in(text))

    def _body_of(self, document: Document) -> bytes | None:
        if "lines" in document:
            lines = self._memory.filled(document["lines"])
            assert isinstance(lines, list)
            return "".join(f"{_json_text(one)}\n" for one in lines).encode()
        if "body_bytes_count" in document:
            count = document["body_bytes_count"]
            assert isinstance(count, int)
            return b"x" * count
        return str(document["body"]).encode() if "body" in document else None

    def _ask(
        self, method: str, target: str, body: bytes | None, announced: str | None
    ) -> tuple[int, dict[str, str], str]:
        """Send a request; announced: the length that it claims to have, if that is not true."""
        place = urlsplit(self._target.http or "").netloc
        connection = http.client.HTTPConnection(
            place, timeout=LATE_S if announced else ANSWER_S
        )
        try:
            told = {"content-length": announced} if announced else {}
            connection.request(method, target, body, told)
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, headers, answer.read().decode()
        finally:
            connection.close()


def _answers_in(text: str) -> list[object]:
    """The lines of an answer; a document of several lines is one."""
    try:
        return [json.loads(text)]
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


def _json_text(document: object) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


async def play_all(vectors: Sequence[Vector], target: Target, run: str) -> list[Outcome]:
    """Play what the target can take, one after the other: they share a stream."""
    return [
        await play(vector, case, target, f"{run}-{vector.name}-{number}")
        for vector in vectors
        for number, case in enumerate(vector.cases)
        if target.takes(case) and target.has(vector.needs)
    ]
