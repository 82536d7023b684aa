"""Standing of each replica with one process, from what its reads observed: pure.

The policy's order comes first (`read_order`). Observation changes it in two ways.

**Demotion.** A replica that failed, or that speculative requests overtook `OVERTAKEN_MAX` times
in a row, is demoted: it is asked after all others. One overtaking is enough if the replica said
nothing to anybody since it was asked, for clearly longer than usual: it hangs or is cut off. A
replica that was merely not asked is never marked, and a refusal that says nothing about its
health counts as an answer. A demotion lasts `DEMOTED_S_MIN`, and twice as long each time it
follows another, up to `DEMOTED_S_MAX`.

**Forgiveness.** After that time the replica is on probation. It has its place again, except the
first. Where it would come first, one read in `TRIAL_S` asks it as well, at the side of the one
that does, and that decides: a trial costs its reader nothing. If no read tries it, a shadow
request decides. A good answer within its usual time forgives it, on probation or before, and
everybody asks it as usual at once. A failure or a late answer demotes it again. So a replica
that deserves the first place is asked again within `DEMOTED_S_MAX + TRIAL_S`, whatever happens.
The usual time is `USUAL_MULTIPLE` times the median latency before the demotion. Each late
answer doubles it, so a replica that has become slower for good is not kept out for ever. How
long demotions last is forgotten once a forgiven replica has been good for `FORGOTTEN_S`.

**Handicaps.** Among healthy replicas that are equally close, the clearly slower, the clearly
busier and those that are read-only or draining come later. A step of latency is a factor of
`CLEARLY`; it is taken back only at a smaller factor, so that orders do not flap. All replicas
within a step share the reads at random, and one order in a while ignores handicaps, so that
what is known of the slower ones stays fresh (see `ReplicaOrder`).

Rules: PROTOCOL R20, R21 and R25.
"""

import enum
import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence

import attrs

from topology.read_order import NodeHealth
from topology.route_latency import RouteLatencies

DEMOTED_S_MIN = 1.0
"""Length of a first demotion."""

DEMOTED_S_MAX = 10.0
"""Longest demotion."""

OVERTAKEN_MAX = 3
"""A replica that is overtaken this often without an answer in between is demoted."""

# A healthy replica loses a race now and then: the delay before a speculative request is a
# percentile of its own latency. It seldom loses three in a row; one that hangs always does.

SILENT_S = 0.25
"""A replica that leaves a request unanswered for so long, and says nothing else, is silent."""

OVERTAKEN_SILENT_S = 0.02
"""One that was overtaken is silent after this time already, or after `USUAL_MULTIPLE` times its
usual latency if that is longer: another has shown that the question can be answered."""

TRIAL_S = 3.0
"""How long one read may try a replica on probation before another may: more than the time limit
of a question, after which the first has reported unless its caller gave it up."""

OFFER_S = 0.5
"""How long a reader that gets a trial may take to ask the replica."""

SHADOW_S = 1.0
"""A replica on probation that no read has asked for this long gets a shadow request."""

DEMOTIONS_MAX = 32
"""A replica that fails shadow requests after so many demotions is forgotten: it may be gone for
good, and if not, reads find it out again."""

FREE_S = 10.0
"""How often one late question that has no budget may find out whether a replica hangs."""

FORGOTTEN_S = 30.0
"""A replica that stays good for this long after it was forgiven starts over."""

USUAL_MULTIPLE = 4.0
"""An answer within this many times the usual latency is in time."""

USUAL_S_MIN = 0.05
"""An answer within this time is in time, however fast the replica used to be."""

CLEARLY = 2.0
"""A replica is clearly slower if its median is this many times that of the fastest."""

TAKEN_BACK = 1.4
"""How far the factor must fall below a step before the step is taken back."""

FASTEST_S_MIN = 0.0005
"""Differences below this latency do not matter."""

PENDING_MORE = 16
"""A replica with this many more pending requests than the least busy one is clearly busier."""

REPLICAS_MAX = 1_024
"""How many replicas to remember; beyond it the one marked first is forgiven early."""


class DemotionReason(enum.Enum):
    """Evidence that demoted a replica."""

    FAILED = "failed"
    """It could not be reached, broke off, or refused."""
    SILENT = "silent"
    """It said nothing to anybody while it was waited for."""
    OVERTAKEN = "overtaken"
    """Speculative requests to others were faster, several times in a row."""
    LATE = "late"
    """It was tried, and its answer was clearly slower than usual."""


@attrs.define(eq=False)
class _Observed:
    """Evidence against one replica.

    Invariant: it is demoted before `until_s`, and on probation from then on, if `is_marked`.
    """

    overtaken_count: int = 0
    """How often it was overtaken since its last answer."""
    demotions_count: int = 0
    """Demotions since it was last good for a while."""
    is_marked: bool = False
    until_s: float = -math.inf
    tried_s: float = -math.inf
    """When it was last asked on probation."""
    offered_s: float = -math.inf
    """When an order last had it first on probation."""
    usual_s: float | None = None
    """Its usual latency; None if unknown: then any answer is in time."""
    forgiven_s: float = -math.inf

    def is_trial_due(self, now_s: float) -> bool:
        """On probation: whether no other read is trying it, or was just told to."""
        return now_s >= self.tried_s + TRIAL_S and now_s >= self.offered_s + OFFER_S

    def is_in_time(self, took_s: float) -> bool:
        """Whether an answer is as fast as can be expected."""
        usual_s = self.usual_s
        return usual_s is None or took_s <= max(USUAL_S_MIN, USUAL_MULTIPLE * usual_s)


@attrs.frozen
class Ranked:
    """An order for a reader."""

    slots: list[int]
    tried: int | None
    """The slot of a replica on probation that one read is to try at the side of the first."""
    has_handicaps: bool
    """Whether an order without handicaps may differ."""


class ReplicaRanking:
    """Observations of replicas by a process; every reader of the process adds to it."""

    def __init__(self, latencies: RouteLatencies | None = None) -> None:
        self.latencies = latencies or RouteLatencies()
        self.version = 0
        """Rises with each demotion and forgiveness, either of which may change any order."""
        self.demotions = Counter[DemotionReason]()
        """Demotions so far, by reason; one that is on probation may be demoted again."""
        self._observed: dict[str, _Observed] = {}
        self._pending: dict[str, int] = {}
        self._heard_s: dict[str, float] = {}  # When each answered last.
        self._freed_s: dict[str, float] = {}  # When each was last found out about for free.
        self._steps: dict[str, int] = {}  # Of latency, behind the fastest that is as close.

    def __repr__(self) -> str:
        return f"ReplicaRanking({len(self._observed)} observed, {len(self._pending)} pending)"

    # Events.

    def asked(self, node: str, now_s: float) -> None:
        """Count a request that was sent to this replica; on probation, it is a trial."""
        self._pending[node] = self._pending.get(node, 0) + 1
        observed = self._observed.get(node)
        if observed is not None and observed.is_marked and now_s >= observed.until_s:
            observed.tried_s = now_s

    def ended(self, node: str) -> None:
        """Count a request as no longer pending: answered, failed or given up."""
        left = self._pending.get(node, 0) - 1
        if left > 0:
            self._pending[node] = left
        else:
            self._pending.pop(node, None)

    def note_answered(self, node: str, took_s: float, now_s: float) -> None:
        """The replica gave its first answer to a request in time, and was not overtaken."""
        self.latencies.note(node, took_s, now_s)
        self.note_heard(node, now_s)
        observed = self._observed.get(node)
        if observed is None:
            return
        if not observed.is_marked:
            observed.overtaken_count = 0
            if now_s >= observed.forgiven_s + FORGOTTEN_S:
                del self._observed[node]
        elif observed.is_in_time(took_s):
            self._forgive(observed, now_s)
        elif now_s >= observed.until_s:
            if observed.usual_s is not None:
                observed.usual_s *= 2
            self._demote(node, observed, DemotionReason.LATE, now_s)

    def note_heard(self, node: str, now_s: float) -> None:
        """The replica said something: an answer, or a refusal."""
        if node not in self._heard_s and len(self._heard_s) >= REPLICAS_MAX:
            self._heard_s.clear()
        self._heard_s[node] = now_s

    def note_failed(
        self, node: str, now_s: float, reason: DemotionReason = DemotionReason.FAILED
    ) -> None:
        """The replica refused, broke off, or did not answer in time."""
        observed = self._of(node)
        if not observed.is_marked or now_s >= observed.until_s:
            self._demote(node, observed, reason, now_s)

    def note_late(self, node: str, asked_s: float, now_s: float) -> None:
        """A request is late: another replica is to be asked, too, if the budget allows it.

        It fails the replica only if that was silent for `SILENT_S`, to all requests, since it
        was sent: a replica that is merely slow still answers others.
        """
        if self._is_silent_since(node, asked_s) and now_s - asked_s >= SILENT_S:
            self.note_failed(node, now_s, DemotionReason.SILENT)

    def note_overtaken(self, node: str, asked_s: float, now_s: float) -> None:
        """A speculative request, sent later to another replica, had a good answer earlier.

        The overtaken request was sent at `asked_s`.
        """
        observed = self._of(node)
        if self.is_silent(node, asked_s, now_s):
            self.note_failed(node, now_s, DemotionReason.SILENT)
            return
        observed.overtaken_count += 1
        is_tried = observed.is_marked and now_s >= observed.until_s
        if is_tried or (not observed.is_marked and observed.overtaken_count >= OVERTAKEN_MAX):
            self._demote(node, observed, DemotionReason.OVERTAKEN, now_s)

    def is_silent(self, node: str, asked_s: float, now_s: float) -> bool:
        """Whether the replica said nothing to anybody since `asked_s`, for clearly too long."""
        waited_s = now_s - asked_s
        if waited_s < OVERTAKEN_SILENT_S or not self._is_silent_since(node, asked_s):
            return False
        median_s = self.latencies.median_s(node, now_s)
        return waited_s >= (SILENT_S if median_s is None else USUAL_MULTIPLE * median_s)

    def take_free(self, node: str, asked_s: float, now_s: float) -> bool:
        """Whether a late question without budget may go further, as the replica may hang."""
        if not self.is_silent(node, asked_s, now_s):
            return False
        if now_s < self._freed_s.get(node, -math.inf) + FREE_S:
            return False
        if node not in self._freed_s and len(self._freed_s) >= REPLICAS_MAX:
            self._freed_s.clear()
        self._freed_s[node] = now_s
        return True

    def _is_silent_since(self, node: str, asked_s: float) -> bool:
        return self._heard_s.get(node, -math.inf) <= asked_s

    def forgive(self, node: str, now_s: float) -> None:
        """Forgive the replica: it proved itself otherwise than by the time of an answer."""
        observed = self._observed.get(node)
        if observed is not None and observed.is_marked:
            self._forgive(observed, now_s)

    # Orders.

    def ranked(
        self,
        ensemble: Sequence[str],
        distances: Sequence[int],
        draw: Callable[[NodeHealth], list[int]],
        now_s: float,
        *,
        spared: Collection[str] = (),
        is_exploring: bool = False,
        may_try: bool = False,
    ) -> Ranked:
        """Draw an order for one reader of these replicas, each as far away as `distances` says.

        `draw` is the policy's order, given what is known. `spared` are read-only or draining.
        `is_exploring` ignores handicaps. `may_try`: this reader could try a replica. A trial is
        for it alone, and begins once the replica is `asked`: a reader that does not ask it soon
        leaves it to another.
        """
        demoted = frozenset(one for one in ensemble if self._is_demoted(one, now_s))
        handicap = (
            {} if is_exploring else self._handicaps(ensemble, distances, spared, demoted, now_s)
        )
        aside = dict[str, int]()  # On probation: they come later until a trial has decided.
        tried: int | None = None
        while True:
            health = NodeHealth(
                slow=demoted, pending=self._pending, failed_at_entry=aside, handicap=handicap
            )
            slots = draw(health)
            first = ensemble[slots[0]]
            observed = self._observed.get(first)
            if (
                observed is None
                or not observed.is_marked
                or first in demoted  # All are: it is asked in any case.
                or first in aside
            ):
                if tried is not None:
                    self._observed[ensemble[tried]].offered_s = now_s
                return Ranked(
                    slots,
                    # Without a better one it is asked first in any case.
                    tried=None if tried == slots[0] else tried,
                    has_handicaps=bool(handicap),
                )
            if may_try and tried is None and observed.is_trial_due(now_s):
                tried = slots[0]
            aside[first] = 0

    @property
    def has_marked(self) -> bool:
        """Whether any replica is demoted or on probation."""
        return any(one.is_marked for one in self._observed.values())

    def shadows_due(self, now_s: float) -> list[str]:
        """Replicas on probation that no read asks; ask each of them something small."""
        return [
            node
            for node, one in self._observed.items()
            if one.is_marked
            and now_s >= one.until_s + SHADOW_S
            and now_s >= one.tried_s + TRIAL_S
        ]

    def note_shadow_failed(self, node: str, now_s: float) -> None:
        """A shadow request to this replica failed."""
        observed = self._observed.get(node)
        if observed is not None and observed.demotions_count >= DEMOTIONS_MAX:
            del self._observed[node]
            self.version += 1
        else:
            self.note_failed(node, now_s, DemotionReason.SILENT)

    def demoted_count(self, now_s: float) -> int:
        """Number of replicas that are asked after the others now."""
        return sum(one.is_marked and now_s < one.until_s for one in self._observed.values())

    def is_demoted(self, node: str, now_s: float) -> bool:
        """Whether this replica is asked after the others now."""
        return self._is_demoted(node, now_s)

    def pending(self, node: str) -> int:
        """Number of the replica's requests that have not ended."""
        return self._pending.get(node, 0)

    # Steps.

    def _of(self, node: str) -> _Observed:
        found = self._observed.get(node)
        if found is None:
            if len(self._observed) >= REPLICAS_MAX:
                del self._observed[next(iter(self._observed))]
                self.version += 1
            found = self._observed[node] = _Observed()
        return found

    def _demote(
        self, node: str, observed: _Observed, reason: DemotionReason, now_s: float
    ) -> None:
        self.demotions[reason] += 1
        if not observed.is_marked:
            if now_s >= observed.forgiven_s + FORGOTTEN_S:
                observed.demotions_count = 0
            observed.usual_s = self.latencies.median_s(node, now_s)
        # Far beyond the bound it stays: a power of two must not grow for ever.
        doublings = min(observed.demotions_count, 30)
        observed.demotions_count += 1
        observed.is_marked = True
        observed.until_s = now_s + min(DEMOTED_S_MIN * 2.0**doublings, DEMOTED_S_MAX)
        observed.tried_s = observed.offered_s = -math.inf
        self.version += 1

    def _forgive(self, observed: _Observed, now_s: float) -> None:
        observed.is_marked = False
        observed.overtaken_count = 0
        observed.forgiven_s = now_s
        self.version += 1

    def _is_demoted(self, node: str, now_s: float) -> bool:
        observed = self._observed.get(node)
        return observed is not None and observed.is_marked and now_s < observed.until_s

    def _handicaps(
        self,
        ensemble: Sequence[str],
        distances: Sequence[int],
        spared: Collection[str],
        demoted: frozenset[str],
        now_s: float,
    ) -> dict[str, int]:
        """Steps behind the best of those that are equally close; only those that have any."""
        found = dict[str, int]()
        for distance in sorted(set(distances)):
            equals = [
                node
                for node, away in zip(ensemble, distances, strict=True)
                if away == distance and node not in demoted
            ]
            medians = {node: self.latencies.median_s(node, now_s) for node in equals}
            known = [median_s for median_s in medians.values() if median_s is not None]
            fastest_s = max(min(known, default=math.inf), FASTEST_S_MIN)
            pending_min = min((self.pending(node) for node in equals), default=0)
            for node in equals:
                steps = self._steps_of(node, medians[node], fastest_s)
                steps += self.pending(node) >= pending_min + PENDING_MORE
                steps += node in spared
                if steps:
                    found[node] = steps
        return found

    def _steps_of(self, node: str, median_s: float | None, fastest_s: float) -> int:
        """Steps of latency; an unknown latency is as good as the best."""
        before = self._steps.pop(node, 0)
        if median_s is None:
            return 0
        steps, factor = before, median_s / fastest_s
        while factor >= CLEARLY ** (steps + 1):
            steps += 1
        while steps and factor < CLEARLY**steps / TAKEN_BACK:
            steps -= 1
        if steps:
            if len(self._steps) >= REPLICAS_MAX:
                self._steps.clear()
            self._steps[node] = steps
        return steps
