"""How far homes had come when this relay heard of them last.

Each heartbeat of a home tells the ends of its logs. When the home is lost, they are the best
that anybody knows: what it had beyond its mirrors is at risk.

Rules: PROTOCOL H22.
"""

from collections import OrderedDict
from collections.abc import Callable

import attrs
import trio

from geolog.protocol.failover_record import HeardTail

TAILS_MAX = 100_000
"""Partitions to remember; the one that was heard of least recently goes first."""


@attrs.frozen
class _Heard:
    tail: HeardTail
    heard_s: float
    """By the clock that is never set: ages are counted by it."""


class HeardTails:
    """The last tails that the relay of one region heard."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._tails: OrderedDict[tuple[str, int], _Heard] = OrderedDict()

    def __repr__(self) -> str:
        return f"HeardTails({len(self._tails)} partitions)"

    def hear(
        self,
        *,
        stream: str,
        life: str,
        partition: int,
        home: str,
        home_epoch: int,
        sequence_next: int,
        lag_bytes: int,
        tail_us: int,
        region: str,
    ) -> None:
        """A home has told the end of one of its logs; an older home is not listened to."""
        key = life, partition
        known = self._tails.get(key)
        if known is not None and known.tail.home_epoch > home_epoch:
            return
        tail = HeardTail(
            stream=stream,
            life=life,
            partition=partition,
            home=home,
            home_epoch=home_epoch,
            region=region,
            sequence_next=sequence_next,
            heard_us=self._now_us(),
            lag_bytes=lag_bytes,
            tail_us=tail_us or None,
        )
        self._tails[key] = _Heard(tail, trio.current_time())
        self._tails.move_to_end(key)
        if len(self._tails) > TAILS_MAX:
            self._tails.popitem(last=False)

    def all(self) -> tuple[HeardTail, ...]:
        """The last tail of each partition, with its age."""
        now_s = trio.current_time()
        return tuple(
            attrs.evolve(one.tail, heard_ago_s=now_s - one.heard_s)
            for one in self._tails.values()
        )
