"""A writer logs the placement of its open ledger once when it gets worse and once after."""

import pytest

from geolog.partition.placement_notice import PlacementNotice
from geolog.protocol.ids import LedgerId
from geolog.protocol.stream_state import PartitionName, StreamName
from topology.ring.window_rule import Adherence
from topology.stream_policy import terms_named


def test_a_soft_ledger_is_logged_once_and_again_once_strict(
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
        "shop/orders#0: ledger 2: placement is SOFT (would not survive losing another region;"
        " the search for a better one was cut off); will roll when a STRICT ensemble is"
        " available",
        "shop/orders#0: ledger 4: placement is STRICT again",
    ]


@pytest.mark.parametrize(
    ("policy", "adherence", "told"),
    [
        ("rack_aware", Adherence.SOFT, "SOFT (would not survive losing another rack)"),
        ("zone_aware", Adherence.SOFT, "SOFT (would not survive losing another zone)"),
        ("region_aware", Adherence.FAIL, "FAIL (breaks the policy of its stream)"),
        ("acme", Adherence.SOFT, "SOFT (meets policy 'acme' in part only)"),
    ],
)
def test_the_reason_names_the_domain_that_could_be_lost(
    policy: str, adherence: Adherence, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    notice = PlacementNotice(
        PartitionName(StreamName.parse("shop/orders"), 0), terms_named(policy)
    )
    notice.see(LedgerId(2), adherence, is_undecided=False)

    (record,) = caplog.records
    assert f"placement is {told}; will roll" in record.getMessage()
