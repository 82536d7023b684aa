"""The verdict of a drill: counts that must be zero, and figures for information."""

import math
from collections import Counter
from collections.abc import Sequence

import attrs

from geolog.client.log import Log
from geolog.protocol.ids import DLSN
from sim.processes.drills.writer_process import Acknowledged


@attrs.frozen(kw_only=True)
class RegionFigures:
    """The faults as the writers of one region noticed them."""

    region: str
    unavailable_s: float
    """Time without any answer, in pauses of a second or more."""
    longest_s: float
    """The longest of these pauses."""
    p50_during_ms: float | None
    """Latency of the records that were due while a fault lasted; None if none was answered."""
    p99_during_ms: float | None


def _finite(figures: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if math.isfinite(value)}


@attrs.frozen(kw_only=True)
class Verdict:
    """The outcome of one drill."""

    drill: str
    passed: bool
    problems: list[str]
    counts: dict[str, int]
    figures: dict[str, float] = attrs.field(converter=_finite)
    """Without infinite ones, e.g. the latency of what nobody answered: JSON has none."""
    rounds: list[dict[str, float]]
    seed: int
    regions: list[RegionFigures] = attrs.field(factory=list)
    """For a drill with writers in several regions."""


@attrs.frozen(kw_only=True)
class Audit:
    """Acknowledged records compared with the content of the stream."""

    acknowledged: int
    read: int
    lost: int
    """Acknowledged records that are not at their positions."""
    unequal: int
    """Records at the position of an acknowledged one, but with different bytes."""
    repeated: int
    """Surplus copies of values that were appended once."""
    foreign: int
    """Records that nobody appended."""
    out_of_turn: int
    """Records whose sequence does not follow the previous one."""

    @property
    def problems(self) -> list[str]:
        """One line for each count that is not zero but should be."""
        wrong = {
            "acknowledged records are lost": self.lost,
            "acknowledged records have different bytes": self.unequal,
            "records are in the stream more than once": self.repeated,
            "records were never appended": self.foreign,
            "records are out of order": self.out_of_turn,
        }
        return [f"{count} {text}" for text, count in wrong.items() if count]


async def audit_stream(
    log: Log, stream: str, acknowledged: Sequence[Acknowledged], appended: set[bytes]
) -> Audit:
    """Read the whole stream and compare it with the acknowledged and appended records."""
    expected = {record.dlsn: record for record in acknowledged}
    assert len(expected) == len(acknowledged), "two records were answered with one position"
    found: Counter[bytes] = Counter()
    at_place: set[DLSN] = set()
    unequal = out_of_turn = sequence = 0
    async with log.open_reader(stream) as reader:
        async for record in reader:
            found[record.value] += 1
            out_of_turn += record.sequence != sequence
            sequence = record.sequence + 1
            promised = expected.get(record.dlsn)
            if promised is None:
                continue
            at_place.add(record.dlsn)
            unequal += (promised.value, promised.sequence) != (record.value, record.sequence)
    return Audit(
        acknowledged=len(acknowledged),
        read=found.total(),
        lost=len(expected.keys() - at_place),
        unequal=unequal,
        repeated=sum(count - 1 for count in found.values()),
        foreign=len(found.keys() - appended),
        out_of_turn=out_of_turn,
    )
