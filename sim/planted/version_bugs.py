"""Defects of relays that meet relays of other versions."""

import attrs

from relay.protocol.bridge_gate import BridgeGate
from relay.protocol.bridge_messages import (
    BRIDGE_VERSION,
    BridgeHello,
    BridgeRefused,
    BridgeWelcome,
)
from sim.planted.planted_bug import PlantedBug
from sim.world.chance import Draws
from sim.world.draws.relay_draws import OTHER_VERSION, STRANGER, with_relays
from sim.world.options import Options

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001

_answer = BridgeGate.answer


def with_other_versions(options: Options, draws: Draws) -> Options:
    """A world with relays, some of which have other versions for a while."""
    drawn = with_relays(options, draws)
    strikes = ((OTHER_VERSION, 0.4), (STRANGER, 0.4))
    return attrs.evolve(drawn, hazards=attrs.evolve(drawn.hazards, strikes_per_s=strikes))


def admit_any_version(gate: BridgeGate, hello: BridgeHello) -> BridgeWelcome | BridgeRefused:
    """Take any version for one's own."""
    same = attrs.evolve(hello, version_first=BRIDGE_VERSION, version_last=BRIDGE_VERSION)
    return _answer(gate, same)


def note_the_epoch_first(gate: BridgeGate, hello: BridgeHello) -> BridgeWelcome | BridgeRefused:
    """Judge and note the epoch of a coordinator before it is known whether it is one."""
    return gate._epoch_fault(hello.region, hello.relay_epoch) or _answer(gate, hello)


VERSION_BUGS: dict[str, PlantedBug] = {
    "any-version-admitted": PlantedBug(
        156,
        "a home opens bridges to relays of any version",
        [(BridgeGate, "answer", admit_any_version)],
        drawn_for=with_other_versions,
    ),
    "refused-epoch-counts": PlantedBug(
        157,
        "a home notes the epoch of a relay that it refuses, and then refuses the real one",
        [(BridgeGate, "answer", note_the_epoch_first)],
        drawn_for=with_other_versions,
    ),
}
"""Defects of relays that meet other versions, by name."""
