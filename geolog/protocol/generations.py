"""Among how many partitions a named writer divided its records: known for each seq, for ever.

A record of a named writer goes to a partition by its key, or by the writer's id, and by the
number of partitions that the stream has. That number can rise; but a record that is sent again
must go where it went first: elsewhere it would count as new, and be in the log twice.

Theory of operation. All that a session of a writer appends is stamped with the number of
partitions by which it goes. There is a moment before a session appends at which it owns all of
them, and it looks only then how many there are. So of two sessions of one writer the later took
each partition of the earlier after that one's moment: it sees all that the earlier appended,
and its number is not lower. (Were each taken at a moment of its own, two sessions could hold
some partitions each, go by two numbers, and append side by side.) The highest seq under each
number, in whichever partition, is what a generation is. A seq at or below it, and above that of
smaller numbers, goes by that number: if it is in the log at all, it was appended under it. A
seq above all of them is in no partition, since the sessions before can have nothing appended
any more, and goes by the number of now.

Invariant: once a seq is at or below the highest of any generation, its number stays the same.
A later session adds only stamps of its own number, which is not below that of any generation.

Rules: PROTOCOL S8.
"""

from collections.abc import Iterable

import attrs


@attrs.frozen(order=True)
class Generation:
    """The number of partitions that records were divided among, and the highest seq of them."""

    partitions: int
    seq_highest: int


def with_seq(
    generations: tuple[Generation, ...], partitions: int, seq_highest: int
) -> tuple[Generation, ...]:
    """The generations of a writer in one partition, rising, after one more batch.

    partitions: 0 for a batch that was addressed to its partition, and divided among none.
    """
    if not partitions:
        return generations
    if generations and generations[-1].partitions == partitions:
        return (*generations[:-1], Generation(partitions, seq_highest))
    others = [one for one in generations if one.partitions != partitions]
    return tuple(sorted([*others, Generation(partitions, seq_highest)]))


class WriterDivision:
    """Among how many partitions each seq of one writer is divided, as its session sees it."""

    def __init__(self, found: Iterable[tuple[Generation, ...]], partitions: int) -> None:
        """`found`: the generations in each partition; `partitions`: the number of now."""
        highest: dict[int, int] = {}
        for one in (each for some in found for each in some):
            highest[one.partitions] = max(highest.get(one.partitions, -1), one.seq_highest)
        self.partitions = partitions
        self._earlier: list[Generation] = []
        self._earlier_highest = -1
        for number in sorted(number for number in highest if number < partitions):
            if highest[number] > self._earlier_highest:
                self._earlier.append(Generation(number, highest[number]))
                self._earlier_highest = highest[number]

    def __repr__(self) -> str:
        earlier = ", ".join(f"{one.partitions} to {one.seq_highest}" for one in self._earlier)
        return f"WriterDivision({earlier or 'none'} before {self.partitions})"

    def partitions_of(self, seq: int) -> int:
        """The number of partitions that this seq is divided among."""
        if seq > self._earlier_highest:
            return self.partitions
        return next(one.partitions for one in self._earlier if one.seq_highest >= seq)
