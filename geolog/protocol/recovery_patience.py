"""Decides for how long to leave a ledger to the recovery that another process runs.

Theory of operation. A ledger IN_RECOVERY is fenced, so its writer is over already, but the
process that took the epoch may have died since. A reader that needs the end leaves that
recovery alone for `PATIENCE_S`, counted from its first look that found this epoch; then it
runs its own recovery, which takes the next epoch. Another epoch is another recovery, and gets
the same patience. The time is remembered by ledger, so a reader that asks again and again,
each time with less patience than this, still gets its answer.

Only the last `REMEMBERED_MAX` ledgers are remembered. A forgotten recovery gets the
whole time again.

Rules: PROTOCOL R5.
"""

from collections import OrderedDict

from geolog.protocol.ids import Epoch, LedgerId

PATIENCE_S = 2.0
"""How long a recovery that another process runs is left alone."""

REMEMBERED_MAX = 10_000


class RecoveryPatience:
    """The recoveries of others that the readers of one process have seen, by ledger."""

    def __init__(self) -> None:
        self._seen: OrderedDict[LedgerId, tuple[Epoch, float]] = OrderedDict()
        """Epoch of the last recovery seen, and since when; most recently seen last."""

    def __len__(self) -> int:
        return len(self._seen)

    def on_recovery(self, ledger: LedgerId, epoch: Epoch, *, now_s: float) -> bool:
        """Whether to recover the ledger, found IN_RECOVERY; if not, leave it alone."""
        known = self._seen.pop(ledger, None)
        since_s = known[1] if known is not None and known[0] == epoch else now_s
        self._seen[ledger] = epoch, since_s
        if len(self._seen) > REMEMBERED_MAX:
            self._seen.popitem(last=False)
        return now_s - since_s >= PATIENCE_S

    def on_closed(self, ledger: LedgerId) -> None:
        """The ledger is CLOSED: forget its recovery."""
        self._seen.pop(ledger, None)
