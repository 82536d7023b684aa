"""The session with the metadata store, as this process knows it without asking."""

from geolog.metadata.seam import HeardTime, Metadata, SessionState


class MetadataSession:
    """The session behind a partition's metadata: whether it is up, and the store's time."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    @property
    def is_reachable(self) -> bool:
        """Whether the metadata store can be asked, as far as this process knows."""
        return self._metadata.session_state is SessionState.CONNECTED

    async def wait_back(self) -> None:
        """Wait for the next time that the session connects, even if it is connected now."""
        state = self._metadata.session_state
        while True:
            state = await self._metadata.wait_state_change(state)
            if state is SessionState.CONNECTED:
                return

    @property
    def timeout_s(self) -> float:
        """How long the session lives after the metadata store last heard from it."""
        return self._metadata.session_timeout_s

    @property
    def time_heard(self) -> HeardTime | None:
        """The last time that the metadata store's clock told; never None to an owner."""
        return self._metadata.time_heard
