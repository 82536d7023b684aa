"""One ledger's writer under ensemble changes, checked against metadata and disks.

The seed draws everything: quorums and regions, which adds reach which member and when it
answers, who is lost and comes back, who replaces whom, whether a compare-and-set is stored, and
how much later the writer learns of it. After every step each acknowledged entry must be on the
disks of an ack set of the fragment that metadata has for it at that moment, because readers and
recoveries ask there.
"""

import random
from collections import Counter

import attrs

from geolog.protocol.add_window import AddWindow, AdvanceLac, SendAdd
from geolog.protocol.ids import NO_ENTRY, EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.ledger_change import Judgement, LedgerChange
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState, Member
from tests.pure.topology.naive import naive_ack
from tests.pure.topology.notation import quorum_of
from topology.location import Location

WORLDS = [
    ("3/3/2 m1", "abc"),
    ("3/3/2 m2", "aab"),
    ("3/2/2 m1", "abc"),
    ("4/3/2 m2", "abab"),
    ("5/3/2 m2", "abcab"),
]


@attrs.frozen
class Variant:
    """The parts of the writer: the right ones, or one with a planted bug."""

    window: type[AddWindow] = AddWindow
    does_hold: bool = True
    """Whether slots are held while the compare-and-set is out."""
    are_late_answers_dropped: bool = True
    """Whether late answers of replaced members are ignored."""
    starts_above_lac: int = 1
    """How far above the LAC the new fragment begins."""


@attrs.frozen
class Change:
    """An ensemble change whose compare-and-set is out, or was answered "unknown"."""

    change: LedgerChange
    slots: tuple[int, ...]


class History:
    """A ledger while it is being written."""

    def __init__(self, seed: int, variant: Variant) -> None:
        self.rng = random.Random(seed)
        self.variant = variant
        quorums, layout = self.rng.choice(WORLDS)
        self.config = quorum_of(quorums)
        self.nodes = {
            InstanceId(f"{region}{number}"): Member(
                InstanceId(f"{region}{number}"), f"{region}{number}", Location(region, "r")
            )
            for region in sorted(set(layout))
            for number in range(3)
        }
        self.disks: dict[InstanceId, set[int]] = {name: set() for name in self.nodes}
        free = sorted(self.nodes)
        members = []
        for region in layout:
            chosen = self.rng.choice([name for name in free if name[0] == region])
            free.remove(chosen)
            members.append(self.nodes[chosen])
        self.record = LedgerRecord(  # As metadata has it.
            ledger=LedgerId(1),
            state=LedgerState.OPEN,
            epoch=Epoch(1),
            quorum=self.config,
            fragments=(Fragment(EntryId(0), tuple(members)),),
        )
        self.known = self.record  # As the writer knows it.
        self.window = variant.window(self.known.fragments[-1].rule(self.config))
        self.change: Change | None = None
        self.pushed = 0
        self.adds: list[tuple[int, InstanceId, int]] = []  # In flight, to a slot's member.
        self.answers: list[tuple[int, InstanceId, int]] = []
        self.lost: set[int] = set()
        self.sometimes: Counter[str] = Counter()

    def run(self, steps_count: int = 120) -> None:
        """Play the history, then let everything settle."""
        for _ in range(steps_count):
            self.step()
            self.check()
        self.rest()
        self.check()
        assert self.window.lac == self.pushed - 1, "all members are up, but entries are stuck"

    def step(self) -> None:
        rng = self.rng
        kinds = "push add add add answer answer answer lose back change"
        kind = rng.choice(kinds.split())
        match kind:
            case "push" if self.pushed < 20:
                self.pushed += 1
                self.send(self.window.push())
            case "add" if self.adds:
                slot, member, entry = self.adds.pop(rng.randrange(len(self.adds)))
                self.disks[member].add(entry)
                self.answers.append((slot, member, entry))
            case "answer" if self.answers:
                self.answer(*self.answers.pop(rng.randrange(len(self.answers))))
            case "lose":
                self.lose(rng.randrange(self.config.ensemble_size))
            case "back" if self.lost:
                self.back(rng.choice(sorted(self.lost)))
            case "change":
                if self.change is None:
                    self.begin()
                else:
                    self.go_on(self.change)
            case _:
                pass

    def rest(self) -> None:
        """Settle without further faults."""
        while self.change is not None:
            self.go_on(self.change)
        for slot in sorted(self.lost):
            self.back(slot)
        while self.adds or self.answers:
            while self.adds:
                slot, member, entry = self.adds.pop()
                self.disks[member].add(entry)
                self.answers.append((slot, member, entry))
            while self.answers:
                self.answer(*self.answers.pop())

    # Members.

    def member_at(self, slot: int) -> InstanceId:
        return self.known.fragments[-1].ensemble[slot].instance

    def send(self, effects: list[SendAdd]) -> None:
        self.adds += [(one.slot, self.member_at(one.slot), one.entry) for one in effects]

    def answer(self, slot: int, member: InstanceId, entry: int) -> None:
        if member != self.member_at(slot):
            self.sometimes["a replaced member answered late"] += 1
            if self.variant.are_late_answers_dropped:
                return
        self.tell(self.window.on_synced(slot, EntryId(entry)))

    def tell(self, effects: list[AdvanceLac]) -> None:
        self.sometimes["acknowledged while a change was out"] += bool(effects and self.change)

    def lose(self, slot: int) -> None:
        """Break its connection: adds in flight are lost, or their answers are."""
        self.lost.add(slot)
        self.window.on_slot_lost(slot)
        member = self.member_at(slot)
        for _, _, entry in [one for one in self.adds if one[:2] == (slot, member)]:
            if self.rng.random() < 0.5:
                self.disks[member].add(entry)
        self.adds = [one for one in self.adds if one[:2] != (slot, member)]
        if self.rng.random() < 0.5:
            self.answers = [one for one in self.answers if one[:2] != (slot, member)]

    def back(self, slot: int) -> None:
        self.lost.discard(slot)
        self.send(self.window.on_slot_back(slot))

    # Changes.

    def begin(self) -> None:
        """Choose replacements for some members, and send the compare-and-set."""
        last = self.known.fragments[-1]
        slots = sorted(self.lost) or [self.rng.randrange(self.config.ensemble_size)]
        slots = self.rng.sample(slots, self.rng.randint(1, len(slots)))
        ensemble = list(last.ensemble)
        for slot in slots:
            others = [
                node
                for node in self.nodes.values()
                if node not in ensemble and node.location == ensemble[slot].location
            ]
            if not others:
                return
            ensemble[slot] = self.rng.choice(others)
        first = max(self.window.lac + self.variant.starts_above_lac, last.first_entry)
        change = LedgerChange(
            state=LedgerState.OPEN,
            epoch=Epoch(1),
            lasts=(last,),
            fragments=(Fragment(EntryId(first), tuple(ensemble)),),
        )
        self.change = Change(change, tuple(sorted(slots)))
        if self.variant.does_hold:
            self.window.hold(slots)
        self.sometimes["the last fragment gave way"] += first == last.first_entry
        self.try_to_store(self.change)

    def try_to_store(self, change: Change) -> None:
        if self.rng.random() < 0.7:
            self.record = change.change.over(self.record)

    def go_on(self, change: Change) -> None:
        """Read the record again and learn the outcome."""
        match change.change.judge(self.record):
            case Judgement.STORED:
                self.known = self.record
                self.change = None
                self.lost |= set(change.slots)
                if not self.variant.does_hold:
                    self.window.hold(change.slots)
                rule = self.known.fragments[-1].rule(self.config)
                self.tell(self.window.change(rule, change.slots))
                self.sometimes["members were replaced"] += 1
            case Judgement.TRY_AGAIN if self.rng.random() < 0.5:
                self.sometimes["it was tried again"] += 1
                self.try_to_store(change)
            case Judgement.TRY_AGAIN:
                # The write was surely never sent.
                self.change = None
                self.sometimes["it was given up"] += 1
                self.tell(self.window.unhold())
            case Judgement.TAKEN:
                raise AssertionError("nobody else is there")

    # The laws.

    def check(self) -> None:
        assert self.window.lac >= NO_ENTRY
        for entry in range(self.window.lac + 1):
            fragment = self.record.fragment_of(EntryId(entry))
            layout = "".join(member.location.region for member in fragment.ensemble)
            holders = {
                slot
                for slot, member in enumerate(fragment.ensemble)
                if entry in self.disks[member.instance]
            }
            assert naive_ack(self.config, layout, entry, holders), (
                f"entry {entry} was acknowledged, but of its members in metadata only"
                f" {sorted(holders)} have it"
            )
