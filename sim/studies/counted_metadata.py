"""Metadata that counts its requests, and the rounds of requests that waited for others."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs

from geolog.metadata.seam import Metadata
from sim.fakes.forwarded_metadata import ForwardedMetadata

T = TypeVar("T")


@attrs.frozen
class Asked:
    """Metadata cost of an action."""

    requests: int
    rounds: int
    """Sequential rounds of requests; over a WAN each takes a round trip."""

    def __sub__(self, before: "Asked") -> "Asked":
        return Asked(self.requests - before.requests, self.rounds - before.rounds)


@attrs.define(eq=False)
class CountedMetadata(ForwardedMetadata[Metadata]):
    """A metadata store seen through a counter.

    A request belongs to the round behind the last of which an answer has come: those that are
    under way together count as one round, however many they are. A `multi` is one request, and
    so is `ensure_path`, though it may take several.
    """

    _requests: int = attrs.field(default=0, init=False)
    _rounds_answered: int = attrs.field(default=0, init=False)

    @property
    def asked(self) -> Asked:
        """Total so far."""
        return Asked(self._requests, self._rounds_answered)

    async def _forward(self, _request: str, send: Callable[[], Awaitable[T]]) -> T:
        self._requests += 1
        begun_in = self._rounds_answered + 1
        answer = await send()
        self._rounds_answered = max(self._rounds_answered, begun_in)
        return answer
