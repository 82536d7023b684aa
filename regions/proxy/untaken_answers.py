"""Answers that a proxy holds for its clients, and the sessions that wait for room for more."""

import trio

from regions.proxy.protocol.answer_shares import AnswerShares


class UntakenAnswers:
    """A bound that sessions keep together, see `AnswerShares`."""

    def __init__(self, max_bytes: int, client_share: float) -> None:
        self._shares = AnswerShares(max_bytes, client_share)
        self._freed: dict[str, trio.Event] = {}
        """Of the clients whose sessions wait."""
        self.is_full = self._shares.is_full
        self.take = self._shares.take
        self.promise = self._shares.promise
        self.keep = self._shares.keep
        self.refusal_of = self._shares.refusal_of

    def __repr__(self) -> str:
        return f"UntakenAnswers({self._shares})"

    @property
    def bytes(self) -> int:
        """Bytes that are due or wait to be taken."""
        return self._shares.bytes

    @property
    def max_bytes(self) -> int:
        """The bound."""
        return self._shares.max_bytes

    def withdraw(self, client: str, count: int) -> None:
        """Note that answers are not due any more: their session has ended."""
        if self._shares.withdraw(client, count):
            self._tell_freed(client)

    def give_back(self, client: str, count: int) -> None:
        """Note that the client has taken so many bytes, or has left."""
        if self._shares.give_back(client, count):
            self._tell_freed(client)

    def _tell_freed(self, client: str) -> None:
        freed = self._freed.pop(client, None)
        if freed is not None:
            freed.set()

    async def wait_room(self, client: str) -> None:
        """Wait until a client that is full has taken some."""
        while self.is_full(client):
            await self._freed.setdefault(client, trio.Event()).wait()
