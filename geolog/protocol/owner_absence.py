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
answer, however seldom it asks. It is forgotten when the owner is seen, or must have been back
unseen: metadata counts how often a node was made, or went, where owners of the partition show
that they live, and a look that finds another number is a first one again.
Between two looks of the same number the owner was missing all the time.

Only the partitions that were missed last are remembered, `REMEMBERED_MAX` of them: one that is
forgotten gives its owner a second grace.

Invariants:
1. An owner that is seen alive is waited for.
2. An owner gets the grace once each time that it goes, however often readers look for it.

Rules: PROTOCOL R5.
"""

from collections import OrderedDict
from enum import Enum
from typing import Generic, TypeVar

import attrs

from geolog.protocol.ids import Epoch

GRACE_SHARE = 0.5
"""How much of a session time-out an owner may be missing before its ledger is recovered."""

REMEMBERED_MAX = 10_000

Partition = TypeVar("Partition")


class OwnerSeen(Enum):
    """What a reader finds when it looks for the owner."""

    ALIVE = "alive"
    MISSING = "missing"
    LEFT = "left"


@attrs.frozen
class OwnerLook:
    """What a look for the owner of a partition found."""

    epoch: Epoch
    seen: OwnerSeen
    changes_count: int = 0
    """Of a missing one: how often a node of an owner of this partition was made, or went."""


class OwnerAbsences(Generic[Partition]):
    """The owners that the readers of one process have missed, by partition."""

    def __init__(self) -> None:
        self._missing: OrderedDict[Partition, tuple[OwnerLook, float]] = OrderedDict()
        """The first look that missed the owner, and when; those missed last come last."""

    def __len__(self) -> int:
        return len(self._missing)

    def on_look(
        self,
        partition: Partition,
        look: OwnerLook,
        *,
        now_s: float,
        session_timeout_s: float,
    ) -> bool:
        """Whether to recover what the owner of that epoch left open; if not, wait for it."""
        known = self._missing.pop(partition, None)
        if look.seen is not OwnerSeen.MISSING:
            return look.seen is OwnerSeen.LEFT
        first_s = known[1] if known is not None and known[0] == look else now_s
        self._missing[partition] = look, first_s
        if len(self._missing) > REMEMBERED_MAX:
            self._missing.popitem(last=False)
        return now_s - first_s >= GRACE_SHARE * session_timeout_s
