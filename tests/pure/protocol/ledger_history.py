"""A random history of one ledger: a writer that may be a zombie, its nodes, and a recovery.

The seed draws everything: quorums and regions, which adds reach which node, silent members,
damaged copies, the order of all answers, and the batch size. The writer goes on while its
ledger is fenced and recovered, as a zombie does; only fenced nodes refuse its adds.
"""

import random
from collections.abc import Callable

import attrs

from geolog.protocol.fencing import FenceRound
from geolog.protocol.ids import NO_ENTRY, EntryId
from geolog.protocol.messages import Answer
from geolog.protocol.recovery import (
    CannotDecide,
    CloseAt,
    ReadBatch,
    Recovery,
    RecoveryEffect,
    Rewrite,
)
from tests.pure.topology.naive import naive_ack, naive_block, naive_write_set
from tests.pure.topology.notation import quorum_of
from topology.quorum import AckRule, QuorumConfig

WORLDS = [
    ("3/3/2 m1", "abc"),
    ("3/3/2 m2", "aab"),
    ("3/3/3 m1", "abc"),
    ("3/2/2 m1", "abc"),
    ("4/3/2 m2", "abab"),
    ("4/3/2 m1", "aabb"),
    ("5/3/2 m2", "abcab"),
    ("6/6/4 m2", "abcabc"),
]

Event = tuple[str, int, int]
"""`answer` slot entry, `silence` slot -, `acked` - entry, or `cannot_ack` - entry."""


@attrs.frozen
class Variant:
    """The parts of recovery: the right ones, or one with a planted bug.

    With a planted bug only the outcome is judged: the bug must show in the log.
    """

    rule: type[AckRule] = AckRule
    core: type[Recovery] = Recovery
    reads_fence: bool = True
    is_planted: bool = False
    first: Callable[[EntryId, EntryId], EntryId] = lambda lac, first: EntryId(
        max(lac + 1, first)
    )


@attrs.define
class Node:
    """One member: its stored entries, its promises, and its faults."""

    entries: set[int] = attrs.field(factory=set)
    damaged: set[int] = attrs.field(factory=set)
    lac: EntryId = NO_ENTRY
    is_fenced: bool = False
    answers_left: int = 10**6
    """Answers until it falls silent."""


class History:
    """One ledger from its first entry to the end of its recovery."""

    def __init__(self, seed: int, variant: Variant) -> None:
        self.rng = random.Random(seed)
        quorums, self.layout = self.rng.choice(WORLDS)
        self.config: QuorumConfig = quorum_of(quorums)
        self.variant = variant
        self.rule = variant.rule(self.config, self.layout)
        self.nodes = [Node() for _ in self.layout]
        # Entries below this are in earlier fragments: acknowledged, but not on these nodes.
        self.fragment_first = EntryId(self.rng.choice([0, 0, 3]))
        self.pushed = int(self.fragment_first)
        self.entries_max = self.fragment_first + self.rng.randint(0, 7)
        self.adds: list[tuple[int, int, EntryId]] = []  # In flight: slot, entry, LAC.
        self.confirmed: dict[int, set[int]] = {}  # Slots that confirmed, by entry.
        self.lac = EntryId(self.fragment_first - 1)  # All up to here may have been answered OK.
        self.start = EntryId(0)
        self.outcome: CloseAt | CannotDecide | None = None
        self.is_healthy = False

    # ---- The writer.

    def step_writer(self) -> None:
        if self.pushed < self.entries_max and self.rng.random() < 0.3:
            self.confirmed[self.pushed] = set()
            for slot in sorted(naive_write_set(self.config, self.pushed)):
                self.adds.append((slot, self.pushed, self.lac))
            self.pushed += 1
        elif self.adds:
            slot, entry, lac = self.adds.pop(self.rng.randrange(len(self.adds)))
            node = self.nodes[slot]
            if not node.is_fenced and self.rng.random() < 0.9:  # Otherwise lost on the way.
                node.entries.add(entry)
                node.lac = max(node.lac, lac)
                self.confirmed[entry].add(slot)
        while self.is_acked(self.lac + 1, self.confirmed.get(self.lac + 1, set())):
            self.lac = EntryId(self.lac + 1)

    def is_acked(self, entry: int, slots: set[int]) -> bool:
        return naive_ack(self.config, self.layout, entry, slots)

    # ---- The new owner.

    def run(self) -> None:
        """Play the whole history; `outcome` stays None if the fence could not be taken."""
        for _ in range(self.rng.randint(0, 40)):
            self.step_writer()
        self.fall_ill()
        lac = self.fence()
        if lac is not None:
            self.recover(lac)
        for _ in range(60):
            self.step_writer()

    def run_again(self) -> None:
        """Stop the faults, and recover again if the first recovery could not decide."""
        self.is_healthy = True
        self.nodes = [
            attrs.evolve(node, answers_left=10**6, damaged=set()) for node in self.nodes
        ]
        lac = self.fence()
        assert lac is not None
        self.recover(lac)

    def fall_ill(self) -> None:
        share = self.rng.choice([0.0, 0.0, 0.2, 0.5])
        for node in self.nodes:
            if self.rng.random() < share:
                node.answers_left = self.rng.randint(0, 4)
            if self.rng.random() < share:
                node.damaged = {entry for entry in range(12) if self.rng.random() < 0.5}

    def fence(self) -> EntryId | None:
        fence = FenceRound(self.rule)
        for slot in self.rng.sample(range(len(self.nodes)), len(self.nodes)):
            node = self.nodes[slot]
            if node.answers_left:
                node.answers_left -= 1
                node.is_fenced = True
                for taken in fence.on_fenced(slot, node.lac):
                    return taken.lac
            self.step_writer()
        return None

    def recover(self, lac: EntryId) -> None:
        self.start = self.variant.first(lac, self.fragment_first)
        self.outcome = None
        self.rewritten: set[int] = set()
        self.batches_count = 0
        self.pool: list[Event] = []
        self.said: dict[int, dict[int, Answer]] = {}
        self.silent: set[int] = set()
        self.failed: set[int] = set()
        batch_entries = self.rng.randint(1, 5)
        core = self.variant.core(self.rule, first=self.start, batch_entries=batch_entries)
        self.perform(core.start())
        while self.pool:
            if self.rng.random() < 0.3:
                self.step_writer()
            kind, slot, entry = self.pool.pop(self.rng.randrange(len(self.pool)))
            match kind:
                case "answer":
                    self.perform(self.ask(core, slot, EntryId(entry)))
                case "acked":
                    self.perform(core.on_acked(EntryId(entry)))
                case _:
                    self.failed.add(entry)
                    self.perform(core.on_cannot_ack(EntryId(entry)))

    def ask(self, core: Recovery, slot: int, entry: EntryId) -> list[RecoveryEffect]:
        node = self.nodes[slot]
        if node.answers_left == 0:
            if slot in self.silent:
                return []
            self.silent.add(slot)
            return core.on_silence(slot)
        node.answers_left -= 1
        node.is_fenced |= self.variant.reads_fence
        if entry in node.damaged:
            answer = self.rng.choice([Answer.CORRUPT, Answer.UNKNOWN])
        else:
            answer = Answer.HAVE if entry in node.entries else Answer.ABSENT
        if slot in naive_write_set(self.config, entry):
            self.said.setdefault(entry, {})[slot] = answer
        return core.on_answer(slot, entry, answer)

    def perform(self, effects: list[RecoveryEffect]) -> None:
        for effect in effects:
            assert self.outcome is None, f"{effect} after {self.outcome}"
            match effect:
                case ReadBatch(slot, first, count):
                    if slot == 0:
                        self.silent.clear()
                        self.batches_count += 1
                    self.pool += [("answer", slot, first + turn) for turn in range(count)]
                case Rewrite(entry, slot):
                    self.rewrite(entry, slot)
                case CloseAt(last):
                    self.outcome = effect
                    self.check_close(last)
                case CannotDecide(entry):
                    self.outcome = effect
                    self.check_cannot_decide(effect)

    def rewrite(self, entry: int, source: int) -> None:
        assert self.said[entry][source] is Answer.HAVE, f"slot {source} has no {entry}"
        assert entry not in self.rewritten, f"entry {entry} is rewritten twice"
        takers = {
            slot
            for slot in naive_write_set(self.config, entry)
            if self.nodes[slot].answers_left and (self.is_healthy or self.rng.random() < 0.95)
        }
        for slot in takers:
            self.nodes[slot].is_fenced = True
            self.nodes[slot].entries.add(entry)
            self.nodes[slot].damaged.discard(entry)
        if self.is_acked(entry, takers):
            self.rewritten.add(entry)
            self.pool.append(("acked", 0, entry))
        else:
            self.pool.append(("cannot_ack", 0, entry))

    # ---- The laws.

    def absent(self, entry: int) -> set[int]:
        said = self.said.get(entry, {})
        return {slot for slot, answer in said.items() if answer is Answer.ABSENT}

    def check_close(self, last: int) -> None:
        if self.variant.is_planted:
            return
        assert last >= self.start - 1, f"closed at {last}, below the start {self.start}"
        assert self.rewritten == set(range(self.start, last + 1)), (
            f"closed at {last}, but only {sorted(self.rewritten)} are in an ack set"
        )
        assert naive_block(self.config, self.layout, last + 1, self.absent(last + 1)), (
            f"closed at {last}, but {self.said.get(last + 1)} does not prove absence"
        )

    def check_cannot_decide(self, effect: CannotDecide) -> None:
        entry = effect.entry
        if entry in self.failed or self.variant.is_planted:
            return
        said = self.said.get(entry, {})
        assert Answer.HAVE not in said.values()
        assert not naive_block(self.config, self.layout, entry, self.absent(entry))
        assert naive_write_set(self.config, entry) <= self.silent | set(said), "some may speak"
        assert effect.absent_count == len(self.absent(entry))
        assert effect.silent_count == self.config.write_quorum - len(said)

    def check_end(self) -> None:
        """Laws 4 and 5, after everything, even the zombie's last add."""
        if isinstance(self.outcome, CloseAt):
            assert self.outcome.last >= self.lac, (
                f"closed at {self.outcome.last}, but entries up to {self.lac} were answered OK"
            )
