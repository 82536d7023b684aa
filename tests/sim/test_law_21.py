"""Law 21: whoever chose an ensemble is held to what was to be had, and to no more."""

import pytest

from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState, Member
from sim.laws.law_21_fragments_adhere import choices_that_fell_short
from topology.location import Location
from topology.quorum import QuorumConfig

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


def steady(names: str) -> dict[str, str]:
    return {name: name[0] for name in names.split()}


@pytest.mark.parametrize(
    ("before", "after", "nodes", "broken_count"),
    [
        # A new ledger: STRICT where it can be, SOFT where it cannot.
        ([], ["a1 b1 c1"], "a1 a2 b1 b2 c1", 0),
        ([], ["a1 a2 b1"], "a1 a2 b1 b2 c1", 1),
        ([], ["a1 a2 b1"], "a1 a2 b1 b2", 0),
        # A member is replaced: those that stay are kept, and who was there is not to be had.
        (["a1 b1 c1"], ["a1 b1 c1", "a1 b1 b2"], "a1 b1 b2 c2", 1),
        (["a1 b1 c1"], ["a1 b1 c1", "a1 b1 b2"], "a1 b1 b2 c1", 0),
        # A fragment without entries gives way to one from the same entry on.
        (["a1 b1 c1"], ["a1 b1 b2"], "a1 b1 b2 c2", 1),
        # What was there before is nobody's choice now.
        (["a1 a2 b1"], ["a1 a2 b1"], "a1 b1 c1", 0),
    ],
)
def test_an_ensemble_is_as_good_as_the_nodes_allowed(
    before: list[str], after: list[str], nodes: str, broken_count: int
) -> None:
    known = ledger(*before) if before else None
    found = list(choices_that_fell_short(known, ledger(*after), steady(nodes)))
    assert len(found) == broken_count
