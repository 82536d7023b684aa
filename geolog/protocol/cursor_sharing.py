"""Decides which reader of a shared cursor reads which partitions.

Theory of operation. Each reader computes the same division from the same facts: the readers
that are there, and who reads what. Shares differ by at most one partition. Readers that have
the most keep the larger shares, and each keeps what it has up to its share; so a reader that
joins gets only what others give up, and when one leaves only its partitions move. A reader
beyond the number of partitions has none: it is a spare. Readers whose facts differ for a moment
may both want a partition; the compare-and-set of its record lets one of them have it.

Invariants:
1. Every partition has exactly one reader.
2. Shares differ by at most one.
3. No division with such shares moves fewer partitions.

Rules: PROTOCOL K6.
"""

from collections.abc import Iterable, Mapping


def divide(
    partitions_count: int, readers: Iterable[str], read_by: Mapping[int, str]
) -> dict[int, str]:
    """Give each partition a reader. read_by: who reads it now, also of readers that left."""
    has: dict[str, list[int]] = {reader: [] for reader in sorted(set(readers))}
    if not has:
        return {}
    for number in range(partitions_count):
        if read_by.get(number) in has:
            has[read_by[number]].append(number)
    least, more_count = divmod(partitions_count, len(has))
    by_size = sorted(has, key=lambda reader: (-len(has[reader]), reader))
    shares = {reader: least + (i < more_count) for i, reader in enumerate(by_size)}
    given = {number: reader for reader in has for number in has[reader][: shares[reader]]}
    wanting = iter([reader for reader in has for _ in range(shares[reader] - len(has[reader]))])
    for number in range(partitions_count):
        if number not in given:
            given[number] = next(wanting)
    return given
