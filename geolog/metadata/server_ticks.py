"""The tick of a ZooKeeper ensemble: as its servers tell it, and as the cluster's record has it.

A follower of ZooKeeper tells its leader twice a tick, as the leader pings it, of the sessions
that it has heard from. So a session may end a part of a tick before its holder thinks so, and a
lease ends two ticks before it. A process that sets leases asks the servers (`conf`), as those
of `geolog serve zookeeper` answer, and notes the tick in the cluster's record. Where servers do
not answer `conf`, the record counts, or else ZooKeeper's own default.

Rules: PROTOCOL H25.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Sequence

import attrs
import trio

from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.nodes import ClusterRecord
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.reachability import PATIENCE_S, answer_of
from geolog.metadata.seam import BadVersionError, Freshness, Metadata
from geolog.transport.seam import Address, ConnectionFailedError, Transport

_log = logging.getLogger(__name__)

DEFAULT_TICK_S = 2.0
"""ZooKeeper's own, for servers that do not tell it: by default they do not answer `conf`."""

_QUESTION = b"conf"
_TICK = re.compile(rb"^tickTime=(\d+)$", re.MULTILINE)

AskTick = Callable[[], Awaitable[float | None]]
"""Asks the servers of one metadata store for their tick, in seconds; None if none tells it."""


async def tick_of(servers: Sequence[Address], transport: Transport) -> float | None:
    """The longest tick that a server tells, in seconds; None if none does."""
    told_s: list[float] = []

    async def ask(server: Address) -> None:
        with trio.move_on_after(PATIENCE_S):
            try:
                answer = await answer_of(server, transport, _QUESTION)
            except ConnectionFailedError:
                return
            found = _TICK.search(answer)
            if found is not None:
                told_s.append(int(found[1]) / 1000)

    async with trio.open_nursery() as nursery:
        for server in servers:
            nursery.start_soon(ask, server, name=f"ask {server}")
    return max(told_s, default=None)


async def noted_tick(metadata: Metadata, cluster: str, told_s: float | None) -> float | None:
    """The tick in the cluster's record, after what the servers have told was noted there.

    told_s: None if they told none; then it is what was noted before. None if nothing was.
    """
    path = ClusterPaths(cluster).cluster
    while True:
        found = await metadata.find(path, freshness=Freshness.LATEST)
        if found is None:
            return told_s
        record = open_document(found.data, ClusterRecord, path=path)
        if told_s is None or record.metadata_tick_s == told_s:
            return record.metadata_tick_s
        noted = attrs.evolve(record, metadata_tick_s=told_s)
        try:
            await metadata.put(path, seal_document(noted), found.version)
        except BadVersionError:
            continue
        if record.metadata_tick_s is not None:
            _log.warning(
                "the tick of ZooKeeper is %g s now; it was %g s. Leases that were set before"
                " keep their length: set --on-isolation stop again to have it follow",
                told_s,
                record.metadata_tick_s,
            )
        return told_s
