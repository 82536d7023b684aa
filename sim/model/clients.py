"""The clients of the model: the ledger's owner and its recoverers, as real cores.

This code stands for their shells: effects become packets, and packets become answers. A client
that has finished hears nothing more.
"""

import copy
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TypeVar

import attrs

from geolog.protocol.add_window import AddWindow, SendAdd
from geolog.protocol.fencing import FenceRound
from geolog.protocol.ids import EntryId, Epoch
from geolog.protocol.ledger_state import LedgerRecord
from geolog.protocol.messages import Answer
from geolog.protocol.recovery import (
    CannotDecide,
    CloseAt,
    ReadBatch,
    Recovery,
    RecoveryEffect,
    Rewrite,
)
from sim.model.node import Packet
from sim.model.shape import FIRST_EPOCH, ModelShape

OWNER = 0
"""The owner's number; recoverers follow."""

NOT_YET = -2
"""Stands for an end that is not known yet."""

Core = TypeVar("Core", AddWindow, FenceRound, Recovery)

# States are compared by everything that a core knows.
# ruff: noqa: SLF001


@attrs.define
class Owner:
    """The ledger's first writer."""

    window: AddWindow
    is_over: bool = False

    def copied(self) -> "Owner":
        """A copy to be changed."""
        return Owner(_copied(self.window), self.is_over)

    def key(self, names: tuple[int, ...]) -> Packet:
        """Everything that it knows."""
        return (*_window_key(self.window, names), self.is_over)

    def push(self) -> list[Packet]:
        """Append one entry."""
        lac = int(self.window.lac)
        return _adds(OWNER, self.window.push(), FIRST_EPOCH, lac, is_recovery=False)

    def hear(self, packet: Packet, shape: ModelShape) -> list[Packet]:
        """Handle an answer."""
        if self.is_over:
            return []
        match packet:
            case ("synced", _, int(slot), int(entry), _):
                moved = self.window.on_synced(slot, EntryId(entry))
                if moved and shape.pushes_lac:
                    told = ("push-lac", int(FIRST_EPOCH), int(moved[-1].lac))
                    slots = range(len(shape.regions))
                    return [(told[0], OWNER, slot, *told[1:]) for slot in slots]
        return []

    def minds(self, packet: Packet) -> bool:
        """Whether an answer can still change anything."""
        return not self.is_over and int(packet[3]) > self.window.lac

    def connect_again(self, slot: int) -> list[Packet]:
        """The node restarted: send it everything that it did not confirm."""
        if self.is_over:
            return []
        return _connected_again(OWNER, self.window, slot, FIRST_EPOCH, is_recovery=False)


@attrs.define
class Recoverer:
    """A process that takes over the ledger; between attempts it has no cores."""

    number: int
    taken: LedgerRecord | None = None
    """The record that it stored, under the epoch of its attempt."""
    fence: FenceRound | None = None
    recovery: Recovery | None = None
    window: AddWindow | None = None
    end: int = NOT_YET
    """Where it will close the ledger."""

    def copied(self) -> "Recoverer":
        """A copy to be changed."""
        return Recoverer(
            self.number,
            self.taken,
            self.fence and _copied(self.fence),
            self.recovery and _copied(self.recovery),
            self.window and _copied(self.window),
            self.end,
        )

    def key(self, names: tuple[int, ...]) -> Packet:
        """Everything that it knows."""
        return (
            self.epoch,
            _fence_key(self.fence, names) if self.fence else (),
            _recovery_key(self.recovery, names) if self.recovery else (),
            _window_key(self.window, names) if self.window else (),
            self.end,
        )

    @property
    def epoch(self) -> int:
        """The epoch of its attempt; 0 if there is none."""
        return int(self.taken.epoch) if self.taken else 0

    def begin(self, taken: LedgerRecord, shape: ModelShape) -> list[Packet]:
        """Start an attempt, after the epoch was raised: forget any earlier one, and fence."""
        self.taken, self.fence = taken, FenceRound(shape.rule())
        self.recovery = self.window = None
        self.end = NOT_YET
        return [("fence", self.number, slot, self.epoch) for slot in range(len(shape.regions))]

    def give_up(self) -> None:
        """End this attempt."""
        self.taken = self.fence = self.recovery = self.window = None
        self.end = NOT_YET

    def hear(self, packet: Packet, shape: ModelShape) -> list[Packet]:
        """Handle an answer; ignore answers to an earlier attempt."""
        match packet:
            case ("fenced", _, int(slot), int(epoch), int(lac)) if epoch == self.epoch:
                return self._on_fenced(slot, lac, shape)
            case ("read-answer", _, int(slot), int(epoch), int(first), tuple(have)) if (
                epoch == self.epoch
            ):
                return self._on_answers(slot, first, have)
            case ("synced", _, int(slot), int(entry), int(epoch)) if epoch == self.epoch:
                return self._on_synced(slot, entry)
        return []

    def minds(self, packet: Packet) -> bool:
        """Whether an answer can still change anything."""
        if self.end != NOT_YET:
            return False
        match packet:
            case ("fenced", _, _, int(epoch), _):
                return epoch == self.epoch and self.recovery is None
            case ("read-answer", _, _, int(epoch), *_):
                return epoch == self.epoch
            case ("synced", _, _, int(entry), int(epoch)):
                window = self.window
                return epoch == self.epoch and window is not None and entry > window.lac
        raise AssertionError(packet)

    def time_out(self, slot: int) -> list[Packet]:
        """Note that a member did not answer its reads."""
        assert self.recovery is not None
        return self._perform(self.recovery.on_silence(slot))

    def slots_to_time_out(self) -> list[int]:
        """Members that it still waits for."""
        if self.recovery is None or self.recovery._is_over:
            return []
        size = self.recovery._rule.config.ensemble_size
        return [slot for slot in range(size) if not self.recovery._silent >> slot & 1]

    def connect_again(self, slot: int) -> list[Packet]:
        """The node restarted: send it everything that it did not confirm."""
        if self.window is None:
            return []
        epoch = Epoch(self.epoch)
        return _connected_again(self.number, self.window, slot, epoch, is_recovery=True)

    def _on_fenced(self, slot: int, lac: int, shape: ModelShape) -> list[Packet]:
        assert self.fence is not None
        for taken in self.fence.on_fenced(slot, EntryId(lac)):
            self.recovery = Recovery(
                shape.rule(),
                first=EntryId(taken.lac + 1),
                batch_entries=shape.entries_count + 1,
            )
            return self._perform(self.recovery.start())
        return []

    def _on_answers(self, slot: int, first: int, have: Sequence[bool]) -> list[Packet]:
        packets: list[Packet] = []
        for place, has in enumerate(have):
            if self.recovery is not None:
                answer = Answer.HAVE if has else Answer.ABSENT
                entry = EntryId(first + place)
                packets += self._perform(self.recovery.on_answer(slot, entry, answer))
        return packets

    def _on_synced(self, slot: int, entry: int) -> list[Packet]:
        if self.window is None or self.recovery is None:
            return []
        before = self.window.lac
        self.window.on_synced(slot, EntryId(entry))
        packets: list[Packet] = []
        for acked in range(before + 1, self.window.lac + 1):
            packets += self._perform(self.recovery.on_acked(EntryId(acked)))
        return packets

    def _perform(self, effects: Iterable[RecoveryEffect]) -> list[Packet]:
        packets: list[Packet] = []
        for effect in effects:
            match effect:
                case ReadBatch(slot=slot, first=first, count=count):
                    packet = ("read", self.number, slot, self.epoch, int(first), count)
                    packets.append(packet)
                case Rewrite(entry=entry):
                    packets += self._rewrite(entry)
                case CloseAt(last=last):
                    self.end = int(last)
                case CannotDecide():
                    self.give_up()
        return packets

    def _rewrite(self, entry: EntryId) -> list[Packet]:
        assert self.recovery is not None
        lac = EntryId(entry - 1)
        self.window = self.window or AddWindow(self.recovery._rule, lac=lac)
        sends = self.window.push()
        assert self.window.entry_next == entry + 1
        return _adds(self.number, sends, Epoch(self.epoch), int(lac), is_recovery=True)


def _adds(
    client: int, sends: Iterable[SendAdd], epoch: Epoch, lac: int, *, is_recovery: bool
) -> list[Packet]:
    return [
        ("add", client, send.slot, int(send.entry), int(epoch), lac, is_recovery)
        for send in sends
    ]


def _connected_again(
    client: int, window: AddWindow, slot: int, epoch: Epoch, *, is_recovery: bool
) -> list[Packet]:
    window.on_slot_lost(slot)
    sends = window.on_slot_back(slot)
    return _adds(client, sends, epoch, int(window.lac), is_recovery=is_recovery)


def _copied(core: Core) -> Core:
    """A copy of a core that shares nothing mutable with it."""
    twin = copy.copy(core)
    for name, value in vars(core).items():
        match value:
            case list():
                setattr(twin, name, [dict(one) for one in value])
            case _ if not isinstance(value, int):
                setattr(twin, name, copy.copy(value))
    return twin


@lru_cache(maxsize=10_000)
def _mask(mask: int, names: tuple[int, ...]) -> int:
    """The same slots, renamed."""
    return sum(1 << name for slot, name in enumerate(names) if mask >> slot & 1)


def _window_key(window: AddWindow, names: tuple[int, ...]) -> Packet:
    return (
        int(window._lac),
        tuple(_mask(confirmed, names) for confirmed in window._confirmed),
        _mask(window._lost, names),
    )


def _fence_key(fence: FenceRound, names: tuple[int, ...]) -> Packet:
    return (_mask(fence._fenced, names), int(fence._lac), fence._is_taken)


def _recovery_key(core: Recovery, names: tuple[int, ...]) -> Packet:
    return (
        int(core._first),
        tuple(
            tuple(sorted((names[slot], int(answer)) for slot, answer in answers.items()))
            for answers in core._answers
        ),
        _mask(core._silent, names),
        int(core._decided),
        tuple(sorted(core._to_ack)),
        NOT_YET if core._end is None else int(core._end),
        core._is_over,
    )
