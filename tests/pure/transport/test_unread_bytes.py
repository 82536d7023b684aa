"""Unread bytes: a bound for all clients, a share for each, and the order of giving way."""

import random

import attrs
import pytest

from geolog.transport.unread_bytes import SPARED_BYTES, UnreadBytes, UnreadOfOne

MAX_BYTES = 1_000_000


@attrs.define(eq=False)
class Connection:
    """A connection that does what it is told."""

    unread: UnreadBytes
    client: str
    dropped: list[str] = attrs.field(factory=list)
    woken_count: int = 0
    counted: UnreadOfOne = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.counted = self.unread.open(self.client, self.drop, self.wake)

    def drop(self, why: str) -> None:
        self.dropped.append(why)
        self.counted.give_back_parts()

    def wake(self) -> None:
        self.woken_count += 1


def test_the_longest_message_of_a_client_over_its_share_gives_way() -> None:
    unread = UnreadBytes(MAX_BYTES, 0.5)
    other, short, long, last = (Connection(unread, name) for name in "baaa")
    other.counted.take_part(300_000)
    short.counted.take_part(100_000)
    long.counted.take_part(200_000)
    last.counted.take_part(150_000)
    assert not any(one.dropped for one in (other, short, long, last))

    last.counted.take_part(50_001)

    assert [len(one.dropped) for one in (other, short, long, last)] == [0, 0, 0, 1]
    long.counted.take_part(150_000)
    short.counted.take_part(50_000)
    assert [len(one.dropped) for one in (other, short, long, last)] == [0, 0, 1, 1]
    assert "a client holds 500000 bytes" in long.dropped[0]


def test_the_client_that_holds_most_gives_way_to_others() -> None:
    unread = UnreadBytes(MAX_BYTES, 0.5)
    many = [Connection(unread, "many") for _ in range(10)]
    for one in many:
        one.counted.take_part(49_000)
    Connection(unread, "takes nothing").counted.take(460_000)
    honest = Connection(unread, "honest")

    honest.counted.take_part(60_000)

    assert not honest.dropped
    assert sum(len(one.dropped) for one in many) == 1
    assert unread.bytes < MAX_BYTES


def test_the_begin_of_a_message_is_spared_until_a_bound_is_far_passed() -> None:
    unread = UnreadBytes(MAX_BYTES)
    Connection(unread, "a").counted.take(MAX_BYTES)
    spared = [Connection(unread, "b") for _ in range(100)]
    for one in spared:
        one.counted.take_part(SPARED_BYTES)

    assert unread.bytes <= 1.25 * MAX_BYTES + SPARED_BYTES
    assert sum(len(one.dropped) for one in spared) >= 80


def test_a_few_wait_no_more_for_each_message_that_is_taken() -> None:
    unread = UnreadBytes(MAX_BYTES)
    waiting = [Connection(unread, "a") for _ in range(100)]
    for one in waiting:
        one.counted.take(MAX_BYTES // 100)
    for one in [*waiting, *waiting]:
        one.counted.expect_room()

    waiting[-1].counted.give_back(MAX_BYTES // 100)
    assert [one.woken_count for one in waiting] == [1] * 8 + [0] * 92
    waiting[20].counted.close()
    for one in waiting[:12]:
        one.counted.give_back(MAX_BYTES // 100)
    assert [one.woken_count for one in waiting] == [1] * 20 + [0] + [1] * 79


@pytest.mark.parametrize("seed", range(20))
def test_all_is_given_back_in_the_end(seed: int) -> None:
    rng = random.Random(seed)
    unread = UnreadBytes(MAX_BYTES, 0.5)
    connections = [Connection(unread, rng.choice("abc")) for _ in range(20)]
    for _ in range(2000):
        one = rng.choice(connections).counted
        match rng.randrange(4):
            case 0 | 1:
                one.take_part(rng.randrange(1, 60_000))
            case 2:
                whole = one.parts_bytes
                one.give_back_parts()
                one.take(whole)
                one.give_back(whole)
            case _:
                one.give_back_parts()
        of_each = [each.counted.parts_bytes for each in connections]
        assert unread.bytes == sum(of_each)
        assert unread.bytes <= 1.25 * MAX_BYTES + 60_000
    for each in connections:
        each.counted.close()
        each.counted.close()
    assert unread.bytes == 0
    assert not unread._clients  # noqa: SLF001 - nothing else tells.
