"""A recovery that another process runs is left alone for a while, once."""

import attrs
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import Epoch, LedgerId
from geolog.protocol.recovery_patience import PATIENCE_S, REMEMBERED_MAX, RecoveryPatience


@attrs.frozen
class Look:
    """A reader's look at a ledger: the epoch of its recovery, or None if it is CLOSED."""

    after_s: float
    ledger: LedgerId
    epoch: Epoch | None


def verdicts(looks: list[Look]) -> list[bool]:
    patience = RecoveryPatience()
    now_s, found = 0.0, []
    for look in looks:
        now_s += look.after_s
        if look.epoch is None:
            patience.on_closed(look.ledger)
            found.append(False)
        else:
            found.append(patience.on_recovery(look.ledger, look.epoch, now_s=now_s))
    return found


def naive_verdicts(looks: list[Look]) -> list[bool]:
    """For each look, walk back over the looks at the same ledger that found the same."""
    found = []
    for place, look in enumerate(looks):
        waited_s, since_s = 0.0, 0.0
        for at in range(place, 0, -1):
            waited_s += looks[at].after_s
            if looks[at - 1].ledger == look.ledger:
                if looks[at - 1].epoch != look.epoch:
                    break
                since_s = waited_s
        found.append(look.epoch is not None and since_s >= PATIENCE_S)
    return found


looks = st.builds(
    Look,
    st.sampled_from([0.0, 0.25, 1.0, 2.0, 60.0]),
    st.sampled_from([LedgerId(1), LedgerId(2)]),
    st.sampled_from([Epoch(2), Epoch(2), Epoch(2), Epoch(3), None]),
)


@given(st.lists(looks, max_size=12))
def test_verdicts_agree_with_a_walk_back_over_all_looks(history: list[Look]) -> None:
    assert verdicts(history) == naive_verdicts(history)


def test_a_reader_that_asks_seldom_still_gets_its_answer() -> None:
    found = verdicts([Look(900.0, LedgerId(1), Epoch(2)) for _ in range(3)])

    assert found == [False, True, True]


def test_only_so_many_recoveries_are_remembered() -> None:
    patience = RecoveryPatience()
    for number in range(REMEMBERED_MAX + 5):
        patience.on_recovery(LedgerId(number), Epoch(2), now_s=0.0)

    assert len(patience) == REMEMBERED_MAX
    assert not patience.on_recovery(LedgerId(0), Epoch(2), now_s=PATIENCE_S)
    assert patience.on_recovery(LedgerId(REMEMBERED_MAX), Epoch(2), now_s=PATIENCE_S)
