"""The writer's window of entries in flight; it decides when the LAC may advance.

Theory of operation. Entries are pushed in order. Each has a write set. A member (a slot of the
ensemble) confirms an entry once it has synced it. The LAC moves over the longest prefix in
which each entry has an ack set. A member may be lost (its connection broke, or it fell too far
behind) and may come back. Its earlier confirmations stay, because they speak for an instance
whose disk holds the entries. While members are missing, the window tells which entries can no
longer reach an ack set. Then members must be replaced, or the ledger closed at the LAC and the
rest written elsewhere.

Ensemble change. A replacement takes the slot of the member that it replaces. The new fragment
begins right above the LAC, so all entries of the window belong to it, and the window has one
rule at a time. From the moment the change is offered to metadata (`hold`) until its outcome is
known, either ensemble may be the valid one, so only slots that both share count. When the
change is stored (`change`), the confirmations of replaced members are forgotten. Those of the
others stay, and their entries are not sent again.

Invariants.
1. An entry is released only when the slots that confirmed it are an ack set of its write set.
2. The LAC never decreases, and passes an entry only together with all entries before it.
3. Only slots of an entry's write set count for it.
4. A slot's confirmations are those of its current member, and a held slot counts for nothing.

Rules: PROTOCOL N15, W1 to W3, W5, W6, W8 and W9.
"""

from collections import deque
from collections.abc import Iterable

import attrs

from geolog.protocol.ids import NO_ENTRY, EntryId
from topology.quorum import AckRule


@attrs.frozen
class AdvanceLac:
    """Every entry up to here is acknowledged: tell the waiting appends."""

    lac: EntryId


@attrs.frozen
class SendAdd:
    """Send this entry to the member at this slot."""

    slot: int
    entry: EntryId


@attrs.frozen
class WindowStatistics:
    """Fill level of the window."""

    in_flight_count: int
    lac: EntryId
    slots_lost: tuple[int, ...]
    slots_held: tuple[int, ...]


class AddWindow:
    """The core of a ledger's writer; see the module's theory of operation."""

    def __init__(self, rule: AckRule, *, lac: EntryId = NO_ENTRY) -> None:
        self._rule = rule
        self._lac = lac
        self._confirmed: deque[int] = deque()  # One mask of slots per entry from lac + 1.
        self._lost = 0
        self._counted = (1 << rule.config.ensemble_size) - 1  # All slots but those held.

    @property
    def lac(self) -> EntryId:
        """Last add confirmed."""
        return self._lac

    @property
    def entry_next(self) -> EntryId:
        """The number that the next push gets."""
        return EntryId(self._lac + 1 + len(self._confirmed))

    def push(self) -> list[SendAdd]:
        """Take the next entry; it is sent to the members of its write set that are not lost."""
        entry = self.entry_next
        self._confirmed.append(0)
        return [
            SendAdd(slot, entry)
            for slot in self._rule.write_set(entry)
            if not self._lost >> slot & 1
        ]

    def on_synced(self, slot: int, entry: EntryId) -> list[AdvanceLac]:
        """The member at `slot` has the entry on disk."""
        place = entry - self._lac - 1
        if place < 0:
            return []  # Late or repeated: the entry is acknowledged already.
        assert place < len(self._confirmed), f"entry {entry} was never pushed"
        self._confirmed[place] |= 1 << slot
        return self._release_acked_prefix() if place == 0 else []

    def on_slot_lost(self, slot: int) -> None:
        """The member does not answer now; send it nothing more."""
        self._lost |= 1 << slot

    def on_slot_back(self, slot: int) -> list[SendAdd]:
        """The member answers again; send it everything that it has not confirmed."""
        self._lost &= ~(1 << slot)
        return self.lacking(slot)

    def hold(self, slots: Iterable[int]) -> None:
        """Stop counting these slots: other members may have them, now or soon.

        The new fragment begins above the LAC of this moment.
        """
        for slot in slots:
            self._counted &= ~(1 << slot)

    def unhold(self) -> list[AdvanceLac]:
        """The ensemble surely stays as it was: count its held slots again."""
        self._counted = (1 << self._rule.config.ensemble_size) - 1
        return self._release_acked_prefix()

    def change(self, rule: AckRule, slots: Iterable[int]) -> list[AdvanceLac]:
        """Give these slots to other members.

        The new members are lost until they first come back, and then get all that they lack.
        """
        gone = 0
        for slot in slots:
            gone |= 1 << slot
        assert gone & self._counted == 0, "a slot was changed that was not held"
        self._confirmed = deque(confirmed & ~gone for confirmed in self._confirmed)
        self._lost |= gone
        self._rule = rule
        return self.unhold()

    def lacking(self, slot: int, *, first: EntryId = NO_ENTRY) -> list[SendAdd]:
        """Entries from `first` that the member has not confirmed, to be sent to it."""
        return [
            SendAdd(slot, entry)
            for entry, confirmed in self._unacknowledged()
            if entry >= first
            and not confirmed >> slot & 1
            and self._rule.write_mask(entry) >> slot & 1
        ]

    def first_stuck(self) -> EntryId | None:
        """The first entry that cannot reach an ack set unless a lost member comes back."""
        present = ~self._lost
        for entry, confirmed in self._unacknowledged():
            if not self._rule.is_ack(entry, confirmed | present):
                return entry
        return None

    def can_go_on(self) -> bool:
        """Whether every write set still has an ack set among the members that are not lost."""
        return self._rule.acks_all(~self._lost & ((1 << self._rule.config.ensemble_size) - 1))

    def slots_late(self) -> tuple[int, ...]:
        """Members of the oldest entry's write set that have not confirmed it."""
        if not self._confirmed:
            return ()
        entry = EntryId(self._lac + 1)
        return tuple(
            slot for slot in self._rule.write_set(entry) if not self._confirmed[0] >> slot & 1
        )

    def statistics(self) -> WindowStatistics:
        """A snapshot of the window."""
        return WindowStatistics(
            in_flight_count=len(self._confirmed),
            lac=self._lac,
            slots_lost=tuple(
                slot
                for slot in range(self._rule.config.ensemble_size)
                if self._lost >> slot & 1
            ),
            slots_held=tuple(
                slot
                for slot in range(self._rule.config.ensemble_size)
                if not self._counted >> slot & 1
            ),
        )

    def _unacknowledged(self) -> Iterable[tuple[EntryId, int]]:
        for place, confirmed in enumerate(self._confirmed):
            yield EntryId(self._lac + 1 + place), confirmed

    def _release_acked_prefix(self) -> list[AdvanceLac]:
        before = self._lac
        while self._confirmed and self._rule.is_ack(
            self._lac + 1, self._confirmed[0] & self._counted
        ):
            self._confirmed.popleft()
            self._lac = EntryId(self._lac + 1)
        return [AdvanceLac(self._lac)] if self._lac > before else []
