"""The seam between a named writer's session and the owner of a partition: its values.

A session fences each partition before it appends there: older sessions of the writer can then
append nothing more. The owner answers with what its partition knows of the writer.
"""

import attrs

NO_NONCE = 0
"""Nonce of an epoch that no fence began: a log of earlier versions has such epochs."""

NONCE_MAX = (1 << 128) - 1


@attrs.frozen
class WriterFence:
    """The beginning of a session: its epoch, and a nonce that no other session draws."""

    epoch: int
    nonce: int
