"""Opening a writer far from everything takes this many round trips, and no more."""

from trio.testing import MockClock

from sim.studies.opening import measure


async def test_a_new_process_opens_a_writer_in_ten_round_trips_and_appends_in_one(
    autojump_clock: MockClock,
) -> None:
    first, again = await measure()

    assert (first.opened_rounds, first.appended_rounds, first.closed_rounds) == (10, 1, 2)
    assert (again.opened_rounds, again.appended_rounds, again.closed_rounds) == (9, 1, 2)
