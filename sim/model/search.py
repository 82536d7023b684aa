"""Search for a state that a law forbids: through all states, or along random walks."""

from collections.abc import Callable, Hashable, Iterable
from random import Random
from typing import Protocol, Self, TypeVar

import attrs

from sim.model.node import LawBrokenError

_RARE = ("owner closes", "stay", "takes the ledger")
"""Endings of steps after which little can happen: walks rarely take these."""


@attrs.frozen(kw_only=True)
class Searched:
    """The result of a search."""

    states_count: int
    """Different states, counting states with equal nodes once; for walks, states visited."""
    steps_count: int
    depth: int
    """Steps of the longest path that was needed, or taken."""
    is_closed: bool
    """Whether all states have been seen."""
    goals_count: int = 0
    """States in which the search has reached its goal.

    A search without any proves nothing, even if it is closed.
    """
    broken: str = ""
    """The law that a state broke, and how."""
    way: tuple[str, ...] = ()
    """The steps from the first state to that state."""


class ModelState(Protocol):
    """A state of a model; each step makes a new one."""

    @property
    def is_goal(self) -> bool:
        """Whether what the model is about has happened."""

    def digest(self) -> Hashable:
        """Equal for states from which the same can follow."""

    def steps(self) -> Iterable[tuple[str, Callable[[], Self]]]:
        """All possible next steps: words for each, and a function that makes the next state.

        That function raises LawBrokenError if the step itself breaks a law.
        """

    def settled(self) -> Self:
        """The same state without what can change nothing any more."""

    def check(self) -> None:
        """Raise LawBrokenError if the state breaks a law."""


SomeState = TypeVar("SomeState", bound=ModelState)


def search_all(
    first: SomeState,
    *,
    depth_max: int | None = None,
    on_depth: Callable[[int, int], None] = lambda _depth, _states: None,
) -> Searched:
    """Go through all states, breadth first, so that the path to a broken law is the shortest.

    `on_depth` is called for each finished depth, with the number of states so far.
    """
    root = first.digest()
    came_from: dict[Hashable, tuple[Hashable, str]] = {root: ((), "")}
    level = [(root, first)]
    depth = steps_count = goals_count = 0
    while level and depth != depth_max:
        behind: list[tuple[Hashable, SomeState]] = []
        for digest, state in level:
            for words, make in state.steps():
                steps_count += 1
                try:
                    found = make().settled()
                    key = found.digest()
                    if key in came_from:
                        continue
                    found.check()
                except LawBrokenError as error:
                    way = (*_way(came_from, digest), words)
                    return Searched(
                        states_count=len(came_from),
                        steps_count=steps_count,
                        depth=depth + 1,
                        is_closed=False,
                        goals_count=goals_count,
                        broken=str(error),
                        way=way,
                    )
                came_from[key] = digest, words
                goals_count += found.is_goal
                behind.append((key, found))
        level = behind
        if level:
            depth += 1
        on_depth(depth, len(came_from))
    return Searched(
        states_count=len(came_from),
        steps_count=steps_count,
        depth=depth,
        is_closed=not level,
        goals_count=goals_count,
    )


def walk(state: SomeState, seed: int, *, steps_max: int) -> Searched:
    """Take one random path until nothing more can happen, or for this many steps."""
    rng = Random(seed)
    way: list[str] = []
    goals_count = 0
    while len(way) < steps_max and (steps := list(state.steps())):
        weights = [0.1 if words.endswith(_RARE) else 1.0 for words, _ in steps]
        [(words, make)] = rng.choices(steps, weights)
        way.append(words)
        try:
            state = make().settled()
            state.check()
        except LawBrokenError as error:
            walked = _walked(way, goals_count, is_closed=False)
            return attrs.evolve(walked, broken=str(error), way=tuple(way))
        goals_count += state.is_goal
    return _walked(way, goals_count, is_closed=len(way) < steps_max)


def _walked(way: list[str], goals_count: int, *, is_closed: bool) -> Searched:
    return Searched(
        states_count=len(way) + 1,
        steps_count=len(way),
        depth=len(way),
        is_closed=is_closed,
        goals_count=goals_count,
    )


def _way(came_from: dict[Hashable, tuple[Hashable, str]], digest: Hashable) -> list[str]:
    """The steps from the first state to this one."""
    way: list[str] = []
    while True:
        digest, words = came_from[digest]
        if not words:
            return way[::-1]
        way.append(words)
