"""Decides whether a proxy takes an append now, or tells its client to come back later.

Theory of operation. Each frame that was taken counts its bytes until it is answered: for the
proxy, for its partition, and for its client. Above a bound the next frame is refused, at once
and early: waiting would only make the queue longer, and the answers late. The refusal says when
to come back: when half of the bound is free, at the speed of the last answers.

Sealed batches count, too, but none is refused: it waits at the bound of its partition or client
(`full_of`), until a tenth of it is free. So a session that waits need not look at every answer.

A client that numbers its records sends a refused one again, and must not find a later one in
the log by then, because numbers only rise. So once a frame of a writer is refused, so are the
later ones that its session sends, until the refused one comes again (`RefusedSeqs`).

Invariant: a partition or client without a frame has no entry here.
"""

from collections.abc import Iterator

from topology.errors import OverCapacityError

_FREED_SHARE = 0.9
_WINDOW_S = 1.0
"""Answers are counted for this long to get their speed."""
_RETRY_S_MIN = 0.05
_RETRY_S_MAX = 10.0

_Share = tuple[str, dict[str, int], str, int]
"""A name to tell, counts, the key in them, and the bound on its count."""


class AppendAdmission:
    """Bytes of frames and batches without an answer, and the bounds on them."""

    def __init__(
        self, *, proxy_bytes_max: int, partition_bytes_max: int, client_bytes_max: int
    ) -> None:
        self._proxy_max = proxy_bytes_max
        self._partition_max = partition_bytes_max
        self._client_max = client_bytes_max
        self._by_partition: dict[str, int] = {}
        self._by_client: dict[str, int] = {}
        self._answered_bytes = 0
        self._window_began_s = 0.0
        self._bytes_per_s = 0.0
        self.refusals_count = 0
        """Frames refused so far."""

    def __repr__(self) -> str:
        return f"AppendAdmission({self._by_partition}, {self._by_client})"

    def refusal_of(
        self, partition: str, client: str, size_bytes: int, *, proxy_bytes: int
    ) -> OverCapacityError | None:
        """Why not to take a frame of this size; None to take it.

        proxy_bytes: what is in flight in the proxy, sealed batches included. A frame that is
        larger than a bound is taken if nothing else counts towards it.
        """
        shares = [
            (name, counts.get(key, 0), bound)
            for name, counts, key, bound in self._shares(partition, client)
        ]
        for subject, taken, bound in (*shares, ("this proxy", proxy_bytes, self._proxy_max)):
            if taken and taken + size_bytes > bound:
                self.refusals_count += 1
                error = OverCapacityError(
                    f"{subject} has {taken} bytes of unanswered appends; {bound} are allowed"
                )
                error.retry_after_s = self._retry_after_s(taken - bound // 2)
                return error
        return None

    def full_of(self, partition: str | None, client: str | None) -> str | None:
        """The one of these two that is full: a batch has to wait for it; None if neither is."""
        for name, counts, key, bound in self._shares(partition, client):
            taken = counts.get(key, 0)
            if taken and taken >= bound:
                return name
        return None

    def _shares(self, partition: str | None, client: str | None) -> Iterator[_Share]:
        if partition is not None:
            yield partition, self._by_partition, partition, self._partition_max
        if client is not None:
            yield f"client {client}", self._by_client, client, self._client_max

    def take(self, partition: str | None, client: str, size_bytes: int) -> None:
        """A frame or batch was taken; without a partition while it is not known."""
        for _, counts, key, _ in self._shares(partition, client):
            counts[key] = counts.get(key, 0) + size_bytes

    def give_back(
        self, partition: str | None, client: str, size_bytes: int, now_s: float
    ) -> list[str]:
        """A frame or batch was answered, or its session has ended: which of the two was freed.

        The name is that of `full_of`; it may not have been full. Without a partition it was
        not appended at all.
        """
        freed: list[str] = []
        for name, counts, key, bound in self._shares(partition, client):
            before = counts.get(key, 0)
            left = before - size_bytes
            assert left >= 0, f"{key}: more bytes were given back than taken"
            if left:
                counts[key] = left
            else:
                counts.pop(key, None)
            low = _FREED_SHARE * bound
            if before >= low and (left < low or not left):
                freed.append(name)
        if partition is not None:
            self._note_answered(size_bytes, now_s)
        return freed

    def _note_answered(self, size_bytes: int, now_s: float) -> None:
        self._answered_bytes += size_bytes
        passed_s = now_s - self._window_began_s
        if passed_s >= _WINDOW_S:
            self._bytes_per_s = self._answered_bytes / passed_s
            self._answered_bytes, self._window_began_s = 0, now_s

    def _retry_after_s(self, surplus_bytes: int) -> float:
        if not self._bytes_per_s:
            return OverCapacityError.retry_after_s
        after_s = surplus_bytes / self._bytes_per_s
        return round(min(max(after_s, _RETRY_S_MIN), _RETRY_S_MAX), 2)


class RefusedSeqs:
    """Numbered records of one session that were refused, and must come again first."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"RefusedSeqs({self._first})"

    def refusal_of(self, writer: str, seq: int) -> OverCapacityError | None:
        """Why not to take a record under this number; None to take it."""
        first = self._first.get(writer)
        if first is None or seq <= first:
            return None
        return OverCapacityError(
            f"seq {first} of writer {writer!r:.60} was refused just now: send it again before"
            f" seq {seq}"
        )

    def on_refused(self, writer: str, seq: int) -> None:
        """A record was refused because of the time, not because of what it is."""
        self._first[writer] = min(seq, self._first.get(writer, seq))

    def on_taken(self, writer: str, seq: int) -> None:
        """A record was taken."""
        if seq <= self._first.get(writer, -1):
            del self._first[writer]
