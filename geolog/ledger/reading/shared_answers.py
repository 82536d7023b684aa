"""One request for all callers that want the same answer at the same time.

Readers of one process that wait at the same tail send one request between them. There is no
background task: the first caller sends its own request, and callers that come meanwhile wait
for its answer. If the first caller is cancelled, one of the others sends a request instead.
"""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import attrs
import trio

Key = TypeVar("Key")
Answer = TypeVar("Answer")


@attrs.define(eq=False)
class _Asking(Generic[Answer]):
    """A request under way."""

    is_over: trio.Event = attrs.field(factory=trio.Event)
    answers: list[Answer] = attrs.field(factory=list)
    """The answer, if it has come."""


class SharedAnswers(Generic[Key, Answer]):
    """Requests under way, by key. All callers that share an answer get the same object."""

    def __init__(self) -> None:
        self._asking: dict[Key, _Asking[Answer]] = {}

    def __repr__(self) -> str:
        return f"SharedAnswers({len(self._asking)} out)"

    async def ask(self, key: Key, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Share the answer to a request under way, or send the request now."""
        while (asking := self._asking.get(key)) is not None:
            await asking.is_over.wait()
            if asking.answers:
                return asking.answers[0]
        asking = self._asking[key] = _Asking()
        try:
            asking.answers.append(await ask())
        finally:
            del self._asking[key]
            asking.is_over.set()
        return asking.answers[0]
