"""Keeping this process visible in metadata, in each session, and giving back what it left.

`OwnerPresence` decides; this shell sends the requests and reports the answers. It lives as long
as the process's log. The process is shown from its first claim of a partition on; an owner that
could not leave in metadata before its block ended leaves later. The shell hears of each claim
before metadata does. A claim whose answer was lost, or which nobody awaits any more, may have
succeeded, and an owner that nobody remembers would keep readers waiting for as long as the
process lives.

Rules: PROTOCOL O12, O13, O14 and O17.
"""

import itertools
import logging
import math
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import assert_never

import attrs
import trio

from geolog.background import all_of, open_background
from geolog.catalog.offers import Offer
from geolog.catalog.partition_owners import (
    FindChecks,
    OwnerClaim,
    PartitionOwners,
    VersionedOwner,
    no_checks,
)
from geolog.catalog.process_presence import ProcessPresence
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import Metadata, SessionState
from geolog.protocol.ids import ProcessId
from geolog.protocol.owner_presence import (
    NO_SESSION,
    Ask,
    Confirm,
    OwnerPresence,
    Release,
    Show,
)
from geolog.protocol.stream_state import OwnerRecord, PartitionName
from topology.errors import GeologError, NoSuchStreamError, OutcomeUnknownError

_log = logging.getLogger(__name__)

_LOOKS_PER_TIMEOUT = 8
"""The session is polled too, since a quick loss and return shows no change of state."""

_LOOK_S_MAX = 1.0

_OFFER_MARK = "-"
"""Between a process and the count of its offer; a claim of its own has a space there."""


@attrs.define(eq=False)
class _Shown:
    """An owner of this process, or a claim that may have made one."""

    claim: OwnerClaim
    claimed_in: int
    """The session that was current when the claim was sent."""
    owner: VersionedOwner | None = None
    """None until the claim is known to have succeeded."""
    on_deposed: Callable[[GeologError], None] | None = None
    why_deposed: GeologError | None = None
    is_refusal_told: bool = False
    released: trio.Event = attrs.field(factory=trio.Event)


class ShownOwners:
    """The owners of one process; `open_shown_owners` makes it."""

    def __init__(
        self,
        metadata: Metadata,
        paths: ClusterPaths,
        owners: PartitionOwners,
        rng: random.Random,
    ) -> None:
        self._metadata = metadata
        self._owners = owners
        self._process = ProcessId(f"{rng.getrandbits(64):016x}")
        self._node = ProcessPresence(metadata, paths, self._process)
        self._showing = trio.Lock()
        self._claim_counts = itertools.count(1)
        self._core = OwnerPresence(rng)
        self._shown: dict[str, _Shown] = {}
        """Keyed by the id of the claim."""
        self._wake = trio.Event()

    def __repr__(self) -> str:
        return f"ShownOwners({self._process}, {self._core!r})"

    async def take(
        self,
        name: PartitionName,
        who: str,
        *,
        find_checks: FindChecks = no_checks,
        lease_s: float | None = 0.0,
    ) -> VersionedOwner:
        """Become the owner, and show it from now on, until it is released.

        find_checks, lease_s: as of `PartitionOwners.take_ownership`. No owner is left behind,
        however this ends. SealedError, NoSuchStreamError.
        """
        return await self._owners.take_ownership(
            name, who, self, find_checks=find_checks, lease_s=lease_s
        )

    # The process and its node.

    @property
    def presence(self) -> str:
        """The path of the node that shows that this process is alive."""
        return self._node.path

    async def be_present(self) -> None:
        """Make the node, unless it exists in the current session. Raises why it cannot."""
        self._core.on_wanted()
        while self._core.is_hidden(self._metadata.session_id):
            with suppress(OutcomeUnknownError):
                await self._show()

    async def _show(self) -> None:
        async with self._showing:
            session = self._metadata.session_id
            if not self._core.is_hidden(session):
                return  # Made while this waited for its turn.
            await self._node.show()
            # If the session changed meanwhile, it is not known in which the node was made.
            if self._metadata.session_id == session:
                self._core.on_shown(session)
                self._wake.set()

    def on_absent(self) -> None:
        """Look again whether the node exists."""
        self._core.on_absent()

    def new_claim_id(self) -> str:
        """An id for a claim: that of this process, and a count."""
        return f"{self._process} {next(self._claim_counts)}"

    def new_offer(self, who: str) -> Offer:
        """An offer of this process to take partitions over; nobody can see it yet."""
        offer_id = f"{self._process}{_OFFER_MARK}{next(self._claim_counts)}"
        return Offer(offer_id=offer_id, owner=who, presence=self.presence)

    # Outcomes of the claims of this process.

    def adopt(self, claim: OwnerClaim, owner: VersionedOwner) -> bool:
        """Take up a claim that another process stored for an offer of this one.

        Each is taken up once: a second owner of this process takes the next epoch.
        """
        key, session = _key(claim), self._metadata.session_id
        is_for_us = key.startswith(f"{self._process}{_OFFER_MARK}")
        # Without a presence, the owner that took it up has left.
        if not is_for_us or claim.record.presence != self.presence or key in self._shown:
            return False
        self._shown[key] = _Shown(claim, session, owner)
        self._core.on_claimed(key)
        self._core.on_taken(key, NO_SESSION)
        self._wake.set()
        return True

    def on_claimed(self, claim: OwnerClaim) -> None:
        """Remember the claim before metadata has it."""
        self._shown[_key(claim)] = _Shown(claim, self._metadata.session_id)
        self._core.on_claimed(_key(claim))

    def on_taken(self, claim: OwnerClaim, owner: VersionedOwner) -> None:
        """Show this owner from now on."""
        shown = self._shown[_key(claim)]
        shown.owner = owner
        # A session's requests are never carried out after the next session has begun.
        is_known = self._metadata.session_id == shown.claimed_in
        self._core.on_taken(_key(claim), shown.claimed_in if is_known else NO_SESSION)
        self._wake.set()

    def on_refused(self, claim: OwnerClaim) -> None:
        """Forget the claim."""
        self._core.on_refused(_key(claim))
        del self._shown[_key(claim)]

    def on_in_doubt(self, claim: OwnerClaim) -> None:
        """Check in the background whether the claim succeeded, and if so, give it back."""
        self._core.on_in_doubt(_key(claim))
        self._wake.set()

    # Events of owners, and callbacks to them.

    def tell_deposed(
        self, owner: OwnerRecord, on_deposed: Callable[[GeologError], None]
    ) -> None:
        """Register a callback: it is called once if this owner proves to be deposed."""
        shown = self._shown.get(owner.claim_id)
        if shown is None:
            return
        shown.on_deposed = on_deposed
        if shown.why_deposed is not None:
            on_deposed(shown.why_deposed)

    def release_nowait(self, owner: VersionedOwner) -> None:
        """Record that this owner has left; does nothing if it is already released."""
        shown = self._shown.get(owner.record.claim_id)
        if shown is not None:
            shown.owner = owner
            self._core.on_left(_key(shown.claim))
            self._wake.set()

    async def release(self, owner: VersionedOwner) -> None:
        """Record that this owner has left, and wait for metadata; the caller bounds that."""
        shown = self._shown.get(owner.record.claim_id)
        if shown is not None:
            self.release_nowait(owner)
            await shown.released.wait()

    def on_given(self, owner: VersionedOwner) -> None:
        """Forget an owner: its successor's record has replaced its own."""
        shown = self._shown.pop(owner.record.claim_id, None)
        if shown is not None:
            self._core.on_given(_key(shown.claim))
            shown.released.set()

    async def run(self) -> None:
        """Send requests to metadata as they become due; never returns."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_session)
            while True:
                self._wake = trio.Event()
                if self._metadata.session_state is SessionState.CONNECTED:
                    session = self._metadata.session_id
                    for ask in self._core.due(session, trio.current_time()):
                        nursery.start_soon(self._perform, ask, session)
                with trio.move_on_at(self._next_look_s()):
                    await self._wake.wait()

    def _next_look_s(self) -> float:
        if not self._core.is_wanted:
            return math.inf
        look_s = min(_LOOK_S_MAX, self._metadata.session_timeout_s / _LOOKS_PER_TIMEOUT)
        next_s = trio.current_time() + look_s
        if self._metadata.session_state is not SessionState.CONNECTED:
            return next_s
        return min(next_s, self._core.next_due_s(self._metadata.session_id))

    async def _follow_session(self) -> None:
        state = self._metadata.session_state
        while True:
            state = await self._metadata.wait_state_change(state)
            if state is SessionState.CONNECTED:
                self._core.on_connected(trio.current_time())
            self._wake.set()

    async def _perform(self, ask: Ask, session: int) -> None:
        match ask:
            case Show():
                await self._try_to_show()
            case Confirm(owners):
                await self._confirm(owners, session)
            case Release(owner):
                await self._release(owner)
            case _:
                assert_never(ask)
        self._wake.set()

    async def _try_to_show(self) -> None:
        is_done = False
        with suppress(GeologError):  # Retried after a pause.
            await self._show()
            is_done = True
        self._core.on_show_ended(
            trio.current_time(),
            is_done=is_done,
            session_timeout_s=self._metadata.session_timeout_s,
        )

    async def _confirm(self, asked: Sequence[str], session: int) -> None:
        """Tell owners that were deposed, and why. Others are confirmed, or not known yet."""
        names = {key: self._shown[key].claim.name for key in asked}
        known: set[str] = set()
        with suppress(GeologError):  # Retried after a pause.
            lost = set(await self._owners.possibly_lost(list(names.values())))
            doubted = [key for key in asked if names[key] in lost and key in self._shown]
            are_known = await all_of([partial(self._find_out, key) for key in doubted])
            unknown = {
                key for key, is_known in zip(doubted, are_known, strict=True) if not is_known
            }
            known = set(asked) - unknown
        self._core.on_confirmed([key for key in asked if key in known], session)
        self._miss([key for key in asked if key not in known])

    async def _find_out(self, key: str) -> bool:
        """Find out whether the owner was deposed, and if so, tell it; whether that is known."""
        shown = self._shown.get(key)
        if shown is None:
            return True  # It was given to a successor meanwhile.
        assert shown.owner is not None, f"{key} is shown, and did not take its partition"
        try:
            why = await self._owners.why_deposed(shown.claim.name, shown.owner.record)
        except GeologError:
            return False
        if why is not None and shown.why_deposed is None and key in self._shown:
            shown.why_deposed = why
            self._core.on_left(key)
            if shown.on_deposed is not None:
                shown.on_deposed(why)
        return True

    async def _release(self, key: str) -> None:
        shown = self._shown.get(key)
        if shown is None:
            return  # It was given to a successor meanwhile.
        try:
            if shown.owner is None:
                await self._owners.release_claim(shown.claim)
            else:
                await self._owners.release_ownership(shown.claim.name, shown.owner)
        except NoSuchStreamError:
            pass  # The whole stream is gone.
        except GeologError as error:
            if error.retriable:
                self._miss([key])
            else:
                self._refuse(shown, error)
            return
        if self._shown.pop(key, None) is not None:
            self._core.on_released(key)
            shown.released.set()

    def _refuse(self, shown: _Shown, error: GeologError) -> None:
        """Warn once, and go on retrying: readers wait for this owner until it is released."""
        if not shown.is_refusal_told:
            shown.is_refusal_told = True
            _log.warning(
                "owner %s: cannot release %s in metadata (%s); readers wait at the end of this"
                " partition until it is released. Retrying at growing intervals: fix the cause,"
                " or end this process",
                shown.claim.record.owner,
                shown.claim.name,
                error,
            )
        self._core.on_refused_release(_key(shown.claim), trio.current_time())

    def _miss(self, asked: Sequence[str]) -> None:
        self._core.on_missed(asked, trio.current_time())


def _key(claim: OwnerClaim) -> str:
    return claim.record.claim_id


@asynccontextmanager
async def open_shown_owners(
    metadata: Metadata, paths: ClusterPaths, owners: PartitionOwners, rng: random.Random
) -> AsyncIterator[ShownOwners]:
    """Show the owners of a process while the block lasts; soon after, the session ends."""
    async with open_background() as nursery:
        shown = ShownOwners(metadata, paths, owners, rng)
        nursery.start_soon(shown.run, name="owners shown")
        yield shown
