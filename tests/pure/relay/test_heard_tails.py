"""The ends of homes that a relay remembers, and their ages."""

import attrs
import trio
from trio.testing import MockClock

from geolog.protocol.failover_record import HeardTailsReport
from geolog.wire.relay_report import decode_heard, encode_heard
from relay.bridge.heard_tails import HeardTails


@attrs.define
class SettableClock:
    now_us: int = 1_000_000_000

    def __call__(self) -> int:
        return self.now_us


def hear(tails: HeardTails, sequence_next: int = 10) -> None:
    tails.hear(
        stream="shop/orders",
        life="1",
        partition=0,
        home="us-east",
        home_epoch=1,
        sequence_next=sequence_next,
        lag_bytes=700,
        tail_us=5,
        region="eu-west",
    )


async def test_the_age_of_a_tail_counts_although_a_clock_is_set_back(
    autojump_clock: MockClock,
) -> None:
    clock = SettableClock()
    tails = HeardTails(clock)
    hear(tails)
    clock.now_us = 0
    await trio.sleep(7)
    (told,) = decode_heard(encode_heard(HeardTailsReport(tails.all()))).tails

    assert told.heard_ago_s == 7
    assert (told.sequence_next, told.lag_bytes, told.tail_us) == (10, 700, 5)


def test_a_tail_told_by_a_relay_of_an_older_version_has_no_age() -> None:
    (told,) = decode_heard(
        '{"tails":[{"stream":"a/s","life":"1","partition":0,"home":"x","home_epoch":1,'
        '"region":"y","sequence_next":3,"heard_us":4}]}'
    ).tails

    assert (told.heard_ago_s, told.lag_bytes, told.tail_us) == (None, None, None)
