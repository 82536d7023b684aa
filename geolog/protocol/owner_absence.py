"""Decides whether a reader waits for the owner of an open ledger, or recovers the ledger.

Theory of operation. A reader at the end of a partition may meet entries that it does not yet
know to be acknowledged. A living owner will report them once they are. Without an owner the
ledger must be recovered, which fences its writer for good. So the reader looks for the owner:

- ALIVE: the reader waits.
- LEFT: the owner recorded that it closed or failed. The reader recovers at once.
- MISSING: the ephemeral node of the owner's process is gone, and the owner did not record that
  it left. Either the process is gone, or its session was lost while it lives, and it will show
  itself again in its next session. The reader gives it a grace period.

The grace is half a session time-out. Law 26 would hold without one: a connected owner is shown
again well within one time-out, and the reader looks again before it recovers. But without a
grace every lost session would cost a healthy writer its partitions, because it takes a moment
to come back: a reconnect, a look at its session (at most an eighth of the time-out later), and
one or two round trips. A session time-out spans many round trips, or a single lost packet would
end the session, so half a time-out leaves room to spare. A longer grace would save few more
owners, at the expense of readers of a partition whose owner died: they have already waited one
whole time-out before the node went. With half a time-out they wait 1.5 time-outs at most, which
leaves half a time-out and 5 s for the recovery itself (law 24).

The grace counts from the first look that missed the owner, and is remembered by owner epoch. So
a reader that asks again and again, each time with less patience than the grace, still gets its
answer, however seldom it asks. The grace is forgotten when the owner is seen, or may have come
back unseen: metadata counts how often the node of a process was made or removed in the folder
of the owner's process, and a look that finds another count starts a new grace. Between two
looks with the same count the owner was missing throughout. A count of its own for each process
would outlive the processes. There are so many folders that processes rarely share one; if one
does come or go in a dead owner's folder, readers wait for one more grace.

Only the last `REMEMBERED_MAX` partitions whose owner was missed are remembered. A forgotten one
gives its owner a second grace.

Invariants:
1. An owner that is seen alive is waited for.
2. An owner gets the grace once each time it goes missing, however often readers look for it.

Rules: PROTOCOL R5.
"""

from collections import OrderedDict
from enum import Enum
from typing import Generic, TypeVar

import attrs

from geolog.protocol.ids import Epoch

GRACE_SHARE = 0.5
"""Share of a session time-out for which an owner may be missing before recovery."""

REMEMBERED_MAX = 10_000

Partition = TypeVar("Partition")


class OwnerSeen(Enum):
    """Outcome of a reader's look for the owner."""

    ALIVE = "alive"
    MISSING = "missing"
    LEFT = "left"


@attrs.frozen
class OwnerLook:
    """One look for the owner of a partition."""

    epoch: Epoch
    seen: OwnerSeen
    changes_count: int = 0
    """For a missing owner: how often a process's node was made or removed in its folder."""


class OwnerAbsences(Generic[Partition]):
    """The missing owners that readers of one process remember, by partition."""

    def __init__(self) -> None:
        self._missing: OrderedDict[Partition, tuple[OwnerLook, float]] = OrderedDict()
        """First look that missed the owner, and its time; most recently missed last."""

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
        """Whether to recover the ledger that this owner left open; if not, wait for it."""
        known = self._missing.pop(partition, None)
        if look.seen is not OwnerSeen.MISSING:
            return look.seen is OwnerSeen.LEFT
        first_s = known[1] if known is not None and known[0] == look else now_s
        self._missing[partition] = look, first_s
        if len(self._missing) > REMEMBERED_MAX:
            self._missing.popitem(last=False)
        return now_s - first_s >= GRACE_SHARE * session_timeout_s
