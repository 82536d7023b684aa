"""A member's life in its region's relay group: joining, watching the others, coordinating.

`GroupMember` decides; this shell looks at metadata, watches the other members over connections
of their own, and runs what a coordinator does while it is one. A membership ends with its
session, or when its coordinator was deposed; the next one begins at the end of the line.

Rules: PROTOCOL G1 to G4.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import assert_never

import attrs
import trio

from geolog.background import open_background
from geolog.metadata.relays import (
    ListedMember,
    RelayGroups,
    RelayGroupSeen,
    RelayMemberRecord,
    RelayViewRecord,
)
from geolog.metadata.seam import Metadata, SessionState
from geolog.protocol.peer_evidence import BEAT_S, PeerEvidence
from geolog.transport.message_socket import MessageTransport
from geolog.transport.peer_watch import PeerWatch
from relay.protocol.group_member import (
    BeginCoordinating,
    ClaimEpoch,
    GroupEffect,
    GroupMember,
    GroupRole,
    GroupView,
    StopCoordinating,
)
from topology.errors import GeologError

GROUP_PATH = "/relay/group"
SUBPROTOCOL_GROUP = "geolog.v1.relay-group"
_MESSAGE_BYTES_MAX = 1 << 10

_RETRY_S = 0.5
_DOUBT_BEATS = 10
"""Beats between two looks while a member is suspected."""

_log = logging.getLogger(__name__)


@attrs.define(eq=False)
class _Peer:
    """Another member, and the task that watches it."""

    watch: PeerWatch
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    async def run(self) -> None:
        with self.scope:
            await self.watch.run()


@attrs.define(eq=False)
class _Coordination:
    """What this member does as coordinator, while it runs."""

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    is_over: trio.Event = attrs.field(factory=trio.Event)


class RelayGroup:
    """This process in its region's relay group; `run` joins it."""

    def __init__(
        self,
        *,
        metadata: Metadata,
        groups: RelayGroups,
        messages: MessageTransport,
        record: RelayMemberRecord,
        coordinate: Callable[[int], Awaitable[None]],
        on_role: Callable[[GroupRole], None],
    ) -> None:
        """Be nothing yet; see `run`.

        coordinate: what a coordinator does in an epoch; it is cancelled at the epoch's end.
        on_role: hears what this member is, again and again.
        """
        self._metadata = metadata
        self._groups = groups
        self._messages = messages
        self._record = record
        self._coordinate = coordinate
        self._on_role = on_role
        self._core: GroupMember | None = None
        self._coordination: _Coordination | None = None
        self._peers: dict[int, _Peer] = {}
        self._beats_count = 0
        self._changed = trio.Event()
        self._is_lost = False
        self._has_claimed = False
        self._is_leaving = False
        self.seen: RelayGroupSeen | None = None
        """The group as it was seen last."""
        self.is_joined = trio.Event()
        """Set once this process was first a member that knows its role."""
        self._is_succeeded = trio.Event()

    def __repr__(self) -> str:
        return (
            f"RelayGroup({self._record.relay_id} in {self._record.region}: {self.role.value})"
        )

    @property
    def role(self) -> GroupRole:
        """What this process is in the group now."""
        return GroupRole.OUTSIDE if self._core is None else self._core.role

    async def run(self) -> None:
        """Be a member, again and again; never returns. After `leave` it joins no more."""
        async with open_background() as coordinations:
            while not self._is_leaving:
                try:
                    await self._be_member(coordinations)
                except GeologError as error:
                    if not error.retriable:
                        raise
                    _log.warning("%s: %s; joining again", self, error)
                    await trio.sleep(_RETRY_S)
            await trio.sleep_forever()  # The caller ends the rest.

    async def leave(self) -> None:
        """Leave, and return once another member coordinates; the caller bounds the time.

        What this member does as coordinator goes on until the caller ends it.
        """
        self._is_leaving = True
        core = self._core
        if core is None:
            return
        core.on_leaving()
        has_others = self.seen is not None and len(self.seen.members) > 1
        await self._groups.leave(self._record.region, core.number)
        if core.coordinates_in and has_others:
            await self._is_succeeded.wait()

    async def _be_member(self, coordinations: trio.Nursery) -> None:
        """Join, and return once the membership is over."""
        number = await self._groups.join(self._record)
        core = self._core = GroupMember(number)
        self._is_lost = self._has_claimed = False
        try:
            async with open_background() as nursery:
                nursery.start_soon(self._watch_session)
                nursery.start_soon(self._beat)
                while not self._is_lost:
                    self._changed = trio.Event()
                    try:
                        is_over = await self._look(core, nursery, coordinations)
                    except GeologError as error:
                        if not error.retriable:
                            raise
                        with trio.move_on_after(_RETRY_S):
                            await self._changed.wait()
                        continue
                    if is_over:
                        break
                    await self._changed.wait()
        finally:
            with trio.CancelScope(shield=True):
                await self._perform(core, core.on_session_lost(), coordinations)
            self._peers.clear()
        if not self._is_leaving:
            self._on_role(GroupRole.OUTSIDE)
            self._core = None
            with suppress(GeologError):  # It goes with the session.
                await self._groups.leave(self._record.region, number)

    async def _look(
        self, core: GroupMember, nursery: trio.Nursery, coordinations: trio.Nursery
    ) -> bool:
        """See how the group stands, and act on it; whether this membership is over."""
        seen = self.seen = await self._groups.look(self._record.region, changed=self._changed)
        others = [one for one in seen.members if one.number != core.number]
        self._follow(others, nursery)
        did_coordinate = core.coordinates_in > 0
        numbers = tuple(one.number for one in seen.members)
        view, now_s = _view_of(seen.view), trio.current_time()
        core.note_suspected(
            dead=self._those(lambda one: one.is_refused),
            silent=self._those(lambda one: one.is_suspected and not one.is_refused),
        )
        effects = core.on_seen(numbers, view, now_s=now_s)
        if self._has_claimed:
            self._has_claimed = False
            effects += core.on_claim_ended(now_s=now_s)
        await self._perform(core, effects, coordinations)
        self._on_role(core.role)
        self.is_joined.set()
        return core.role is GroupRole.OUTSIDE or (did_coordinate and not core.coordinates_in)

    async def _perform(
        self, core: GroupMember, effects: list[GroupEffect], coordinations: trio.Nursery
    ) -> None:
        for effect in effects:
            match effect:
                case ClaimEpoch():
                    await self._claim(core.number, effect)
                case BeginCoordinating(epoch):
                    _log.warning("%s: coordinates in epoch %d", self, epoch)
                    self._coordination = _Coordination()
                    coordinations.start_soon(self._run, self._coordination, epoch)
                case StopCoordinating(why):
                    await self._stop(why)
                case _:
                    assert_never(effect)

    async def _claim(self, number: int, claim: ClaimEpoch) -> None:
        """Try to become the coordinator; look again, however that ended."""
        self._has_claimed = True
        self._changed.set()
        assert self.seen is not None
        view = RelayViewRecord(
            epoch=claim.epoch,
            number=number,
            relay_id=self._record.relay_id,
            address=self._record.address,
            is_of_silence=claim.is_of_silence,
        )
        await self._groups.claim(self._record.region, view, seen_version=self.seen.view_version)

    async def _run(self, coordination: _Coordination, epoch: int) -> None:
        try:
            with coordination.scope:
                await self._coordinate(epoch)
        finally:
            coordination.is_over.set()

    async def _stop(self, why: str) -> None:
        """End the coordination; one that leaves has its caller end it in good order."""
        if self._is_leaving:
            self._is_succeeded.set()
            return
        _log.warning("%s: coordinates no more: %s", self, why)
        coordination, self._coordination = self._coordination, None
        assert coordination is not None
        coordination.scope.cancel(reason=why)
        await coordination.is_over.wait()

    async def _watch_session(self) -> None:
        state = SessionState.CONNECTED
        while state is not SessionState.LOST:
            state = await self._metadata.wait_state_change(state)
        self._is_lost = True
        self._changed.set()

    # The other members.

    def _follow(self, others: list[ListedMember], nursery: trio.Nursery) -> None:
        """Watch the others that are listed."""
        listed = {one.number: one for one in others}
        for number in self._peers.keys() - listed.keys():
            self._peers.pop(number).scope.cancel(reason="not listed any more")
        for number, member in listed.items():
            if number not in self._peers:
                peer = self._peers[number] = _Peer(
                    PeerWatch(
                        messages=self._messages,
                        address=member.record.address,
                        path=GROUP_PATH,
                        subprotocol=SUBPROTOCOL_GROUP,
                        message_bytes_max=_MESSAGE_BYTES_MAX,
                        on_change=self._on_evidence,
                    )
                )
                nursery.start_soon(peer.run, name=f"watch of {member.record.relay_id}")

    def _those(self, is_so: Callable[[PeerEvidence], bool]) -> frozenset[int]:
        return frozenset(
            number for number, peer in self._peers.items() if is_so(peer.watch.evidence)
        )

    def _on_evidence(self, before: PeerEvidence, after: PeerEvidence) -> None:
        if before.is_suspected != after.is_suspected:
            self._changed.set()

    async def _beat(self) -> None:
        while True:
            await trio.sleep(BEAT_S)
            for peer in self._peers.values():
                peer.watch.beat()
            self._beats_count += 1
            if self._beats_count % _DOUBT_BEATS == 0 and self._those(_is_suspected):
                self._changed.set()  # What time alone permits.


def _is_suspected(evidence: PeerEvidence) -> bool:
    return evidence.is_suspected


def _view_of(record: RelayViewRecord | None) -> GroupView:
    if record is None:
        return GroupView()
    return GroupView(
        epoch=record.epoch, coordinator=record.number, is_of_silence=record.is_of_silence
    )
