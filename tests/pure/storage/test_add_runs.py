"""Cumulative answers over several journals: always true, and complete in the end."""

import attrs
from hypothesis import given
from hypothesis import strategies as st

from regions.storage.protocol.add_runs import AddRuns


def test_an_add_of_a_slow_directory_holds_back_those_after_it() -> None:
    runs = AddRuns(2)
    assert runs.take(0, group=1, ordinal=1)
    assert runs.take(1, group=1, ordinal=2)
    assert not runs.take(0, group=1, ordinal=3)

    assert runs.on_synced(0) == 1
    assert runs.on_synced(1) == 3


def test_groups_of_one_directory_are_answered_one_by_one() -> None:
    runs = AddRuns(1)
    assert runs.take(0, group=1, ordinal=1)
    assert not runs.take(0, group=1, ordinal=2)
    assert runs.take(0, group=2, ordinal=3)

    assert runs.on_synced(0) == 2
    assert runs.on_synced(0) == 3


def test_a_refused_add_at_the_end_is_not_counted() -> None:
    runs = AddRuns(1)
    runs.take(0, group=1, ordinal=1)

    assert runs.on_synced(0) == 1, "the second was refused, and is not named"


def test_an_answer_is_not_repeated() -> None:
    runs = AddRuns(2)
    runs.take(0, group=1, ordinal=1)
    runs.take(1, group=1, ordinal=2)

    assert runs.on_synced(1) is None
    assert runs.on_synced(0) == 2


@attrs.define
class NaiveAnswers:
    """Remembers every add with its directory and group, and which are on disk."""

    group_newest: list[int]
    group_synced: list[int]
    adds: list[tuple[int, int] | None] = attrs.field(factory=list)
    """Directory and group of each; None if it was refused."""

    def through(self) -> int:
        """The last add such that it and all before it are on disk or refused."""
        through = 0
        for number, place in enumerate(self.adds, start=1):
            if place is not None and place[1] > self.group_synced[place[0]]:
                break
            through = number
        return through


# An add to directory 0 to 2, or a refused one; the next group of a directory; a sync of it.
steps = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 2)),
    st.tuples(st.just("refuse"), st.just(0)),
    st.tuples(st.just("next group"), st.integers(0, 2)),
    st.tuples(st.just("sync"), st.integers(0, 2)),
)


@given(st.lists(steps, max_size=60))
def test_the_answers_agree_with_the_naive_count(history: list[tuple[str, int]]) -> None:
    runs, naive = AddRuns(3), NaiveAnswers([1, 1, 1], [0, 0, 0])
    groups_waiting: list[list[int]] = [[], [], []]
    said = 0

    def sync(directory: int) -> None:
        nonlocal said
        naive.group_synced[directory] = groups_waiting[directory].pop(0)
        naive.group_newest[directory] = max(
            naive.group_newest[directory], naive.group_synced[directory] + 1
        )
        answer = runs.on_synced(directory)
        if answer is not None:
            assert said < answer <= naive.through()
            said = answer
        # Only refused adds may remain unnamed.
        assert all(place is None for place in naive.adds[said : naive.through()])

    for what, directory in history:
        match what:
            case "add":
                group = naive.group_newest[directory]
                naive.adds.append((directory, group))
                if runs.take(directory, group, len(naive.adds)):
                    groups_waiting[directory].append(group)
            case "refuse":
                naive.adds.append(None)
            case "next group":
                naive.group_newest[directory] += 1
            case _ if groups_waiting[directory]:
                sync(directory)
    for directory in range(3):
        while groups_waiting[directory]:
            sync(directory)

    assert all(place is None for place in naive.adds[said:])
