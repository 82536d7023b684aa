"""A storage node of the model: the real replica core, and a journal that syncs now and then.

This code stands for the node's shell. Effects are performed in order. Records go to a journal;
power loss takes those that were not synced. Messages are tuples here, `(kind, client, slot,
...)`, so that states can be compared; the core gets real ones.
"""

from collections.abc import Sequence
from typing import Any

import attrs

from geolog.protocol.ids import EntryId, Epoch
from geolog.protocol.messages import (
    Add,
    AddRefused,
    Answer,
    Fence,
    Fenced,
    PushLac,
    Read,
    Refused,
)
from geolog.protocol.replica import (
    NOTHING_HELD,
    AcknowledgeAdd,
    AnswerRead,
    Effect,
    Held,
    LedgerReplica,
    LedgerRequest,
    PersistEntry,
    PersistFence,
    Reply,
    ReplySynced,
)
from sim.model.shape import FIRST_EPOCH, LEDGER, ModelShape
from topology.errors import GeologError

Packet = tuple[Any, ...]  # type: ignore[explicit-any]  # What it says is by its kind.
"""A message on its way: its kind, the client, the node's slot, and its content."""

_HELD = Held(Answer.HAVE)


class LawBrokenError(GeologError):
    """The model reached a state that a law forbids."""


@attrs.define
class ModelNode:
    """One node; code changes only a node that it has just copied."""

    slot: int
    replica: LedgerReplica
    entries: frozenset[int] = frozenset()
    """The entries it has, in memory or on disk."""
    unsynced: tuple[Packet, ...] = ()
    """Records of its journal that are not on disk."""
    synced_replica: tuple[int, bool, int, int] = (FIRST_EPOCH, False, -1, -1)
    """The result of replaying the records on disk."""
    synced_entries: frozenset[int] = frozenset()
    waiting: tuple[Packet, ...] = ()
    """Answers that wait for a sync."""
    promised_epoch: int = 0
    """The highest fence that it has acknowledged (law 7)."""
    absences: frozenset[int] = frozenset()
    """Entries that it reported ABSENT to a recovery (law 6)."""
    _keys: dict[object, Packet] = attrs.field(factory=dict, init=False, eq=False)
    """A cache for `key`, which many states ask for."""
    _minded: dict[Packet, bool] = attrs.field(factory=dict, init=False, eq=False)
    """A cache for `minds`."""

    @classmethod
    def opened(cls, shape: ModelShape, slot: int) -> "ModelNode":
        """A node that durably knows the ledger, and has none of its entries."""
        replica = LedgerReplica(LEDGER, shape.instance(slot))
        replica.restore_open(FIRST_EPOCH)
        return cls(slot, replica)

    def copied(self) -> "ModelNode":
        """A copy to be changed."""
        return attrs.evolve(self, replica=attrs.evolve(self.replica))

    def key(self, names: tuple[int, ...]) -> Packet:
        """Everything that distinguishes it from other nodes, except its slot."""
        key = self._keys.get(names)
        if key is None:
            key = self._keys[names] = self._key(names)
        return key

    def _key(self, names: Sequence[int]) -> Packet:
        return (
            _fields(self.replica),
            tuple(sorted(self.entries)),
            self.unsynced,
            self.synced_replica,
            tuple(sorted(self.synced_entries)),
            tuple(renamed(packet, names) for packet in self.waiting),
            self.promised_epoch,
            tuple(sorted(self.absences)),
        )

    def receive(self, packet: Packet) -> list[Packet]:
        """Handle a request; return its immediate answers."""
        at_once: list[Packet] = []
        for effect in self.replica.on(self._request(packet), self._held):
            at_once += self._perform(effect, packet[1], packet)
        return at_once if self.unsynced else at_once + self._release()

    def minds(self, packet: Packet) -> bool:
        """Whether the request, now or after a restart, could lead to more than a refusal."""
        is_minded = self._minded.get(packet)
        if is_minded is None:
            is_minded = self._minded[packet] = self._would_mind(packet)
        return is_minded

    def _would_mind(self, packet: Packet) -> bool:
        if packet[0] == "push-lac":  # A restart may lose a LAC that is known now.
            return not self.replica.is_fenced
        twin = self.copied()
        answers = twin.receive(packet)
        return bool(answers or twin.unsynced) or twin.replica != self.replica

    def sync(self) -> list[Packet]:
        """Put all records on disk; return the answers that waited for them."""
        self._replay_synced(self.unsynced)
        self.unsynced = ()
        return self._release()

    def lose_power(self, kept_count: int) -> None:
        """Keep this many of the unsynced records on disk; the rest is gone.

        The node restarts, and syncs what it found before it answers.
        """
        self._replay_synced(self.unsynced[:kept_count])
        epoch, is_fenced, lac, entry_highest = self.synced_replica
        self.replica = attrs.evolve(
            self.replica,
            epoch_highest=Epoch(epoch),
            is_fenced=is_fenced,
            lac=EntryId(lac),
            entry_highest=EntryId(entry_highest),
        )
        self.entries = self.synced_entries
        self.unsynced = self.waiting = ()

    @property
    def has_to_lose(self) -> bool:
        """Whether it knows anything that is not on disk."""
        return bool(self.unsynced) or _fields(self.replica) != self.synced_replica

    def check(self) -> None:
        """Law 7: an acknowledged fence is on disk, and in force."""
        on_disk = self.synced_replica
        if self.promised_epoch and not (on_disk[0] >= self.promised_epoch and on_disk[1]):
            raise LawBrokenError(f"7: node {self.slot} does not have its fence on disk")
        known = self.replica
        if self.promised_epoch and not (
            known.is_fenced and known.epoch_highest >= self.promised_epoch
        ):
            raise LawBrokenError(f"7: node {self.slot} forgot its fence")

    def _request(self, packet: Packet) -> LedgerRequest:
        instance = self.replica.instance
        match packet:
            case ("add", _, _, int(entry), int(epoch), int(lac), bool(is_recovery)):
                return Add(
                    ordinal=entry,
                    ledger=LEDGER,
                    entry=EntryId(entry),
                    epoch=Epoch(epoch),
                    lac=EntryId(lac),
                    is_recovery=is_recovery,
                    wants_received=False,
                    instance=instance,
                    body=b"",
                    body_crc=0,
                )
            case ("fence", _, _, int(epoch)):
                return Fence(0, LEDGER, Epoch(epoch), instance)
            case ("read", _, _, int(epoch), int(first), int(count)):
                return Read(0, LEDGER, EntryId(first), count, 1, 1, Epoch(epoch), instance)
            case ("push-lac", _, _, int(epoch), int(lac)):
                return PushLac(LEDGER, Epoch(epoch), EntryId(lac), instance)
        raise AssertionError(packet)

    def _held(self, _ledger: object, entry: EntryId) -> Held:
        return _HELD if entry in self.entries else NOTHING_HELD

    def _perform(self, effect: Effect, client: int, packet: Packet) -> list[Packet]:
        """Return the answers that are sent before a sync: the laws look at those too."""
        match effect:
            case PersistFence(epoch=epoch):
                self.unsynced += (("fence", int(epoch)),)
            case PersistEntry(add=add):
                self._persist(add)
            case AcknowledgeAdd(ordinal=entry):
                self.waiting += (("synced", client, self.slot, entry, packet[4]),)
            case ReplySynced(message=Fenced(lac=lac)):
                self.waiting += (("fenced", client, self.slot, packet[3], int(lac)),)
            case Reply(message=Fenced(lac=lac)):
                return [self._released(("fenced", client, self.slot, packet[3], int(lac)))]
            case AnswerRead(is_synced=True):
                self.waiting += (("answers", client, self.slot, *packet[3:]),)
            case AnswerRead():
                return [self._answered(client, *packet[3:])]
            case Reply(message=AddRefused() | Refused()):
                pass  # A client that is not told only does more.
            case _:
                raise AssertionError(effect)
        return []

    def _persist(self, add: Add) -> None:
        if add.entry in self.absences and not add.is_recovery:
            raise LawBrokenError(
                f"6: node {self.slot} takes entry {add.entry} after it said ABSENT"
            )
        self.entries |= {int(add.entry)}
        record = ("entry", int(add.entry), int(add.epoch), int(add.lac), add.is_recovery)
        self.unsynced += (record,)

    def _replay_synced(self, records: Sequence[Packet]) -> None:
        epoch, is_fenced, lac, highest = self.synced_replica
        replayed = LedgerReplica(
            LEDGER,
            self.replica.instance,
            epoch_highest=Epoch(epoch),
            is_fenced=is_fenced,
            lac=EntryId(lac),
            entry_highest=EntryId(highest),
        )
        for record in records:
            match record:
                case ("fence", int(epoch)):
                    replayed.restore_fence(Epoch(epoch))
                case ("entry", int(entry), int(epoch), int(lac), bool(is_recovery)):
                    replayed.restore_entry(
                        EntryId(entry), Epoch(epoch), EntryId(lac), is_recovery=is_recovery
                    )
                    self.synced_entries |= {entry}
        self.synced_replica = _fields(replayed)

    def _release(self) -> list[Packet]:
        waiting, self.waiting = self.waiting, ()
        return [self._released(packet) for packet in waiting]

    def _released(self, packet: Packet) -> Packet:
        match packet:
            case ("fenced", _, _, int(epoch), _):
                self.promised_epoch = max(self.promised_epoch, epoch)
                return packet
            case ("answers", int(client), _, int(epoch), int(first), int(count)):
                self.promised_epoch = max(self.promised_epoch, epoch)
                return self._answered(client, epoch, first, count)
        return packet

    def _answered(self, client: int, epoch: int, first: int, count: int) -> Packet:
        """Its answer now to a recovery's read."""
        asked = range(first, first + count)
        self.absences |= {entry for entry in asked if entry not in self.entries}
        have = tuple(entry in self.entries for entry in asked)
        return ("read-answer", client, self.slot, epoch, first, have)


def renamed(packet: Packet, names: Sequence[int]) -> Packet:
    """The same message, with its node renamed."""
    slot = packet[2]
    assert isinstance(slot, int)
    return (*packet[:2], names[slot], *packet[3:])


def _fields(replica: LedgerReplica) -> tuple[int, bool, int, int]:
    return (
        int(replica.epoch_highest),
        replica.is_fenced,
        int(replica.lac),
        int(replica.entry_highest),
    )
