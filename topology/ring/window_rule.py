"""The conditions on every write set of a ring, in numbers that a search can count with.

Slots of a ring have labels: a domain (a region, a rack, a zone) and perhaps a domain within it.
A rule is a list of limits, each of the form "outside any k domains are at least o slots of a
write set". All policies are such lists:

- at least d domains in a write set: outside any d - 1 is at least 1;
- no A nodes of it in fewer than m regions: outside any m - 1 regions are at least W - A + 1;
- an ack set is left without any one region: outside any 1 are at least A, outside any m is 1.

Filling a slot never lowers what is outside. So a limit that a write set can no longer meet is
noticed before the write set is full. A label of None is a slot whose node does not count.

Rules: PROTOCOL P1.
"""

import enum
from collections import Counter
from collections.abc import Mapping, Sequence

import attrs

Label = tuple[str, ...]


class Adherence(enum.Enum):
    """How well an ensemble keeps to its policy: wholly, enough to be written to, or not."""

    STRICT = "strict"
    SOFT = "soft"
    FAIL = "fail"


_RANK = {Adherence.STRICT: 2, Adherence.SOFT: 1, Adherence.FAIL: 0}


def rank_of(adherence: Adherence) -> int:
    """A number that rises with adherence."""
    return _RANK[adherence]


@attrs.frozen
class Limit:
    """Outside any `domains` domains are at least `outside_min` slots of every write set."""

    domains: int
    outside_min: int


@attrs.frozen
class WindowRule:
    """The limits of one policy, and how many inner domains each domain must span."""

    width: int
    """The write quorum: the number of consecutive slots in a write set."""
    strict: tuple[Limit, ...]
    soft: tuple[Limit, ...]
    inner_min: int = 1
    """A domain's slots in a write set span this many inner domains, or each has its own."""

    def limits(self, wanted: Adherence) -> tuple[Limit, ...]:
        """The limits that must hold for this adherence; those of SOFT hold for STRICT too."""
        return (*self.strict, *self.soft) if wanted is Adherence.STRICT else self.soft

    def may_hold(self, window: Sequence[Label | None], missing: int, wanted: Adherence) -> bool:
        """Whether a write set with these labels and `missing` slots to fill can still hold."""
        counts = Counter(label[0] for label in window if label is not None)
        if not self._limits_hold([*counts.values(), *[1] * missing], wanted):
            return False
        return self.inner_min <= 1 or self._inner_short(window) <= missing

    def changes_needed(self, window: Sequence[Label | None], wanted: Adherence) -> int:
        """The least number of slots of a whole write set that must change before it can hold.

        A lower bound: each change moves a slot of the fullest domain to a new one.
        """
        counts = Counter(label[0] for label in window if label is not None)
        shares = sorted(counts.values(), reverse=True)
        inner_short = self.inner_min > 1 and self._inner_short(window) > 0
        nobody = len(window) - sum(shares)
        for changes in range(len(window) + 1):
            if self._limits_hold([*shares, *[1] * changes], wanted):
                return max(changes, 1 if inner_short else 0)
            if nobody:
                nobody -= 1
            elif shares:
                shares[0] -= 1
                shares.sort(reverse=True)
        return len(window)

    def share_max(
        self, width: int, domains: int, wanted: Adherence, *, inner: int | None = None
    ) -> int:
        """The most slots of a write set of `width` in any one of `domains` domains.

        `inner` is the number of inner domains that it has; None: enough.
        """
        most = width if inner is None or inner >= self.inner_min else min(inner, width)
        for share in range(most, 0, -1):
            others = _evenly(width - share, domains - 1)
            if sum(others) == width - share and self._limits_hold([share, *others], wanted):
                return share
        return 0

    def domains_min(self, width: int, wanted: Adherence) -> int:
        """The domains that a write set of `width` needs; more than `width` if none can hold."""
        for domains in range(1, width + 1):
            if self._limits_hold(_evenly(width, domains), wanted):
                return domains
        return width + 1

    def _limits_hold(self, shares: Sequence[int], wanted: Adherence) -> bool:
        total = sum(shares)
        ranked = sorted(shares, reverse=True)
        return all(
            total - sum(ranked[: limit.domains]) >= limit.outside_min
            for limit in self.limits(wanted)
        )

    def judge_window(self, window: Sequence[Label | None]) -> Adherence:
        """How well one whole write set adheres."""
        if not self.may_hold(window, 0, Adherence.SOFT):
            return Adherence.FAIL
        if not self.may_hold(window, 0, Adherence.STRICT):
            return Adherence.SOFT
        return Adherence.STRICT

    def judge(self, ring: Sequence[Label | None]) -> Adherence:
        """How well the ring adheres: as its worst write set does."""
        worst = Adherence.STRICT
        for window in self.windows(ring):
            found = self.judge_window(window)
            if rank_of(found) < rank_of(worst):
                worst = found
            if worst is Adherence.FAIL:
                break
        return worst

    def windows(self, ring: Sequence[Label | None]) -> list[list[Label | None]]:
        """Every write set, in order of its first slot; one if it is the whole ring."""
        size = len(ring)
        if self.width >= size:
            return [list(ring)]
        twice = [*ring, *ring]
        return [twice[first : first + self.width] for first in range(size)]

    def windows_with(self, ring: Sequence[Label | None], slot: int) -> list[list[Label | None]]:
        """The write sets that a slot is in."""
        size = len(ring)
        if self.width >= size:
            return [list(ring)]
        return [
            [ring[(first + turn) % size] for turn in range(self.width)]
            for first in range(slot - self.width + 1, slot + 1)
        ]

    def _inner_short(self, window: Sequence[Label | None]) -> int:
        """How many more slots it takes until every domain spans enough inner domains."""
        spans: dict[str, set[Label]] = {}
        counts: Counter[str] = Counter()
        for label in window:
            if label is not None:
                spans.setdefault(label[0], set()).add(label)
                counts[label[0]] += 1
        return sum(
            max(0, min(counts[domain], self.inner_min) - len(span))
            for domain, span in spans.items()
        )


def _evenly(slots: int, domains: int) -> list[int]:
    """The most even shares: no others have more outside their fullest."""
    if domains < 1:
        return []
    each, more = divmod(slots, domains)
    return [each + 1] * more + [each] * (domains - more)


def shares_dealt(counts: Mapping[str, int], size: int) -> dict[str, int]:
    """The most even shares of `size` slots that the counts allow; first named, first served.

    Their total is less than `size` if there are too few nodes.
    """
    shares = dict.fromkeys(counts, 0)
    left = size
    open_ = [name for name, count in counts.items() if count]
    while left and open_:
        level = min(counts[name] - shares[name] for name in open_)
        if level * len(open_) > left:
            level = left // len(open_)
        if level == 0:
            for name in open_[:left]:
                shares[name] += 1
            break
        for name in open_:
            shares[name] += level
        left -= level * len(open_)
        open_ = [name for name in open_ if shares[name] < counts[name]]
    return shares
