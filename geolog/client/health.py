"""Judging a cluster: what is down, what that means for its streams, what more it can take."""

import itertools
from collections import Counter
from collections.abc import Sequence

import attrs

from geolog.client.descriptions import HealthReport
from geolog.metadata.nodes import NodeRecord
from geolog.protocol.ids import InstanceId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState
from topology.placement import (
    Adherence,
    PlacementUndecidedError,
    adherence_of,
    arrange_regions,
)
from topology.quorum import QuorumConfig


@attrs.frozen
class StreamState:
    """What health needs to know of one stream: its quorums, and the ledger it ends with."""

    name: str
    quorum: QuorumConfig
    last_ledger: LedgerRecord | None


def judge(
    *,
    known: Sequence[NodeRecord],
    live: Sequence[NodeRecord],
    streams: Sequence[StreamState],
    metadata: str,
    metadata_spare: int | None,
) -> HealthReport:
    """Say whether all is well, and how many more regions may be lost.

    `metadata_spare`: servers that the metadata store can lose with a majority left, None if
    that is not known. They are taken to stand in a region each, as they should.
    """
    live_instances = {record.instance for record in live}
    reasons = [
        f"node {record.node_id} ({record.location}) is down"
        for record in known
        if record.instance not in live_instances
    ]
    if not known:
        reasons.append("no storage node has joined the cluster, or it has another name")
    reasons += [
        f"node {record.node_id} ({record.location}) takes no new entries: it is"
        f" {record.state.value}"
        for record in live
        if not record.is_writable
    ]
    for stream in streams:
        reasons += _complaints(stream, live)
    spare = _regions_spare(streams, live)
    regions = Counter(record.location.region for record in live)
    return HealthReport(
        is_healthy=not reasons,
        reasons=reasons,
        regions_spare=spare if metadata_spare is None else min(spare, metadata_spare),
        nodes_live=len(live),
        nodes_known=len(known),
        regions=dict(sorted(regions.items())),
        streams=len(streams),
        metadata=metadata,
    )


def _complaints(stream: StreamState, live: Sequence[NodeRecord]) -> list[str]:
    found = []
    if not _can_place(stream.quorum, live):
        found.append(f"stream {stream.name}: no new ledger can be placed ({stream.quorum})")
    ledger = stream.last_ledger
    if ledger is not None and ledger.state is not LedgerState.CLOSED:
        fragment = ledger.fragments[-1]
        regions = [member.location.region for member in fragment.ensemble]
        if not _acks(ledger, fragment, live):
            found.append(f"stream {stream.name}: ledger {ledger.ledger} has no ack set up")
        elif adherence_of(ledger.quorum, regions) is Adherence.SOFT:
            found.append(
                f"stream {stream.name}: ledger {ledger.ledger} would not survive the loss of"
                " another region"
            )
    return found


def _regions_spare(streams: Sequence[StreamState], live: Sequence[NodeRecord]) -> int:
    """The largest n such that any n of the regions that are up may go."""
    regions = sorted({record.location.region for record in live})
    for count in range(1, len(regions) + 1):
        choices = itertools.combinations(regions, count)
        if not all(_can_lose(lost, streams, live) for lost in choices):
            return count - 1
    return len(regions)


def _can_lose(
    lost: tuple[str, ...], streams: Sequence[StreamState], live: Sequence[NodeRecord]
) -> bool:
    left = [record for record in live if record.location.region not in lost]
    if not left:
        return False
    return all(
        _can_place(stream.quorum, left)
        and (
            stream.last_ledger is None
            or all(
                _acks(stream.last_ledger, fragment, left)
                for fragment in stream.last_ledger.fragments
            )
        )
        for stream in streams
    )


def _can_place(quorum: QuorumConfig, live: Sequence[NodeRecord]) -> bool:
    counts = Counter(record.location.region for record in live if record.is_writable)
    if counts.total() < quorum.ensemble_size:
        return False
    try:
        return arrange_regions(quorum, counts) is not None
    except PlacementUndecidedError:
        return False  # Not proven: a person should look.


def _acks(ledger: LedgerRecord, fragment: Fragment, live: Sequence[NodeRecord]) -> bool:
    up: set[InstanceId] = {record.instance for record in live}
    mask = sum(
        1 << slot for slot, member in enumerate(fragment.ensemble) if member.instance in up
    )
    return fragment.rule(ledger.quorum).acks_all(mask)
