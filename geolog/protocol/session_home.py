"""Home of a writer's session: one life of its stream, and one home epoch.

A home that moved may lack records that the former home acknowledged last. A session that went
on there would number its records after ones that the log does not have.

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
    home_epoch: int

    def check(self, partition: PartitionName, home_epoch: int) -> None:
        """HomeMovedError if the partition's owner is of another life or home epoch."""
        if partition.life != self.life:
            raise HomeMovedError(
                f"{partition} was deleted and created again since the writer was opened: open"
                " it again to write the new stream"
            )
        if home_epoch != self.home_epoch:
            raise HomeMovedError(
                f"{partition} has moved from home epoch {self.home_epoch} to {home_epoch} since"
                " the writer was opened: open it again, and read which of its last records the"
                " new home has"
            )
