"""What a writer's log says of how its open ledger is placed: once each way."""

import pytest

from geolog.partition.placement_notice import PlacementNotice
from geolog.protocol.ids import LedgerId
from geolog.protocol.stream_state import PartitionName, StreamName
from topology.ring.window_rule import Adherence


def test_a_ledger_that_is_soft_is_said_once_and_once_that_it_is_strict_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    notice = PlacementNotice(PartitionName(StreamName.parse("shop/orders"), 0))
    for ledger, adherence in (
        (1, Adherence.STRICT),
        (2, Adherence.SOFT),
        (2, Adherence.SOFT),
        (3, Adherence.SOFT),
        (4, Adherence.STRICT),
        (5, Adherence.STRICT),
    ):
        notice.see(LedgerId(ledger), adherence, is_undecided=ledger == 2)

    assert [one.getMessage() for one in caplog.records] == [
        "shop/orders#0: ledger 2 is placed as soft only, and whether better is possible is"
        " undecided; it is left when there is a better one",
        "shop/orders#0: ledger 4 is placed as it should be again",
    ]
