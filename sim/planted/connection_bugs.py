"""Defects of a client's connections to storage nodes."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from geolog.ledger.nodes.bell import Bell
from geolog.ledger.nodes.connection import NodeConnection, PendingQuestion
from geolog.protocol.messages import Cancel, Cancellable, Message
from geolog.wire.codec import encode
from sim.planted.planted_bug import PlantedBug

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001

_on_other_answer = NodeConnection._on_other_answer

_freed: WeakKeyDictionary[NodeConnection, deque[int]] = WeakKeyDictionary()


@contextmanager
def asking_by_freed_numbers(
    connection: NodeConnection,
    make: Callable[[int], Message],
    *,
    answers_max: int = 1,
    bell: Bell | None = None,
) -> Iterator[PendingQuestion]:
    """Give the number of a cancelled request to the next, before its last answer has come."""
    if connection._broken is not None:
        raise connection._broken
    freed = _freed.setdefault(connection, deque())
    if freed:
        request = freed.popleft()
    else:
        request = connection._request_last = connection._request_last + 1
    message = make(request)
    buffers = encode(message)
    question = connection._questions[request] = PendingQuestion(connection, answers_max, bell)
    try:
        connection._send_nowait(buffers)
        yield question
    finally:
        del connection._questions[request]
        if not question.is_answered and isinstance(message, Cancellable):
            connection._send_nowait(encode(Cancel(request)))
            freed.append(request)


def drop_unwanted(connection: NodeConnection, request: int, message: Message) -> None:
    """Drop what nobody waits for, whatever it answers."""
    if request in connection._standing or request in connection._abandoned:
        _on_other_answer(connection, request, message)


CONNECTION_BUGS: dict[str, PlantedBug] = {
    "cancelled-answer-for-another": PlantedBug(
        92,
        "the answer to a cancelled request is taken for another's",
        [
            (NodeConnection, "asking", asking_by_freed_numbers),
            (NodeConnection, "_on_other_answer", drop_unwanted),
        ],
    ),
}
"""These bugs, by name."""
