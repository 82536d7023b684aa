"""Turn what a stream must survive into quorums, or explain why it cannot be promised.

A promise names a loss: a number of domains (nodes, racks or regions), and perhaps more nodes.
It holds when, whichever are lost, (1) in every write set an ack set is left, so it can be
written to; (2) the lost nodes are not an ack set, so acknowledged entries remain, and the rest
can fence; and (3) a new ensemble can still be placed. Write sets are whole ensembles here,
E = W, so only shares count. For regions m is one more than may be lost, so that an
acknowledgement never depends on lost regions alone.

Rules: PROTOCOL P8.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from topology.errors import InvalidArgumentError, NotEnoughNodesError
from topology.nearest import nearest
from topology.placement import Candidate, adherence_of, arrange_regions
from topology.quorum import (
    ENSEMBLE_SIZE_MAX,
    Durability,
    QuorumConfig,
    ack_quorum_smallest,
)
from topology.ring.window_rule import Adherence, shares_dealt
from topology.stream_policy import REGION_AWARE_TERMS, PlacementTerms, PolicyKind

_NUMBERS = {"one": 1, "two": 2, "1": 1, "2": 2}
_PROMISE = re.compile(r"(\w+) (node|rack|region)s?(?: and (\w+) nodes?)?")
_KNOWN = ("1 node", "1 rack", "1 region", "1 region and 1 node", "2 regions")
"""Available promises, the weakest first."""
_REGIONAL = _KNOWN[:2]


@attrs.frozen
class Loss:
    """A number of domains of one kind that may be lost, and a number of nodes on top."""

    domains: int
    kind: str
    nodes: int = 0

    def __str__(self) -> str:
        plural = "s" if self.domains > 1 else ""
        return f"{self.domains} {self.kind}{plural}" + (
            f" and {self.nodes} node" if self.nodes else ""
        )

    @classmethod
    def parse(cls, text: str, *, is_regional: bool = False) -> "Loss":
        """Parse e.g. `1 region and 1 node`; InvalidArgumentError lists the known promises."""
        known = _REGIONAL if is_regional else _KNOWN
        found = _PROMISE.fullmatch(" ".join(text.lower().split()))
        if found is not None and found[1] in _NUMBERS and found[3] in (None, *_NUMBERS):
            loss = cls(_NUMBERS[found[1]], found[2], _NUMBERS[found[3]] if found[3] else 0)
            if str(loss) in known:
                return loss
        what = "a regional stream, which is in one region" if is_regional else "a stream"
        best = nearest(text, known)
        hint = "" if best is None else f"; did you mean {best!r}?"
        raise InvalidArgumentError(
            f"unknown promise {text!r} for {what}{hint or '.'} Available are"
            f" {', '.join(repr(one) for one in known)}"
            " (or give the quorums: ensemble size, write quorum, ack quorum, min regions)"
        )


@attrs.frozen
class SurvivalPlan:
    """The quorums and the policy that keep a promise, with the reasons for a person."""

    loss: Loss
    quorum: QuorumConfig
    placement: PlacementTerms
    explanation: tuple[str, ...]


def plan_to_survive(
    survive: str,
    candidates: Iterable[Candidate],
    *,
    durability: Durability = Durability.REGIONS,
    home: str | None = None,
) -> SurvivalPlan:
    """Derive E, W, A, m and policy from the nodes that are up.

    `home` is the region of a `regional` stream, where all its copies are. InvalidArgumentError
    if the promise is unknown. NotEnoughNodesError if it cannot be kept, with the reason and the
    nearest one that can.
    """
    loss = Loss.parse(survive, is_regional=home is not None)
    nodes = sorted({one for one in candidates if home in (None, one.location.region)})
    try:
        return _plan(loss, nodes, durability, home)
    except NotEnoughNodesError as error:
        where = f"in region {home}: " if home else ""
        raise NotEnoughNodesError(
            f"{where}{error}{_nearest(loss, nodes, durability)}"
        ) from None


def _nearest(loss: Loss, nodes: Sequence[Candidate], durability: Durability) -> str:
    """The alternative promise, as the end of a refusal."""
    if durability is Durability.COUNT and _can_plan(loss, nodes, Durability.REGIONS):
        return ". With durability 'regions' it can be promised"
    weaker = reversed(_KNOWN[: _KNOWN.index(str(loss))])
    for text in weaker:
        if _can_plan(Loss.parse(text), nodes, durability):
            return f". Possible now: {text!r}"
    return ""


def _can_plan(loss: Loss, nodes: Sequence[Candidate], durability: Durability) -> bool:
    try:
        _plan(loss, nodes, durability)
    except NotEnoughNodesError:
        return False
    return True


def _plan(
    loss: Loss, nodes: Sequence[Candidate], durability: Durability, home: str | None = None
) -> SurvivalPlan:
    counts = _counts(loss, nodes)
    least = 2 * loss.domains + 1
    if len(counts) < least:
        raise NotEnoughNodesError(
            f"surviving the loss of {loss} needs nodes in at least {least} {loss.kind}s;"
            f" nodes are up in {len(counts)} ({', '.join(sorted(counts)) or 'none'}):"
            " start nodes in others, or give the quorum sizes"
        )
    for size in _sizes(loss, len(counts)):
        for config in _configs(loss, size, counts, durability):
            if _holds(loss, config, counts):
                lines = _explained(loss, config, counts, nodes, home)
                terms = attrs.evolve(_terms(loss, config), region=home)
                return SurvivalPlan(loss, config, terms, lines)
    raise NotEnoughNodesError(_refusal(loss, counts))


def _counts(loss: Loss, candidates: Sequence[Candidate]) -> dict[str, int]:
    """The number of nodes in each domain that may be lost."""
    found: Counter[str] = Counter()
    for one in candidates:
        match loss.kind:
            case "node":
                found[one.node] += 1
            case "rack":
                found[str(one.location)] += 1
            case _:
                found[one.location.region] += 1
    return dict(found)


def _sizes(loss: Loss, domains: int) -> Iterator[int]:
    """Ensemble sizes, the preferred first.

    For regions: two copies in each, so that one lost node moves no entry out of its region;
    else one in each; else one in each of as few as suffice; more only if nodes may be lost as
    well.
    """
    least = 2 * loss.domains + 1
    if loss.kind == "region":
        wanted = [2 * domains, domains, least]
        wanted += [3 * domains, 4 * domains] if loss.nodes else []
    else:
        wanted = [least, *(copies * domains for copies in (1, 2))]
    yield from (size for size in dict.fromkeys(wanted) if size <= ENSEMBLE_SIZE_MAX)


def _configs(
    loss: Loss, size: int, counts: Mapping[str, int], durability: Durability
) -> Iterator[QuorumConfig]:
    is_regions = loss.kind == "region"
    min_regions = loss.domains + 1 if is_regions else 1
    shares = shares_dealt(counts, size)
    if sum(shares.values()) < size:
        return
    lost_most = max((sum(lost.values()) for lost in _losses(loss, shares)), default=0)
    # A majority; if nodes are lost as well, it may be all that is left.
    acks = (size // 2 + 1, *((size - lost_most,) if loss.nodes else ()))
    smallest = ack_quorum_smallest(size, min_regions, durability)
    for ack in dict.fromkeys(max(ack, smallest) for ack in acks):
        if min_regions <= ack <= size:
            yield QuorumConfig(
                ensemble_size=size,
                write_quorum=size,
                ack_quorum=ack,
                min_regions=min_regions,
                durability=durability,
            )


def _losses(loss: Loss, counts: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """The loss by domain: every choice of domains, and of nodes in the others."""
    for domains in itertools.combinations(sorted(counts), loss.domains):
        gone = {name: counts[name] for name in domains}
        others = [name for name in sorted(counts) if name not in gone and counts[name]]
        if not loss.nodes or not others:
            yield gone
            continue
        for nodes in itertools.combinations_with_replacement(others, loss.nodes):
            besides = Counter(nodes)
            if all(besides[name] <= counts[name] for name in besides):
                yield {**gone, **besides}


def _holds(loss: Loss, config: QuorumConfig, counts: Mapping[str, int]) -> bool:
    shares = shares_dealt(counts, config.ensemble_size)
    if loss.kind == "region":
        ring = arrange_regions(config, counts)
        if ring is None or adherence_of(config, ring) is not Adherence.STRICT:
            return False
        shares = dict(Counter(ring))
    is_kept = all(_keeps(loss, config, shares, lost) for lost in _losses(loss, shares))
    return is_kept and all(
        _can_place(loss, config, _less(counts, lost)) for lost in _losses(loss, counts)
    )


def _keeps(
    loss: Loss, config: QuorumConfig, shares: Mapping[str, int], lost: Mapping[str, int]
) -> bool:
    """Whether an ack set is left, and the lost nodes are not one."""
    left = _less(shares, lost)
    return _is_ack(loss, config, left) and not _is_ack(loss, config, lost)


def _is_ack(loss: Loss, config: QuorumConfig, shares: Mapping[str, int]) -> bool:
    regions = sum(1 for share in shares.values() if share) if loss.kind == "region" else 1
    return sum(shares.values()) >= config.ack_quorum and regions >= config.min_regions


def _less(counts: Mapping[str, int], lost: Mapping[str, int]) -> dict[str, int]:
    left = {name: count - lost.get(name, 0) for name, count in counts.items()}
    return {name: count for name, count in left.items() if count}


def _can_place(loss: Loss, config: QuorumConfig, counts: Mapping[str, int]) -> bool:
    if sum(counts.values()) < config.ensemble_size:
        return False
    return loss.kind != "region" or arrange_regions(config, counts) is not None


def _terms(loss: Loss, config: QuorumConfig) -> PlacementTerms:
    match loss.kind:
        case "node":
            return PlacementTerms(policy=PolicyKind.RACK_AWARE)
        case "rack":  # One rack must not take two copies.
            return PlacementTerms(policy=PolicyKind.RACK_AWARE, min_racks=config.write_quorum)
        case _:
            return REGION_AWARE_TERMS


def _explained(
    loss: Loss,
    config: QuorumConfig,
    counts: Mapping[str, int],
    nodes: Sequence[Candidate],
    home: str | None,
) -> tuple[str, ...]:
    size, ack, m = config.ensemble_size, config.ack_quorum, config.min_regions
    shares = Counter(share for share in shares_dealt(counts, size).values() if share)
    spread = " and ".join(
        f"{share} in {'each of ' if number > 1 else ''}{number} {loss.kind}"
        + ("s" if number > 1 else "")
        for share, number in sorted(shares.items(), reverse=True)
    )
    lines = [f"{size} copies of every entry: {spread}"]
    if loss.kind == "region":
        lines.append(
            f"an append waits for {ack} of them, in at least {m} regions: about one round trip"
            f" to the farthest of the {m - 1} nearest other regions"
            if m > 2
            else f"an append waits for {ack} of them, in at least {m} regions: about one round"
            " trip to the nearest other region that completes the number"
        )
    else:
        lines.append(
            f"an append waits for {ack} of them: no round trip to another region"
            + ("" if home else _unless_narrow(size, nodes))
        )
    if home:
        lines.append(f"all copies are in region {home}: losing the region loses the stream")
    lines.append(
        f"without any {loss}, {ack} copies are left to write to, the lost copies never held an"
        " entry alone, and a new ensemble still fits the nodes that are up"
    )
    return tuple(lines)


def _unless_narrow(size: int, nodes: Sequence[Candidate]) -> str:
    """The exception, where a writer's own region cannot hold all copies on separate racks."""
    racks = Counter(one.region for one in {one.location for one in nodes})
    narrow = [region for region in sorted(racks) if racks[region] < size]
    if not narrow:
        return ", as long as the writer's own has enough racks up"
    return (
        f", except for writers in {', '.join(narrow)}: fewer than {size} racks are up"
        " there, so other regions take part"
    )


def _refusal(loss: Loss, counts: Mapping[str, int]) -> str:
    census = ", ".join(f"{name}: {counts[name]}" for name in sorted(counts))
    least = 2 * loss.domains + 1
    if loss.kind == "region" and not loss.nodes:
        return (
            f"after the loss of {loss}, at least {least} nodes must be left in at least"
            f" {loss.domains + 1} regions; nodes up: {census}. Start more, or give the quorum"
            " sizes"
        )
    return (
        f"after the loss of {loss}, the remaining nodes must hold a whole new ensemble;"
        f" the smallest has {_smallest(loss, len(counts))} nodes; nodes up: {census}."
        " Start more, or give the quorum sizes"
    )


def _smallest(loss: Loss, domains: int) -> int:
    """The smallest ensemble that would keep the promise, given enough nodes."""
    ample = {str(domain): ENSEMBLE_SIZE_MAX for domain in range(domains)}
    return min(
        size
        for size in _sizes(loss, domains)
        for config in _configs(loss, size, ample, Durability.REGIONS)
        if _holds(loss, config, ample)
    )
