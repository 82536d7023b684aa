"""How long a planned move would take, by what its links tell."""

import attrs
import pytest

from geolog.client.relays.switch_plan import LinksSeen, SwitchOverPlan, switch_over_plan
from geolog.protocol.relay_report import LinkState, RelayedStreamReport
from geolog.protocol.stream_state import StreamMode, StreamName, StreamRecord
from tests.pure.topology.notation import quorum_of
from topology.stream_policy import PlacementTerms

STREAM = StreamRecord(
    name=StreamName("shop", "orders"),
    mode=StreamMode.REGIONAL,
    quorum=quorum_of("3/3/2 m1"),
    segment_bytes=1 << 20,
    created_us=5,
    life="a",
    placement=PlacementTerms(region="us-east"),
    relay_to=("eu-west",),
)

LIVE = RelayedStreamReport(
    stream="shop/orders",
    partition=0,
    home="us-east",
    target="eu-west",
    state=LinkState.LIVE,
    durable_records=100,
    tail_records=103,
    lag_records=3,
    lag_bytes=300,
    round_trip_s=0.1,
)


def plan_of(before: RelayedStreamReport, after: RelayedStreamReport) -> SwitchOverPlan:
    seen = LinksSeen(before=[before], after=[after], passed_s=2.0, metadata_s=0.02)
    return switch_over_plan(STREAM, "eu-west", seen, local_only=0, why_never=None)


def test_a_live_link_has_nothing_to_catch_up_and_the_pause_is_its_terms() -> None:
    plan = plan_of(LIVE, LIVE)

    assert plan.catch_up_s == 0
    assert (plan.close_s, plan.drain_s, plan.flip_s) == (0.06, 0.1, 0.04)
    assert plan.pause_s == pytest.approx(0.2)


def test_a_mirror_that_is_behind_catches_up_at_the_current_rate() -> None:
    """It gets 500 records a second, while 100 a second are appended."""
    before = attrs.evolve(
        LIVE, state=LinkState.BEHIND, durable_records=1000, tail_records=11000
    )
    after = attrs.evolve(before, durable_records=2000, tail_records=11200, lag_records=9200)

    assert plan_of(before, after).catch_up_s == 9200 / 400


def test_a_mirror_that_falls_further_behind_does_not_catch_up() -> None:
    before = attrs.evolve(
        LIVE, state=LinkState.REPLAYING, durable_records=1000, tail_records=11000
    )
    after = attrs.evolve(before, durable_records=1100, tail_records=11200, lag_records=10100)

    assert plan_of(before, after).catch_up_s is None


def test_the_time_is_not_known_if_the_link_does_not_tell() -> None:
    plan = plan_of(LIVE, attrs.evolve(LIVE, round_trip_s=None))

    assert (plan.drain_s, plan.pause_s) == (None, None)
