"""Decides whether a proxy takes an append now, or tells its client to come back later.

Theory of operation. Each frame that was taken counts its bytes until it is answered: for the
proxy, for its partition, and for its client. Above a bound the next frame is refused, at once
and early: waiting would only make the queue longer, and the answers late.

A refusal costs time, too, so clients should come back when most of what they send then can be
taken. A client is told to come back when half of the bound is free, at the speed of the last
answers, and not before those who were told earlier have come and been served. Several bytes
are reckoned for each one that was refused, as a session sends all that it has. A little chance
keeps apart those who are told at the same moment. Until its time, each further refusal tells a
session the same time (`Comeback`), and the next one of its client if it ends (`Comebacks`).

A frame may also have waited too long because the proxy had no time for it. Then it is refused
as well, so that an answer that comes at all comes in time.

Sealed batches count, too, but none is refused: it waits at the bound of its partition or client
(`full_of`), until a tenth of it is free. So a session that waits need not look at every answer.
While batches wait for a partition, frames are refused before that tenth is taken again.

A client that numbers its records sends a refused one again, and must not find a later one in
the log by then, because numbers only rise. So once a frame of a writer is refused, so are the
later ones that its session sends, until the refused one comes again (`RefusedSeqs`).

Invariant: a partition or client without a frame has no entry here.
"""

import math
import random
from collections import deque
from collections.abc import Iterator

import attrs

from topology.errors import OverCapacityError

_FREED_SHARE = 0.9
_WINDOW_S = 1.0
"""Answers are counted for this long to get their speed."""
_WINDOW_S_MIN = 0.1
"""A speed is known after this long."""
_EARLY_PART = 0.75
"""Frames may have this part of a client's share: those that the proxy forwards to itself come
back as batches, which count for the client as well if it is on the same host."""
_AHEAD_OF_BATCHES = 0.8
"""Frames may have this part of a partition for which batches wait."""
_LOADED_PART = 4
"""They tell what can be done only while at least the bound divided by this is unanswered."""
_RETURNED_PER_REFUSED = 3
"""Bytes that a session is expected to send when it comes back, for each one that was refused:
in an overload that lasts, about two more of them are taken. If more were reckoned with, the
proxy would stand idle before the next session comes."""
_RETURNED_PART = 2
"""A session is expected to send at most the bound divided by this."""
_RETRY_S_MIN = 0.05
_RETRY_S_MAX = 8.0
_LEFT_MAX = 100
_LEFT_CLIENTS_MAX = 10_000
"""Comebacks that are kept of a client whose sessions have ended, and such clients."""
_RETRY_SPREAD = 0.25
"""Clients come back sooner or later by up to this part of the time."""


@attrs.define(eq=False)
class Comeback:
    """When one session may send again what was refused. The session keeps it."""

    until_s: float = -math.inf
    room_bytes: int = 0
    """How much more it may be expected to send then."""

    def after_s(self, now_s: float) -> float:
        """How long that is from now on."""
        return round(max(self.until_s - now_s, _RETRY_S_MIN), 2)


class Comebacks:
    """Those of sessions and requests that have ended, until their time has come.

    The next session or request of the client takes one over: it is likely the same program, and
    should not be reckoned with once more.
    """

    def __init__(self) -> None:
        self._left: dict[str, deque[Comeback]] = {}

    def __repr__(self) -> str:
        return f"Comebacks({self._left})"

    def leave(self, client: str, comeback: Comeback, now_s: float) -> None:
        """Keep one whose session has ended, unless its time has come."""
        if comeback.until_s <= now_s:
            return
        left = self._left.pop(client, None) or deque(maxlen=_LEFT_MAX)
        left.append(comeback)
        self._left[client] = left  # Behind all others: the first is forgotten first.
        if len(self._left) > _LEFT_CLIENTS_MAX:
            del self._left[next(iter(self._left))]

    def take(self, client: str, now_s: float) -> Comeback:
        """One for a session that begins."""
        left = self._left.get(client)
        while left:
            comeback = left.popleft()
            if not left:
                del self._left[client]
            if comeback.until_s > now_s:
                return comeback
        return Comeback()


@attrs.define(eq=False)
class _Speed:
    """How fast bytes are answered while there is enough to do."""

    _began_s: float | None = None
    """None while there is not."""
    _bytes: int = 0
    bytes_per_s: float = 0.0
    """In the last window; 0 while it is not known."""

    def note(self, count: int, now_s: float, *, is_loaded: bool) -> None:
        """So many were answered now."""
        if self._began_s is not None:
            self._bytes += count
            self._end_window(now_s, _WINDOW_S if is_loaded else _WINDOW_S_MIN)
        if not is_loaded:
            self._began_s, self._bytes = None, 0
        elif self._began_s is None:
            self._began_s = now_s

    def _end_window(self, now_s: float, after_s: float) -> None:
        assert self._began_s is not None, "it is loaded"
        passed_s = now_s - self._began_s
        if passed_s >= after_s:
            self.bytes_per_s = self._bytes / passed_s
            self._bytes, self._began_s = 0, now_s

    def at(self, now_s: float) -> float:
        """The speed in the last window; 0 while it is not known."""
        if not self.bytes_per_s and self._began_s is not None:
            self._end_window(now_s, _WINDOW_S_MIN)
        return self.bytes_per_s


@attrs.define(eq=False)
class _Share:
    """What counts towards one bound."""

    name: str
    bound: int
    bytes: int = 0
    speed: _Speed = attrs.field(factory=_Speed)
    served_s: float = -math.inf
    """When those who were told to come back will have been served."""

    def __repr__(self) -> str:
        return f"{self.bytes} of {self.bound}"

    def refuses(self, size_bytes: int, part: float) -> bool:
        """Whether a frame exceeds this part of the bound. A large one is taken alone."""
        return self.bytes > 0 and self.bytes + size_bytes > part * self.bound

    def note_speed(self, answered_bytes: int, now_s: float) -> None:
        """Note that so many bytes were answered, which do not count any more."""
        is_loaded = self.bytes >= self.bound // _LOADED_PART
        self.speed.note(answered_bytes, now_s, is_loaded=is_loaded)

    def call_back(
        self, comeback: Comeback, bytes_per_s: float, now_s: float, rng: random.Random
    ) -> None:
        """Decide when a session may come back."""
        after_s = OverCapacityError.retry_after_s
        if bytes_per_s:
            free_s = (self.bytes - self.bound // 2) / bytes_per_s
            after_s = max(free_s, self.served_s - now_s)
        after_s = min(max(after_s, _RETRY_S_MIN), _RETRY_S_MAX)
        self.served_s = now_s + after_s
        comeback.until_s = now_s + after_s * rng.uniform(1 - _RETRY_SPREAD, 1 + _RETRY_SPREAD)
        comeback.room_bytes = self.bound // _RETURNED_PART

    def expect(self, comeback: Comeback, refused_bytes: int, bytes_per_s: float) -> None:
        """Reckon with what a session will send because this was refused."""
        if bytes_per_s:
            count = min(_RETURNED_PER_REFUSED * refused_bytes, comeback.room_bytes)
            comeback.room_bytes -= count
            self.served_s += count / bytes_per_s


class AppendAdmission:
    """Bytes of frames and batches without an answer, and the bounds on them."""

    def __init__(
        self,
        *,
        proxy_bytes_max: int,
        partition_bytes_max: int,
        client_bytes_max: int,
        queue_s_max: float,
        rng: random.Random,
    ) -> None:
        """Nothing is in flight. rng: spreads the times that clients are told."""
        self._proxy = _Share("this proxy", proxy_bytes_max)
        self._partition_max = partition_bytes_max
        self._client_max = client_bytes_max
        self._queue_s_max = queue_s_max
        self._rng = rng
        self._by_partition: dict[str, _Share] = {}
        self._by_client: dict[str, _Share] = {}
        self._bytes_per_s = 0.0
        """The speed of the partition that was loaded last; for one whose own is not known."""
        self.refusals_count = 0
        """Frames refused so far."""

    def __repr__(self) -> str:
        return f"AppendAdmission({self._by_partition}, {self._by_client})"

    def refusal_of(
        self,
        partition: str,
        client: str,
        size_bytes: int,
        *,
        proxy_bytes: int,
        waited_s: float,
        now_s: float,
        comeback: Comeback,
        batches_wait: bool,
    ) -> OverCapacityError | None:
        """Why not to take a frame of this size; None to take it.

        proxy_bytes: what is in flight in the proxy, sealed batches included. A frame that is
        larger than a bound is taken if nothing else counts towards it. waited_s: how long the
        proxy had no time for it. comeback: that of its session, which says after a refusal
        when the session may send again. batches_wait: whether some do for the partition.
        """
        self._proxy.bytes = proxy_bytes
        for share, part in (
            (self._by_partition.get(partition), _AHEAD_OF_BATCHES if batches_wait else 1.0),
            (self._by_client.get(client), _EARLY_PART),
            (self._proxy, 1.0),
        ):
            if share is not None and share.refuses(size_bytes, part):
                told = (
                    f"{share.name} has {share.bytes} bytes of unanswered appends;"
                    f" {int(part * share.bound)} are allowed"
                )
                return self._refusal(told, share, size_bytes, now_s, comeback)
        if waited_s > self._queue_s_max:
            told = f"this proxy had no time for the append for {waited_s:.1f} s"
            late = self._by_partition.get(partition, self._proxy)
            return self._refusal(told, late, size_bytes, now_s, comeback)
        return None

    def _refusal(
        self, told: str, share: _Share, size_bytes: int, now_s: float, comeback: Comeback
    ) -> OverCapacityError:
        self.refusals_count += 1
        bytes_per_s = share.speed.at(now_s) or self._bytes_per_s
        if now_s >= comeback.until_s:
            share.call_back(comeback, bytes_per_s, now_s, self._rng)
        share.expect(comeback, size_bytes, bytes_per_s)
        error = OverCapacityError(told)
        error.retry_after_s = comeback.after_s(now_s)
        return error

    def put_off(self, comeback: Comeback, now_s: float) -> None:
        """Choose when a session may come back whose frame was refused for another reason."""
        self.refusals_count += 1
        if now_s >= comeback.until_s:
            spread = self._rng.uniform(1 - _RETRY_SPREAD, 1 + _RETRY_SPREAD)
            comeback.until_s = now_s + OverCapacityError.retry_after_s * spread

    def is_calm(self, partition: str, client: str) -> bool:
        """Whether half of each bound is free: then any session may come back."""
        shares = (self._proxy, *self._shares(partition, client))
        return all(share.bytes <= share.bound // 2 for share in shares)

    def full_of(self, partition: str | None, client: str | None) -> str | None:
        """The one of these two that is full: a batch has to wait for it; None if neither is."""
        for share in self._shares(partition, client):
            if share.bytes >= share.bound:
                return share.name
        return None

    def _shares(self, partition: str | None, client: str | None) -> Iterator[_Share]:
        """Those of these two that have an entry."""
        if partition is not None and partition in self._by_partition:
            yield self._by_partition[partition]
        if client is not None and client in self._by_client:
            yield self._by_client[client]

    def take(self, partition: str | None, client: str, size_bytes: int) -> None:
        """A frame or batch was taken; without a partition while it is not known."""
        if not size_bytes:
            return
        self._proxy.bytes += size_bytes
        if partition is not None:
            share = self._by_partition.get(partition)
            if share is None:
                share = self._by_partition[partition] = _Share(partition, self._partition_max)
            share.bytes += size_bytes
        share = self._by_client.get(client)
        if share is None:
            name = f"client {client}"
            share = self._by_client[client] = _Share(name, self._client_max)
        share.bytes += size_bytes

    def give_back(
        self, partition: str | None, client: str, size_bytes: int, now_s: float
    ) -> list[str]:
        """A frame or batch was answered, or its session has ended: which of the two was freed.

        The name is that of `full_of`; it may not have been full. Without a partition it was
        not appended at all.
        """
        if not size_bytes:
            return []
        self._proxy.bytes -= size_bytes
        if partition is not None:
            self._proxy.note_speed(size_bytes, now_s)
        freed: list[str] = []
        for shares, key in ((self._by_partition, partition), (self._by_client, client)):
            if key is None:
                continue
            share = shares[key]
            before = share.bytes
            share.bytes -= size_bytes
            assert share.bytes >= 0, f"{key}: more bytes were given back than taken"
            if partition is not None:
                share.note_speed(size_bytes, now_s)
                if shares is self._by_partition:
                    self._bytes_per_s = share.speed.bytes_per_s or self._bytes_per_s
            low = _FREED_SHARE * share.bound
            if before >= low and (share.bytes < low or not share.bytes):
                freed.append(share.name)
            if not share.bytes:
                del shares[key]
        return freed


WRITERS_MAX = 64
"""Named writers on one session."""


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
        """A record was refused because of the time, not because of what it is.

        OverCapacityError if it is of one writer too many.
        """
        if writer not in self._first and len(self._first) >= WRITERS_MAX:
            raise OverCapacityError(
                f"records of {WRITERS_MAX} writers of this session were refused: open another"
                " session for more"
            )
        self._first[writer] = min(seq, self._first.get(writer, seq))

    def on_taken(self, writer: str, seq: int, count: int) -> None:
        """Records were taken: so many, from this number on."""
        first = self._first.get(writer)
        if first is not None and seq <= first < seq + count:
            del self._first[writer]
