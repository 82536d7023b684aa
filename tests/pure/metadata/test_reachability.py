"""A failed wait reports servers that are unreachable or do not serve, and what to do next."""

from collections.abc import Sequence

import trio
import trio.testing

from geolog.metadata.reachability import Reach, in_short, reach_of, whereabouts_of
from geolog.transport.seam import Address
from tests.pure.metadata.asked_servers import DOWN, SILENT, running_servers

UP, IDLE, MUTE = (Address("server", port) for port in (1, 4, 5))

ANSWERS = {
    UP: b"Zookeeper version: 3.9.2\nMode: follower\n",
    IDLE: b"This ZooKeeper instance is not currently serving requests\n",
    MUTE: b"",
}


async def reach(*asked: Address) -> Reach:
    async with running_servers(b"srvr", ANSWERS) as servers:
        return await reach_of(asked, servers)


async def test_all_servers_are_asked_at_once_and_reported_in_order(
    autojump_clock: trio.testing.MockClock,
) -> None:
    found = await reach(SILENT, UP, DOWN, MUTE, IDLE, SILENT)

    assert found.unreached == (
        "server:3 does not answer",
        "cannot connect to server:2: refused",
        "server:5 closes connections without an answer",
        "server:3 does not answer",
    )
    assert (found.idle, found.serving) == ((IDLE,), (UP,))
    assert trio.current_time() <= 1.0


async def test_a_server_that_does_not_serve_is_not_part_of_a_majority(
    autojump_clock: trio.testing.MockClock,
) -> None:
    found = await reach(UP, IDLE, UP, UP, DOWN)

    assert found.away == (
        "cannot connect to server:2: refused",
        "server:4 answers, and serves nobody",
    )
    assert found.spare_count == 0
    assert (await reach(UP, UP, UP)).spare_count == 1
    assert (await reach(UP, UP, UP, UP)).spare_count == 1
    assert (await reach(UP, DOWN, IDLE)).spare_count == 0


async def test_one_serving_server_means_that_the_store_is_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    assert (await reach(DOWN, UP, IDLE)).why_away() is None


async def test_servers_that_answer_and_serve_nobody_have_no_quorum(
    autojump_clock: trio.testing.MockClock,
) -> None:
    assert (await reach(DOWN, IDLE, DOWN)).why_away() == (
        "ZooKeeper has no quorum: server:4 answers, and serves nobody; cannot connect to"
        " server:2: refused (and 1 more of its servers). Of its 3 servers 2 must be up, and"
        " reach each other"
    )
    assert str((await reach(IDLE, IDLE)).why_away()).startswith(
        "ZooKeeper has no quorum: server:4 and server:4 answer, and serve nobody. Of its 2"
    )


async def test_a_region_that_reaches_only_its_own_server_is_cut_off(
    autojump_clock: trio.testing.MockClock,
) -> None:
    servers = (IDLE, SILENT, DOWN)
    found = await reach(*servers)

    assert found.why_away(whereabouts_of("a", servers, ["a", "b", "c"])) == (
        "a is cut off from ZooKeeper's majority: of 3 servers it reaches only its own"
        " (server:4), and none in b and c. Regions that reach 2 of them go on; a does when the"
        " links are back (or those servers, if they are down)"
    )
    for here, regions in (
        ("b", ["a", "b", "c"]),
        ("a", ["a", "a", "c"]),
        ("a", ["a"]),
        ("a", None),
    ):
        why = found.why_away(whereabouts_of(here, servers, regions))
        assert str(why).startswith("ZooKeeper has no quorum: server:4 answers")


async def test_if_none_can_be_reached_the_first_reason_is_reported(
    autojump_clock: trio.testing.MockClock,
) -> None:
    assert (await reach(DOWN, SILENT)).why_away() == (
        "no ZooKeeper server can be reached: cannot connect to server:2: refused"
        " (and 1 more of its servers)"
    )


def test_many_reasons_are_shortened_to_the_first_and_a_count() -> None:
    reasons: Sequence[str] = ["one: refused", "two: refused", "three: refused"]
    assert in_short(reasons[:1]) == "one: refused"
    assert in_short(reasons) == "one: refused (and 2 more of its servers)"
