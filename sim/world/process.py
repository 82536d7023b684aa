"""One process of the world: a host's name, a life, and what it is given at the seams."""

from enum import Enum

import attrs
import trio

from sim.fakes.memory_metadata import MemoryMetadata


class Life(Enum):
    """What becomes of a process."""

    RUNNING = "running"
    PAUSED = "paused"
    KILLED = "killed"
    """It never runs again; nobody hears of it, and it hears of nothing."""
    ENDED = "ended"
    """It ended by itself."""


@attrs.define(eq=False)
class Process:
    """A process; its host has had `incarnation` - 1 others before it."""

    host: str
    region: str
    incarnation: int
    life: Life = Life.RUNNING
    session: MemoryMetadata | None = None
    is_restarted: bool = True
    """Whether another is started in its place when it ends by an error."""
    ended: trio.Event = attrs.field(factory=trio.Event)
    """Set when it has ended by itself."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    error: Exception | None = None
    """What ended it, if it ended by itself."""

    @property
    def key(self) -> str:
        """Names the process among all that ever were."""
        return f"{self.host}.{self.incarnation}"

    @property
    def is_alive(self) -> bool:
        """Whether it runs, or may run again."""
        return self.life in (Life.RUNNING, Life.PAUSED)
