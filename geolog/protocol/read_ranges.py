"""Divides the records of a batch read into ranges, one for each task.

Theory of operation. Sequences are dense within a partition, so a range of sequences can begin
anywhere: in any sealed segment, or in the open one below the end that was asked for. Each
partition with records is one range at first. While there are fewer ranges than wanted, the
partition whose ranges are longest is divided into one more. All ranges of a partition differ
by at most one record, so no other division into as many ranges has a shorter longest range.
The work and the memory grow with partitions and ranges, never with records.
"""

import heapq
from collections.abc import Sequence
from itertools import pairwise

import attrs

RANGES_MAX = 100_000
"""Most ranges of one read: each is a task, which the driver keeps."""


@attrs.frozen
class SequenceSpan:
    """The records of one partition from `first` up to `end`, exclusive."""

    stream: str
    partition: int
    first: int
    end: int
    home_epoch: int = 1
    """In which these sequences name records; a later home may give them to others."""

    def __len__(self) -> int:
        return max(0, self.end - self.first)


def divide_spans(spans: Sequence[SequenceSpan], ranges_min: int) -> list[SequenceSpan]:
    """Divide spans into at least `ranges_min` ranges, as far as there are records.

    Empty spans have no range. The ranges are in the order of the spans and cover each record
    once.
    """
    filled = [span for span in spans if len(span) > 0]
    wanted = min(ranges_min, RANGES_MAX, sum(map(len, filled)))
    parts = [1] * len(filled)
    longest = [(-len(span), index) for index, span in enumerate(filled)]
    heapq.heapify(longest)
    for _ in range(wanted - len(filled)):
        index = longest[0][1]
        parts[index] += 1
        heapq.heapreplace(longest, (-_ceiled(len(filled[index]), parts[index]), index))
    return [
        one for span, count in zip(filled, parts, strict=True) for one in _divided(span, count)
    ]


def _divided(span: SequenceSpan, count: int) -> list[SequenceSpan]:
    cuts = [span.first + len(span) * part // count for part in range(count + 1)]
    return [attrs.evolve(span, first=first, end=end) for first, end in pairwise(cuts)]


def _ceiled(total: int, parts: int) -> int:
    return -(-total // parts)
