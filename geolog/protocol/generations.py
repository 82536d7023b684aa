"""Remembers, for each seq of a named writer, how many partitions it was divided among.

A record of a named writer goes to a partition chosen by its key, or by the writer's id, and by
the stream's number of partitions. That number can grow. A record that is sent again must still
go where it went the first time: in another partition it would count as new, and the log would
hold it twice.

Theory of operation. A session stamps everything it appends with the number of partitions that
it goes by. It reads that number only once, at a moment before its first append when it owns all
partitions. So of two sessions of one writer, the later took every partition after the earlier
one's moment: it sees everything that the earlier appended, and its number is not lower. (If
partitions were taken independently, two sessions could hold some partitions each, go by two
numbers, and append side by side.)

A generation is one number of partitions with the highest seq stamped with it in any partition.
A seq at or below that highest, and above the highest of all smaller numbers, goes by that
number: if the log has it at all, it was appended under it. A seq above all generations is in no
partition, since earlier sessions can no longer have anything appended; it goes by the current
number.

Invariant: once a seq is at or below the highest of any generation, its number stays the same. A
later session adds only stamps of its own number, which is not below any generation's.

Rules: PROTOCOL S8.
"""

from collections.abc import Iterable

import attrs


@attrs.frozen(order=True)
class Generation:
    """A number of partitions, and the highest seq that was divided among so many."""

    partitions: int
    seq_highest: int


def with_seq(
    generations: tuple[Generation, ...], partitions: int, seq_highest: int
) -> tuple[Generation, ...]:
    """The generations of a writer in one partition after another batch, in rising order.

    partitions: how many the batch's writer divided its records among; 0 for a batch that was
    addressed to its partition directly.
    """
    if not partitions:
        return generations
    if generations and generations[-1].partitions == partitions:
        return (*generations[:-1], Generation(partitions, seq_highest))
    others = [one for one in generations if one.partitions != partitions]
    return tuple(sorted([*others, Generation(partitions, seq_highest)]))


class WriterDivision:
    """How many partitions each seq of one writer is divided among, as its session sees it."""

    def __init__(self, found: Iterable[tuple[Generation, ...]], partitions: int) -> None:
        """`found`: the generations in each partition; `partitions`: the current number."""
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
