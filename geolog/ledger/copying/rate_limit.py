"""A bound on bytes a second, for work that must leave room for others."""

import trio

from topology.errors import InvalidArgumentError


class RateLimit:
    """Lets so many bytes through a second, by trio's clock; one for all who share the bound.

    Nothing is saved up while nobody asks, so there are no bursts.
    """

    def __init__(self, bytes_per_s: float) -> None:
        if not bytes_per_s > 0:
            raise InvalidArgumentError(
                f"a rate of {bytes_per_s:g} bytes a second moves nothing"
            )
        self._bytes_per_s = bytes_per_s
        self._free_s = 0.0  # When all that was let through so far has had its time.

    async def wait(self, size_bytes: int) -> None:
        """Wait for the turn of so many bytes."""
        turn_s = max(self._free_s, trio.current_time())
        self._free_s = turn_s + size_bytes / self._bytes_per_s
        await trio.sleep_until(turn_s)
