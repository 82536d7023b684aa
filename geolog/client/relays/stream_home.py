"""Where the home of a stream is."""

import attrs

from geolog.protocol.stream_state import StreamRecord


@attrs.frozen(kw_only=True)
class StreamHome:
    """The home of one stream now."""

    region: str | None
    """None for a global stream."""
    home_epoch: int
    """Counts its homes."""
    moving_to: str
    """The region to which it is being moved; empty if it is not."""

    @property
    def told(self) -> str:
        """The home in words."""
        moving = f", and it is being moved to {self.moving_to}" if self.moving_to else ""
        return f"its home is {self.region}{moving}"


def home_of(record: StreamRecord) -> StreamHome:
    """The home of a stream by its settings."""
    return StreamHome(
        region=record.home, home_epoch=record.home_epoch, moving_to=record.moving_to
    )
