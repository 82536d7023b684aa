"""The report of a demo: counts, which decide, and latencies of acknowledged appends."""

import attrs
from hdrh.histogram import HdrHistogram


@attrs.frozen(kw_only=True)
class Latencies:
    """Latencies of acknowledged appends in one part of the story, from call to answer."""

    when: str
    count: int
    floor_ms: float | None
    """The emulated round trip to the nearest other live region, which every append awaits.
    None without an emulated WAN."""
    p50_ms: float
    p99_ms: float
    max_ms: float
    pause_ms: float
    """Longest time between two answers. After a kill: the outage."""
    lost_count: int
    """Records of this part that were not read back equal, at their places."""


@attrs.frozen(kw_only=True)
class RelayedReport:
    """The outcome of the relayed stream."""

    home: str
    targets: tuple[str, ...]
    killed: str
    """The coordinator that was killed."""
    coordinator: str
    """The member that went on."""
    acknowledged_count: int
    lost_count: int
    """Acknowledged records that a mirror lacks, over all mirrors."""
    repeated_count: int
    replayed_count: int
    """Entries that the successor sent because mirrors had missed them."""
    lag_s_max: float
    """Highest age of a record that a mirror lacked, as the coordinators told it."""
    lag_s: float
    """The lag at the end."""
    still_s: float
    """Time from the kill until each mirror had a record that was appended after it."""
    problems: tuple[str, ...]


@attrs.frozen
class AirlineRow:
    """A row of the query's answer."""

    airline: str
    flights_count: int
    delay_min_mean: float
    """Of the departures that are known."""


@attrs.frozen(kw_only=True)
class QueryReport:
    """The outcome of the query with Spark."""

    region: str
    """Where Spark's tasks ran."""
    rows_count: int
    served_bytes: dict[str, int]
    """Bytes of values by the region that served them, the most first."""
    took_s: float
    airlines: tuple[AirlineRow, ...]
    """Those with the most flights."""
    problems: tuple[str, ...]

    @property
    def own_share(self) -> float:
        """Share of the bytes that came from the region of the tasks."""
        return self.served_bytes.get(self.region, 0) / max(1, sum(self.served_bytes.values()))


@attrs.frozen(kw_only=True)
class StoryReport:
    """The outcome of one demo."""

    region_lost: str
    source_count: int
    acknowledged_count: int
    found_count: int
    """Records that the first writer got no answer for and the second found in the log."""
    read_count: int
    equal_count: int
    lost_count: int
    """Records that were acknowledged or found in the log, but not read back equal."""
    read_bytes: int
    sha256: str
    """Over each record's length, as four bytes, followed by the record."""
    segments_count: int
    writers_count: int
    latencies: tuple[Latencies, ...]
    relayed: RelayedReport | None
    """Of the `regional` stream; None without relays."""
    queried: QueryReport | None
    """Of the query; None without PySpark."""
    problems: tuple[str, ...]
    took_s: float

    @property
    def is_good(self) -> bool:
        """Whether every count is right."""
        return not self.problems

    def counts(self) -> list[tuple[int, str]]:
        """The counts with their labels."""
        rows = [
            (self.source_count, "flights given to the writers"),
            (self.acknowledged_count, "acknowledged: on disk in at least two regions"),
            (self.found_count, "unanswered at the takeover, but found in the log"),
            (self.read_count, f"read back in another region, {self.read_bytes >> 20} MiB"),
            (self.equal_count, "of these equal byte for byte, in order, each once"),
        ]
        return [row for row in rows if row[0]] + [(self.lost_count, "lost")]


class Stopwatch:
    """Times the answered appends of one part of the story."""

    def __init__(
        self,
        when: str,
        floor_s: float | None,
        *,
        first_sequence: int,
        answered_s: float | None = None,
    ) -> None:
        """Begin a part. answered_s: the latest answer, if a pause since then counts."""
        self.when = when
        self.first_sequence = first_sequence
        self._floor_s = floor_s
        self.count = 0
        self._histogram = HdrHistogram(1, 120_000_000, 3)
        self._answered_s = answered_s
        self.pause_s = 0.0

    def answered(self, started_s: float, now_s: float, count: int = 1) -> None:
        """Record that `count` appends called at `started_s` are answered now."""
        self.count += count
        self._histogram.record_value(max(1, round((now_s - started_s) * 1e6)), count)
        if self._answered_s is not None:
            self.pause_s = max(self.pause_s, now_s - self._answered_s)
        self._answered_s = now_s

    def latencies(self, *, lost_count: int) -> Latencies:
        """The measurements so far."""
        histogram = self._histogram
        return Latencies(
            when=self.when,
            count=self.count,
            floor_ms=None if self._floor_s is None else self._floor_s * 1e3,
            p50_ms=histogram.get_value_at_percentile(50) / 1e3,
            p99_ms=histogram.get_value_at_percentile(99) / 1e3,
            max_ms=histogram.get_max_value() / 1e3 if self.count else 0.0,
            pause_ms=self.pause_s * 1e3,
            lost_count=lost_count,
        )
