"""One question for all who want the same answer at the same time.

Readers of one process that wait at the same tail ask one node once. Nobody asks in the
background: the first asks for itself, and those that come meanwhile wait for its answer. When
the first is cancelled, one of the others asks in its place.
"""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import attrs
import trio

Key = TypeVar("Key")
Answer = TypeVar("Answer")


@attrs.define(eq=False)
class _Asking(Generic[Answer]):
    """A question that is out."""

    is_over: trio.Event = attrs.field(factory=trio.Event)
    answers: list[Answer] = attrs.field(factory=list)
    """The one answer, if it came."""


class SharedAnswers(Generic[Key, Answer]):
    """Questions that are out, by what they ask. All who share an answer get the same object."""

    def __init__(self) -> None:
        self._asking: dict[Key, _Asking[Answer]] = {}

    def __repr__(self) -> str:
        return f"SharedAnswers({len(self._asking)} out)"

    async def ask(self, key: Key, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer to a question that was out already, or that is asked now."""
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
