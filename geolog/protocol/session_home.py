"""Home of a writer's session: one life of its stream, and homes that have all of its records.

A home that was made because the one before was lost may lack records that were acknowledged
last. A session that went on there would number its records after ones that the log does not
have. A planned move loses none, so sessions go on: they belong to the home epoch that began
with the last move that was not planned.

Rules: PROTOCOL S29.
"""

from typing import ClassVar

import attrs

from geolog.protocol.stream_state import PartitionName
from topology.errors import FencedError


class HomeMovedError(FencedError):
    """The stream has moved to another home: open the writer again."""

    retriable: ClassVar[bool] = False


@attrs.frozen
class SessionHome:
    """The home of one writer's session."""

    life: str
    session_epoch: int
    """The home epoch of the last move that may have lost records; without one, the first."""

    def check(self, partition: PartitionName, session_epoch: int) -> None:
        """HomeMovedError if the partition's owner is of another life or session epoch."""
        if partition.life != self.life:
            raise HomeMovedError(
                f"{partition} was deleted and created again since the writer was opened: open"
                " it again to write the new stream"
            )
        if session_epoch != self.session_epoch:
            raise HomeMovedError(
                f"{partition} was failed over, in home epoch {session_epoch}, since the writer"
                " was opened: open it again, and read which of its last records the new home"
                " has"
            )
