"""Connections that a proxy takes at one port, or channels: how many in all, and of each client.

A client is an address, see `geolog.transport.client_address`. No client gets more than its
share, so one that opens connections without end cannot keep all others out.
"""

import math

from topology.errors import OverCapacityError


class ClientConnections:
    """Counts the connections that are served; those that are turned away do not count."""

    def __init__(
        self, connections_max: int, client_share: float, what: str = "connections"
    ) -> None:
        self._what = what
        self._max = connections_max
        self._client_max = max(1, math.ceil(connections_max * client_share))
        self._by_client: dict[str, int] = {}
        self._count = 0

    def __repr__(self) -> str:
        return f"ClientConnections({self._count} of {len(self._by_client)} clients)"

    def take(self, client: str) -> OverCapacityError | None:
        """Count a connection of this client; if there is no room for it, why."""
        if self._count >= self._max:
            return OverCapacityError(f"this proxy has {self._max} {self._what} already")
        count = self._by_client.get(client, 0)
        if count >= self._client_max:
            return OverCapacityError(
                f"{client} has {count} {self._what} to this proxy already, which is its share"
            )
        self._count += 1
        self._by_client[client] = count + 1
        return None

    def give_back(self, client: str) -> None:
        """A connection that was taken has ended."""
        self._count -= 1
        self._by_client[client] -= 1
        if not self._by_client[client]:
            del self._by_client[client]
