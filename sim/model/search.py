"""Search for a state that a law forbids: through all states, or along random walks."""

from collections.abc import Callable
from random import Random

import attrs

from sim.model.node import LawBrokenError
from sim.model.shape import ModelShape
from sim.model.state import State

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
    recovered_count: int = 0
    """States in which a recoverer has closed the ledger with an entry in it.

    A search without any has not reached its purpose, even if it is closed.
    """
    broken: str = ""
    """The law that a state broke, and how."""
    way: tuple[str, ...] = ()
    """The steps from the first state to that state."""


def search_all(
    shape: ModelShape,
    *,
    depth_max: int | None = None,
    on_depth: Callable[[int, int], None] = lambda _depth, _states: None,
) -> Searched:
    """Go through all states, breadth first, so that the path to a broken law is the shortest.

    `on_depth` is called for each finished depth, with the number of states so far.
    """
    symmetries = shape.symmetries()
    first = State.first(shape)
    root = first.digest(symmetries)
    came_from: dict[bytes, tuple[bytes, str]] = {root: (b"", "")}
    level = [(root, first)]
    depth = steps_count = recovered_count = 0
    while level and depth != depth_max:
        behind: list[tuple[bytes, State]] = []
        for digest, state in level:
            for words, make in state.steps():
                steps_count += 1
                try:
                    found = make().settled()
                    key = found.digest(symmetries)
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
                        recovered_count=recovered_count,
                        broken=str(error),
                        way=way,
                    )
                came_from[key] = digest, words
                recovered_count += found.is_recovered
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
        recovered_count=recovered_count,
    )


def walk(shape: ModelShape, seed: int, *, steps_max: int) -> Searched:
    """Take one random path until nothing more can happen, or for this many steps."""
    rng = Random(seed)
    state = State.first(shape)
    way: list[str] = []
    recovered_count = 0
    while len(way) < steps_max and (steps := list(state.steps())):
        weights = [0.1 if words.endswith(_RARE) else 1.0 for words, _ in steps]
        [(words, make)] = rng.choices(steps, weights)
        way.append(words)
        try:
            state = make().settled()
            state.check()
        except LawBrokenError as error:
            walked = _walked(way, recovered_count, is_closed=False)
            return attrs.evolve(walked, broken=str(error), way=tuple(way))
        recovered_count += state.is_recovered
    return _walked(way, recovered_count, is_closed=len(way) < steps_max)


def _walked(way: list[str], recovered_count: int, *, is_closed: bool) -> Searched:
    return Searched(
        states_count=len(way) + 1,
        steps_count=len(way),
        depth=len(way),
        is_closed=is_closed,
        recovered_count=recovered_count,
    )


def _way(came_from: dict[bytes, tuple[bytes, str]], digest: bytes) -> list[str]:
    """The steps from the first state to this one."""
    way: list[str] = []
    while True:
        digest, words = came_from[digest]
        if not digest:
            return way[::-1]
        way.append(words)
