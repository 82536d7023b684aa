"""Whether a reader waits for the owner of an open ledger, or recovers the ledger itself.

Theory of operation. A reader at the end of a partition may meet entries that were not told
acknowledged yet. As long as the owner lives it will tell; without an owner the ledger has to be
recovered, which fences its writer for good. So the reader looks for the owner:

- ALIVE: the reader waits.
- LEFT: the owner has said so, because it closed or failed. The reader recovers at once.
- MISSING: the owner's ephemeral node is gone, and the owner did not say that it leaves. Either
  its process is gone, or its session was lost while it lives: then it shows itself again in its
  next session. The reader gives it a grace.

The grace is half a session time-out. Law 26 would hold with none: an owner that is connected is
shown again well within one time-out, and the reader looks once more before it recovers. But
without a grace every lost session would cost a healthy writer its partitions, because it takes
a moment to come back: a reconnect, a look at its session (at most an eighth of the time-out
later), one or two round trips. A session time-out spans many round trips, or a single lost
packet would end the session; so half of one is enough, with room to spare. A longer grace saves
few more owners, and readers of a partition whose owner died pay for it, after they have waited
for one whole time-out before the node went. With half a time-out they wait for 1.5 at most,
which leaves half of one, and 5 s, for the recovery itself (law 24).

The grace counts from the first look that missed the owner, and is remembered by owner epoch: a
reader that asks again and again, each time with less patience than the grace, still gets its
answer. It is forgotten when the owner is seen, and when nobody has looked for
`REMEMBERED_GRACES` of it: an owner missed long ago may have been back, and be gone anew.

Invariants:
1. An owner that is seen alive is waited for.
2. An owner of one epoch gets the grace once in a row, however often readers look for it.

Rules: PROTOCOL R5.
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
        """Whether to recover what the owner of that epoch left open; if not, wait for it."""
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
