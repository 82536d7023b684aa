"""Law 21: a choice of an ensemble is held to the nodes that were surely available."""

import attrs
import pytest

from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState, Member
from sim.laws.state.law_21_best_choice import breaches_of, choices, is_held_change
from sim.laws.state.steady_nodes import Steady
from topology.location import Location
from topology.quorum import QuorumConfig
from topology.stream_policy import PlacementTerms, PolicyKind

QUORUM = QuorumConfig(ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2)


def ledger(*ensembles: str) -> LedgerRecord:
    """A fragment of ten entries for each `a1 b1 …`: nodes named after their regions."""
    fragments = tuple(
        Fragment(
            EntryId(10 * place),
            tuple(
                Member(InstanceId(name), name, Location(name[0], "r")) for name in names.split()
            ),
        )
        for place, names in enumerate(ensembles)
    )
    return LedgerRecord(
        ledger=LedgerId(1),
        state=LedgerState.OPEN,
        epoch=Epoch(1),
        quorum=QUORUM,
        fragments=fragments,
    )


def steady(names: str, forbidden: str = "") -> Steady:
    """The available nodes; `x` in `forbidden` is a region."""
    return Steady(
        {InstanceId(name): Location(name[0], f"rack-{name}") for name in names.split()},
        frozenset(forbidden),
    )


def told(before: LedgerRecord | None, after: LedgerRecord, nodes: Steady) -> list[str]:
    return [one for choice in choices(before, after) for one in breaches_of(choice, nodes)]


@pytest.mark.parametrize(
    ("before", "after", "nodes", "broken_count"),
    [
        # A new ledger: STRICT if possible, SOFT otherwise.
        ([], ["a1 b1 c1"], "a1 a2 b1 b2 c1", 0),
        ([], ["a1 a2 b1"], "a1 a2 b1 b2 c1", 1),
        ([], ["a1 a2 b1"], "a1 a2 b1 b2", 0),
        # A member is replaced: the others stay, and the replaced one is not available.
        (["a1 b1 c1"], ["a1 b1 c1", "a1 b1 b2"], "a1 b1 b2 c2", 1),
        (["a1 b1 c1"], ["a1 b1 c1", "a1 b1 b2"], "a1 b1 b2 c1", 0),
        # A fragment without entries is replaced by one from the same entry on.
        (["a1 b1 c1"], ["a1 b1 b2"], "a1 b1 b2 c2", 1),
        # Members that were there before are not part of the choice.
        (["a1 a2 b1"], ["a1 a2 b1"], "a1 b1 c1", 0),
        # A change before the last fragment is a repair's.
        (["a1 b1 c1", "a1 b1 c2"], ["a1 b1 b2", "a1 b1 c2"], "a1 b1 b2 c2", 0),
    ],
)
def test_an_ensemble_is_as_good_as_the_nodes_allowed(
    before: list[str], after: list[str], nodes: str, broken_count: int
) -> None:
    known = ledger(*before) if before else None
    assert len(told(known, ledger(*after), steady(nodes))) == broken_count


@pytest.mark.parametrize(
    ("after", "nodes", "held_count"),
    [
        (["a1 b1 c1", "a1 b1 c2"], "a1 b1 b2 c2", 1),
        (["a1 b1 c1", "a1 b1 b2"], "a1 b1 b2 c2", 1),
        # No STRICT ensemble was surely available; nobody was replaced.
        (["a1 b1 c1", "a1 b1 b2"], "a1 b1 b2 c1", 0),
        (["a1 b1 c1", "a1 b1 c1"], "a1 b1 b2 c2", 0),
    ],
)
def test_a_change_counts_as_judged_only_if_it_could_have_been_a_breach(
    after: list[str], nodes: str, held_count: int
) -> None:
    found = list(choices(ledger("a1 b1 c1"), ledger(*after)))

    assert sum(is_held_change(one, steady(nodes)) for one in found) == held_count
    assert not any(
        is_held_change(one, steady(nodes)) for one in choices(None, ledger("a1 b1 c1"))
    )


def test_only_repairs_change_final_fragments() -> None:
    known = attrs.evolve(ledger("a1 b1 c1"), state=LedgerState.CLOSED, last_entry=EntryId(4))
    after = attrs.evolve(known, fragments=ledger("a1 b1 b2").fragments)
    assert told(known, after, steady("a1 b1 b2 c2")) == []


def test_nothing_new_is_placed_in_a_forbidden_region() -> None:
    nodes = steady("a1 a2 b1 b2", forbidden="c")
    known = ledger("a1 b1 c1")
    assert told(known, ledger("a1 b1 c1", "a1 b2 c1"), nodes) == []
    [message] = told(known, ledger("a1 b1 c1", "a1 b1 c2"), nodes)
    assert "c2 in c" in message


def test_the_judge_is_the_policy_of_the_ledger() -> None:
    on_any = attrs.evolve(
        ledger("a1 a2 a3"), placement=PlacementTerms(policy=PolicyKind.DEFAULT)
    )
    assert told(None, on_any, steady("a1 a2 a3 b1 c1")) == []
