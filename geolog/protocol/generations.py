"""Remembers, for each seq of a named writer, how many partitions it was divided among.

A record of a named writer goes to a partition chosen by its key, or by the writer's id, and by
the stream's number of partitions. That number can grow. A record that is sent again must still
go where it went the first time: in another partition it would count as new, and the log would
hold it twice.

Theory of operation. A session stamps everything it appends with the number of partitions that
it goes by, which it reads when it opens. To open, it repeats a turn (`writer_opening`): fence
every partition it knows, then read the number. It opens with n partitions when all n have
taken its fence and the number is still n. Partitions have owners of their own, which change
one at a time; no session needs to own anything.

Claim: of two sessions of one writer that open, the one with the higher epoch sees everything
that the other appended, and its number is not lower.

- A partition takes one session per epoch (`writer_fence`), and both fenced partition 0. So
  their epochs differ; let e < e' be those epochs, and n and n' the numbers.
- Suppose n' < n. Then e read n before its last turn of fences. The number only grows, so this
  was after e' had read n' for the last time, and so after e' had fenced partition 0. In its
  last turn e fenced partition 0 again, and must have been refused. So n <= n'.
- So e' fenced each partition of e. There, every batch of e comes before that fence in the log,
  or is refused. The fence was answered with the state behind all of them.

The second step needs the repeats. If e fenced only the new partitions in its last turn, it
could open with partitions that e' never saw, and go on appending there. It also needs each
repeat to be an entry of its own, acknowledged after it was asked for: an owner that lost
partition 0 before e' fenced it, and does not know, would answer from memory that e still holds
it. And the number must be read at least as new as the request.

The third step needs fences that outlast their owner, as entries of the log do. All of it holds
for as long as the partitions remember the writer (PROTOCOL S9).

A generation is one number of partitions with the highest seq stamped with it in any partition.
A seq at or below that highest, and above the highest of all smaller numbers, goes by that
number: if the log has it at all, it was appended under it. A seq above all generations is in no
partition, and earlier sessions can append nothing more; it goes by the current number.

Invariant: once a seq is at or below the highest of any generation, its number stays the same. A
later session adds only stamps of its own number, which is not below any generation's.

Rules: PROTOCOL S8 and S20.
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
