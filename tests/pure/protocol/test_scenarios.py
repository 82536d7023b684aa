"""Scenarios of single cores, as files that can be read, replayed and reviewed."""

from pathlib import Path

import attrs
import pytest

from geolog.protocol.add_window import AddWindow, AdvanceLac, SendAdd
from geolog.protocol.ids import EntryId
from geolog.protocol.messages import Answer
from geolog.protocol.recovery import (
    CannotDecide,
    CloseAt,
    ReadBatch,
    Recovery,
    RecoveryEffect,
    Rewrite,
)
from tests.pure.protocol.scenario import Story, retold
from tests.pure.topology.notation import quorum_of
from topology.quorum import AckRule

SCENARIOS = Path(__file__).parent / "scenarios"


@attrs.define
class WindowStory:
    """`window E/W/A mM over REGIONS`, then events of entries and members."""

    window: AddWindow = attrs.field(init=False)

    def tell(self, line: str) -> list[str]:
        match line.split():
            case ["window", sizes, regions, "over", layout]:
                self.window = AddWindow(AckRule(quorum_of(f"{sizes} {regions}"), layout))
                return []
            case ["push"]:
                return self.sends(self.window.push())
            case ["synced", entry, "by", *slots]:
                released: list[AdvanceLac] = []
                for slot in slots:
                    released += self.window.on_synced(int(slot), EntryId(int(entry)))
                return [f"lac {effect.lac}" for effect in released]
            case ["lost", slot]:
                self.window.on_slot_lost(int(slot))
                return []
            case ["back", slot]:
                return self.sends(self.window.on_slot_back(int(slot)))
            case ["state"]:
                stuck = self.window.first_stuck()
                late = " ".join(str(slot) for slot in self.window.slots_late())
                return [
                    f"lac {self.window.lac}, late {late or 'none'},"
                    f" stuck {'none' if stuck is None else stuck},"
                    f" {'can' if self.window.can_go_on() else 'cannot'} go on"
                ]
            case _:
                raise AssertionError(f"no such step: {line!r}")

    def sends(self, effects: list[SendAdd]) -> list[str]:
        slots: dict[int, list[str]] = {}
        for effect in effects:
            slots.setdefault(effect.entry, []).append(str(effect.slot))
        return [f"send {entry} to {' '.join(to)}" for entry, to in slots.items()]


@attrs.define
class RecoveryStory:
    """`recovery E/W/A mM over REGIONS from ENTRY by COUNT`, then members' answers."""

    core: Recovery = attrs.field(init=False)

    def tell(self, line: str) -> list[str]:
        return [self.put(effect) for effect in self.effects(line)]

    def effects(self, line: str) -> list[RecoveryEffect]:
        match line.split():
            case ["recovery", sizes, regions, "over", layout, "from", first, "by", count]:
                rule = AckRule(quorum_of(f"{sizes} {regions}"), layout)
                self.core = Recovery(rule, first=EntryId(int(first)), batch_entries=int(count))
                return self.core.start()
            case [slot, "silent"]:
                return self.core.on_silence(int(slot))
            case ["acked", entry]:
                return self.core.on_acked(EntryId(int(entry)))
            case ["cannot", "ack", entry]:
                return self.core.on_cannot_ack(EntryId(int(entry)))
            case [slot, "says", *answers]:
                effects: list[RecoveryEffect] = []
                for text in answers:
                    entry, answer = text.split(":")
                    effects += self.core.on_answer(
                        int(slot), EntryId(int(entry)), Answer[answer.upper()]
                    )
                return effects
            case _:
                raise AssertionError(f"no such step: {line!r}")

    def put(self, effect: RecoveryEffect) -> str:
        match effect:
            case ReadBatch(slot, first, count):
                return f"read {first} to {first + count - 1} from {slot}"
            case Rewrite(entry, slot):
                return f"rewrite {entry} from {slot}"
            case CloseAt(last):
                return f"close at {last}"
            case CannotDecide(entry, have, absent, silent):
                return f"cannot decide {entry}: {have} have, {absent} absent, {silent} silent"


@pytest.mark.parametrize(
    ("name", "story"), [("add_window", WindowStory), ("recovery", RecoveryStory)]
)
def test_a_core_replays_its_scenario_as_written(
    name: str, story: type[Story], *, is_rewriting: bool
) -> None:
    path = SCENARIOS / f"{name}.txt"
    written = path.read_text(encoding="utf-8")
    told = retold(written, story())
    if is_rewriting:
        path.write_text(told, encoding="utf-8")

    assert is_rewriting or told == written
