"""One process of the world: its host, its life, and its ends of the seams."""

from enum import Enum

import attrs
import trio

from sim.fakes.memory_metadata import MemoryMetadata


class Life(Enum):
    """The states of a process."""

    RUNNING = "running"
    PAUSED = "paused"
    KILLED = "killed"
    """It never runs again. Nobody hears from it, and it hears nothing."""
    ENDED = "ended"
    """It ended by itself."""


@attrs.define(eq=False)
class Process:
    """A process; its host had `incarnation` - 1 others before it."""

    host: str
    region: str
    incarnation: int
    life: Life = Life.RUNNING
    session: MemoryMetadata | None = None
    is_restarted: bool = True
    """Whether a supervisor starts another in its place when it ends with an error."""
    ended: trio.Event = attrs.field(factory=trio.Event)
    """Set when it has ended by itself."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    error: Exception | None = None
    """The error that ended it, if it ended by itself."""

    @property
    def key(self) -> str:
        """A name that no other process ever had."""
        return f"{self.host}.{self.incarnation}"

    @property
    def is_alive(self) -> bool:
        """Whether it runs or may resume."""
        return self.life in (Life.RUNNING, Life.PAUSED)
