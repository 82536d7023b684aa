"""Bounds what the requests of one client cost ZooKeeper, on which owners and leases live.

Theory of operation. A request has a price, in requests to ZooKeeper. A client may run up a debt
of `DEBT_MAX`, which `PER_S` a second pay off; beyond it, its requests are refused until it has
paid. So many requests at once are served, and a flood of them is not. The last one may pass the
bound.

Invariant: at most `CLIENTS_MAX` clients have an entry; those that have paid go first, then
those that asked longest ago.
"""

from topology.errors import OverCapacityError

PER_S = 200.0
DEBT_MAX = 2000.0
CLIENTS_MAX = 10_000


class ClientPace:
    """The debts of all clients."""

    def __init__(self) -> None:
        self._debts: dict[str, tuple[float, float]] = {}
        """Each client's debt, and when it was that, the longest ago first."""

    def __repr__(self) -> str:
        return f"ClientPace({len(self._debts)} clients)"

    def __len__(self) -> int:
        return len(self._debts)

    def refusal_of(self, client: str, cost: float, now_s: float) -> OverCapacityError | None:
        """Charge a client for a request that costs so much; or why not to serve it."""
        debt = self._debt_of(client, now_s)
        if debt >= DEBT_MAX:
            error = OverCapacityError(
                f"{client} sends too many requests that ask ZooKeeper; {PER_S:g} a second are"
                " its share"
            )
            error.retry_after_s = max(0.1, (debt + cost - DEBT_MAX) / PER_S)
            return error
        if cost:
            self._debts.pop(client, None)
            self._debts[client] = debt + cost, now_s
            self._forget_some(now_s)
        return None

    def _debt_of(self, client: str, now_s: float) -> float:
        debt, at_s = self._debts.get(client, (0.0, now_s))
        return max(0.0, debt - (now_s - at_s) * PER_S)

    def _forget_some(self, now_s: float) -> None:
        while self._debts:
            oldest = next(iter(self._debts))
            if self._debt_of(oldest, now_s) and len(self._debts) <= CLIENTS_MAX:
                return
            del self._debts[oldest]
