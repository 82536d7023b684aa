"""Whether a reader waits for the owner of an open ledger, or recovers the ledger itself.

Theory of operation. A reader at the end of a partition may meet entries that nobody has told
acknowledged yet. As long as the owner lives it will; without an owner the ledger has to be
recovered, which fences its writer for good. So a reader looks whether the owner is there:

- ALIVE: it waits.
- LEFT: the owner has said so (it closed, or failed). It recovers at once.
- MISSING: the owner's ephemeral node is not there, and nobody said why. Its process may be gone,
  or its session was lost while it lives: then it shows itself again in its next session. The
  reader gives it a grace.

The grace is half a session time-out. Nothing is deposed wrongly with less, as long as an owner
that is connected is shown within one time-out: a reader looks once more before it recovers. But
with no grace at all each lost session would cost a healthy writer its partitions, since it takes
a moment to come back: a live owner needs a reconnect, a look at its session (at most an eighth
of the time-out later) and one or two round trips. Time-outs are many round trips long, or no
session would survive a lost packet; so half of one is enough for that with room to spare. More
would buy little, and costs readers of a partition whose owner died, who have waited for one
whole time-out already before the node went: in the worst case 1.5 time-outs then, which leaves
half of one, and 5 s, for the recovery itself (law 24).

The grace counts from the first look that missed the owner, and is remembered by owner epoch. A
reader that asks again and again, each time with less patience than the grace, comes to its end
all the same. It is forgotten when the owner is seen, and when nobody has looked for
`REMEMBERED_GRACES` of it: what was missing long ago may have been back, and be gone anew.

Invariants:
1. An owner that is seen alive is waited for.
2. An owner of one epoch is given the grace once in a row, however often it is looked for.
"""

from enum import Enum
from typing import Generic, TypeVar

import attrs

from geolog.protocol.ids import Epoch

GRACE_SHARE = 0.5
"""How much of a session time-out an owner may be missing before its ledger is recovered."""

REMEMBERED_GRACES = 20

Partition = TypeVar("Partition")


class OwnerSeen(Enum):
    """What a reader finds when it looks for the owner."""

    ALIVE = "alive"
    MISSING = "missing"
    LEFT = "left"


@attrs.frozen
class _Missing:
    """The owner of an epoch was missed at each look from the first to the last."""

    epoch: Epoch
    first_s: float
    last_s: float


class OwnerAbsences(Generic[Partition]):
    """The owners that the readers of one process have missed, by partition."""

    def __init__(self) -> None:
        self._missing: dict[Partition, _Missing] = {}

    def __len__(self) -> int:
        return len(self._missing)

    def on_look(
        self,
        partition: Partition,
        epoch: Epoch,
        seen: OwnerSeen,
        *,
        now_s: float,
        session_timeout_s: float,
    ) -> bool:
        """Whether to recover now what the owner of that epoch left open; else it is waited for."""
        grace_s = GRACE_SHARE * session_timeout_s
        if seen is not OwnerSeen.MISSING:
            self._missing.pop(partition, None)
            return seen is OwnerSeen.LEFT
        self._forget_before(now_s - REMEMBERED_GRACES * grace_s)
        known = self._missing.get(partition)
        is_known = known is not None and known.epoch == epoch
        first_s = known.first_s if known is not None and is_known else now_s
        self._missing[partition] = _Missing(epoch, first_s, now_s)
        return now_s - first_s >= grace_s

    def _forget_before(self, then_s: float) -> None:
        old = [one for one, missing in self._missing.items() if missing.last_s < then_s]
        for one in old:
            del self._missing[one]
