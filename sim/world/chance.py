"""Random sources: one for each purpose, so that a new draw moves no other."""

from collections.abc import Iterable, Sequence
from random import Random
from typing import TypeVar

import attrs

T = TypeVar("T")


def chance(seed: int, purpose: str) -> Random:
    """The random source of one seed for one purpose."""
    return Random(f"{seed}/{purpose}")


@attrs.frozen
class Draws:
    """The draws that give a seed its world, each from a source of its own.

    The purpose is the name of the option that is drawn. A new option, drawn under a new name,
    leaves every other option of every seed as it was.
    """

    seed: int

    def choice(self, purpose: str, options: Sequence[T]) -> T:
        """One of the options; to make one likelier, name it twice."""
        return self._source(purpose).choice(options)

    def happens(self, purpose: str, share: float) -> bool:
        """True in this share of the seeds."""
        return self._source(purpose).random() < share

    def one_of(self, purpose: str, shares: Sequence[tuple[float, T]]) -> T | None:
        """Each option in its share of the seeds; None in the rest."""
        left = self._source(purpose).random()
        for share, option in shares:
            if left < share:
                return option
            left -= share
        return None

    def sample(self, purpose: str, names: Iterable[str], count: int) -> list[str]:
        """This many of the names, in random order.

        Each name draws its own rank. A new name changes only the samples that it enters.
        """
        ranked = sorted((self._source(f"{purpose}: {name}").random(), name) for name in names)
        return [name for _, name in ranked[:count]]

    def _source(self, purpose: str) -> Random:
        return chance(self.seed, f"draw {purpose}")
