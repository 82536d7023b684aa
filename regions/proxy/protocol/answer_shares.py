"""Bounds the answers that a proxy holds until its clients take them.

Theory of operation. A frame is small and its answer may be large: it has a position for each
record. So a frame counts what its answer will need from the moment that it is taken, until the
client has taken the answer.

A client may hold a part of what the others leave. So one that reads nothing gets that part of
the whole, two of them share a larger one, and there is always room for the next client: nobody
has to lose what is kept for it. At its bound, its further frames are refused.

A client at its bound is not read either, until it has taken some, if at least half of the bound
is answers that are known. It could not take answers that are due: if a partition stands still,
a client that waits for its answers has to hear from all others that it may come back later.

Invariant: a client without answers has no entry here.
"""

from topology.errors import OverCapacityError

_FREED_SHARE = 0.9
_KNOWN_PART = 0.5
"""A client that is not read can take at least this part of its bound."""


class AnswerShares:
    """Bytes of answers that are due or wait for their clients."""

    def __init__(self, max_bytes: int, client_share: float) -> None:
        """No answer is due. client_share: how much of what others leave a client may hold."""
        self.max_bytes = max_bytes
        self._client_share = client_share
        self._by_client: dict[str, int] = {}
        self._due: dict[str, int] = {}
        """Of these, what is not known yet."""
        self.bytes = 0
        """Those of all clients."""

    def __repr__(self) -> str:
        return f"AnswerShares({self.bytes} of {self.max_bytes}: {self._by_client})"

    def is_full(self, client: str) -> bool:
        """Whether a client has to take answers before it is read again."""
        return self._is_above(client, 1.0)

    def _is_above(self, client: str, part: float) -> bool:
        held = self._by_client.get(client, 0)
        bound = part * self._client_share * (self.max_bytes - self.bytes + held)
        known = held - self._due.get(client, 0)
        return known > 0 and held >= bound and known >= _KNOWN_PART * bound

    def refusal_of(self, client: str, own: int, more: int = 0) -> OverCapacityError | None:
        """Why not to take a frame, or one whose answer needs more bytes; None to take it.

        own: what it counts already. A frame is taken if its client has no other.
        """
        held = self._by_client.get(client, 0)
        allowed = self._client_share * (self.max_bytes - self.bytes + held)
        if held <= own or held + more <= allowed:
            return None
        return OverCapacityError(
            f"client {client} has {held} bytes of answers due or not taken; {allowed:.0f} are"
            " allowed: take answers, then send again"
        )

    def promise(self, client: str, count: int) -> None:
        """Count bytes of an answer that is due."""
        self._due[client] = self._due.get(client, 0) + count
        self.take(client, count)

    def keep(self, client: str, due: int, count: int) -> None:
        """Note that an answer is known, and takes so many bytes."""
        self.withdraw(client, due)
        self.take(client, count)

    def withdraw(self, client: str, count: int) -> bool:
        """Note that answers are not due any more. Whether as of `give_back`."""
        if not count:
            return False
        left = self._due[client] - count
        assert left >= 0, f"{client}: more bytes were withdrawn than promised"
        if left:
            self._due[client] = left
        else:
            del self._due[client]
        return self.give_back(client, count)

    def take(self, client: str, count: int) -> None:
        """Count bytes of an answer that is known."""
        self._by_client[client] = self._by_client.get(client, 0) + count
        self.bytes += count

    def give_back(self, client: str, count: int) -> bool:
        """Note that the client has taken them, or has left.

        Whether it is clearly below its bound now; it may not have been at it.
        """
        if not count:
            return False
        left = self._by_client[client] - count
        assert left >= 0, f"{client}: more bytes were given back than taken"
        self.bytes -= count
        if left:
            self._by_client[client] = left
        else:
            del self._by_client[client]
        return not self._is_above(client, _FREED_SHARE)
