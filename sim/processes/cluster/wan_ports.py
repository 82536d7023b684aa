"""The ports of a cluster with an emulated WAN, and where each leads."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

import attrs

from sim.processes.wan.conditions import Wan
from sim.processes.wan.setup import Forward, WanSetup


@attrs.frozen
class Voter:
    """One ZooKeeper server and its three addresses."""

    number: int
    region: str
    clients: str
    quorum: str
    election: str


@attrs.frozen
class Passage:
    """The two ports through which one ZooKeeper server reaches another across the emulator."""

    quorum: str
    election: str


Passages = dict[tuple[Voter, Voter], Passage]


def draw_passages(voters: Sequence[Voter], addresses: Iterator[str]) -> Passages:
    """Passages between voters of different regions, on the next of `addresses`."""
    return {
        (here, there): Passage(*islice(addresses, 2))
        for here in voters
        for there in voters
        if here.region != there.region
    }


def draw_wan(
    wan: Wan, passages: Passages, *, places: Mapping[str, str], addresses: Iterator[str]
) -> WanSetup:
    """The setup of the emulator, with its own ports on the next of `addresses`."""
    gateway = next(addresses)
    probes = {region: next(addresses) for region in wan.regions}
    forwards: list[Forward] = []
    for (here, there), passage in passages.items():
        back = passages[there, here]
        between = partial(Forward, here=here.region, there=there.region)
        forwards += [
            between(listen=passage.quorum, to=there.quorum),
            between(listen=passage.election, to=there.election, answer_at=back.election),
        ]
    return WanSetup(
        wan=wan,
        gateway=gateway,
        places={**places, **{where: region for region, where in probes.items()}},
        probes=probes,
        forwards=tuple(forwards),
    )


def peers_of(voter: Voter, voters: Sequence[Voter], passages: Passages) -> str:
    """How `voter` reaches all voters: those in other regions through the emulator."""
    reached = (
        passages.get((voter, each), Passage(each.quorum, each.election)) for each in voters
    )
    return ",".join(
        f"{each.number}={at.quorum}:{at.election.rpartition(':')[2]}"
        for each, at in zip(voters, reached, strict=True)
    )
