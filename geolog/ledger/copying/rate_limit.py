"""A limit in bytes per second, for work that must leave room for other traffic."""

import trio

from topology.errors import InvalidArgumentError


class RateLimit:
    """Limits bytes per second, by trio's clock; share one among all users of the limit.

    Unused time is not saved up, so there are no bursts.
    """

    def __init__(self, bytes_per_s: float) -> None:
        if not bytes_per_s > 0:
            raise InvalidArgumentError(f"bytes_per_s must be positive, got {bytes_per_s:g}")
        self._bytes_per_s = bytes_per_s
        self._free_s = 0.0  # When everything let through so far has had its time.

    async def wait(self, size_bytes: int) -> None:
        """Wait until so many bytes may be sent."""
        turn_s = max(self._free_s, trio.current_time())
        self._free_s = turn_s + size_bytes / self._bytes_per_s
        await trio.sleep_until(turn_s)
