"""The HTTP port of a relay: whether it is alive and ready, and metrics for Prometheus.

A relay counts in plain values. They become metrics only when somebody asks. The coordinator
tells of its links; every member that buffers tells of its buffers. docs/RELAY.md describes
each; a test compares.
"""

from collections.abc import Callable, Iterable, Iterator

import trio
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from geolog.protocol.relay_report import LinkState, RelayedStreamReport
from geolog.transport.seam import Listener
from regions.proxy.http.exchanges import Exchanges
from regions.proxy.http.server import HttpServer
from relay.bridge.home_feed import HomeFeeds
from relay.bridge.relay_reports import RelayReports
from relay.protocol.group_member import GroupRole

_CONNECTIONS_MAX = 100
_LINK = ("stream", "partition", "target")
_GAUGES: tuple[tuple[str, str, Callable[[RelayedStreamReport], float | None]], ...] = (
    ("lag_records", "Records at home that the target lacks.", lambda one: one.lag_records),
    ("lag_bytes", "Bytes of them, at most.", lambda one: one.lag_bytes),
    ("lag_seconds", "Age of the first of them, at most.", lambda one: one.lag_s),
    (
        "durable_records",
        "Sequence behind the last record that is durable in the mirror.",
        lambda one: one.durable_records,
    ),
    ("sent_records", "Sequence behind the last record sent.", lambda one: one.sent_records),
    (
        "round_trip_seconds",
        "Time until a heartbeat came back, behind all that was sent before it.",
        lambda one: one.round_trip_s,
    ),
    (
        "is_covered",
        "1 if the coordinator's buffer has all that the target lacks.",
        lambda one: float(one.is_covered),
    ),
    (
        "holds_appends",
        "1 if the owner refuses appends because the target is too far behind.",
        lambda one: float(one.is_held),
    ),
    ("has_alarm", "1 if there is an alarm.", lambda one: float(one.alarm is not None)),
)
_COUNTERS: tuple[tuple[str, str, Callable[[RelayedStreamReport], float | None]], ...] = (
    (
        "replayed_entries",
        "Entries sent on the open bridge because the target had missed them.",
        lambda one: one.replayed_count,
    ),
    ("replayed_bytes", "Bytes of these entries.", lambda one: one.replayed_bytes),
    (
        "stalls",
        "Links that were dialled again, and mirrors asked again, because nothing moved.",
        lambda one: one.stalls_count,
    ),
    (
        "multicast_duplicates",
        "Entries of the owner's multicast that the buffer had.",
        lambda one: one.duplicates_count,
    ),
    (
        "multicast_refused",
        "Entries of the multicast that could not be placed.",
        lambda one: one.refused_count,
    ),
)


class RelayView:
    """The state of a relay, as its HTTP port shows it."""

    def __init__(
        self,
        *,
        relay_id: str,
        region: str,
        role: Callable[[], GroupRole],
        reports: Callable[[], RelayReports | None],
        feeds: Callable[[], HomeFeeds | None],
        damaged_count: Callable[[], int],
    ) -> None:
        """reports: of the coordinator, while it is one. feeds: of a member that buffers.

        damaged_count: bridges of the coordinator that ended for bytes that are no message.
        """
        self.relay_id = relay_id
        self.region = region
        self.role = role
        self.reports = reports
        self.feeds = feeds
        self.damaged_count = damaged_count


class _RelayMetrics(Collector):
    """The relay's metrics, made when they are collected."""

    def __init__(self, view: RelayView) -> None:
        self._view = view

    def describe(self) -> Iterable[Metric]:
        """Describe nothing ahead: names are checked by a test."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Make all metrics."""
        view = self._view
        yield InfoMetricFamily(
            "geolog_relay",
            "The relay's id, region and role.",
            {"relay": view.relay_id, "region": view.region, "role": view.role().value},
        )
        yield from self._buffers(view.feeds())
        reports = view.reports()
        if reports is not None:
            yield from self._links(reports)

    def _buffers(self, feeds: HomeFeeds | None) -> Iterator[Metric]:
        size = GaugeMetricFamily(
            "geolog_relay_buffer_bytes",
            "Bytes of entries in this member's buffer.",
            labels=["stream", "partition"],
        )
        begin = GaugeMetricFamily(
            "geolog_relay_buffer_begin",
            "The first sequence of which this member's buffer has everything.",
            labels=["stream", "partition"],
        )
        for feed in [] if feeds is None else feeds.by_name.values():
            if feed.has_begun:
                labels = [str(feed.name.stream), str(feed.name.number)]
                coverage = feed.buffer.coverage
                first = 0 if coverage.begin is None else coverage.begin.sequence_next
                size.add_metric(labels, coverage.bytes_count)
                begin.add_metric(labels, first)
        yield size
        yield begin
        if feeds is not None:
            yield CounterMetricFamily(
                "geolog_relay_damaged_multicasts",
                "Multicasts of owners that ended because a message was damaged or cut.",
                feeds.damaged_multicasts_count,
            )

    def _links(self, reports: RelayReports) -> Iterator[Metric]:
        report = reports.report()
        yield GaugeMetricFamily(
            "geolog_relay_epoch", "The epoch of this coordinator.", report.relay_epoch
        )
        yield CounterMetricFamily(
            "geolog_relay_damaged_bridges",
            "Bridges that ended because of a message that was damaged, cut or too large.",
            self._view.damaged_count(),
        )
        states = GaugeMetricFamily(
            "geolog_relay_state",
            "1 for the state that a link has, 0 for the others.",
            labels=[*_LINK, "state"],
        )
        for one in report.streams:
            for state in LinkState:
                is_in = float(one.state is state)
                states.add_metric([*_labels_of(one), state.value], is_in)
        yield states
        ahead = GaugeMetricFamily(
            "geolog_relay_read_ahead_bytes",
            "Bytes that were read from logs for a target and are not sent yet.",
            labels=["target"],
        )
        for target, ahead_bytes in sorted(reports.ahead_bytes().items()):
            ahead.add_metric([target], ahead_bytes)
        yield ahead
        for name, help_, value_of in _GAUGES:
            gauge = GaugeMetricFamily(f"geolog_relay_{name}", help_, labels=_LINK)
            _add(gauge, report.streams, value_of)
            yield gauge
        for name, help_, value_of in _COUNTERS:
            counter = CounterMetricFamily(f"geolog_relay_{name}", help_, labels=_LINK)
            _add(counter, report.streams, value_of)
            yield counter


def _add(
    family: GaugeMetricFamily | CounterMetricFamily,
    streams: Iterable[RelayedStreamReport],
    value_of: Callable[[RelayedStreamReport], float | None],
) -> None:
    for one in streams:
        value = value_of(one)
        if value is not None:
            family.add_metric(_labels_of(one), value)


def _labels_of(one: RelayedStreamReport) -> list[str]:
    return [one.stream, str(one.partition), one.target]


class RelayHttpPort:
    """Serves HTTP; `run` takes connections until it is cancelled."""

    def __init__(self, listener: Listener, view: RelayView, nursery: trio.Nursery) -> None:
        self._view = view
        self._registry = CollectorRegistry(auto_describe=False)
        # CPU seconds, memory and open files, under Prometheus' usual names.
        ProcessCollector(registry=self._registry)
        self._registry.register(_RelayMetrics(view))
        application = Starlette(
            routes=[
                Route("/livez", self._livez),
                Route("/readyz", self._readyz),
                Route("/metrics", self._metrics),
            ]
        )
        self._server = HttpServer(
            listener, Exchanges(application), nursery, connections_max=_CONNECTIONS_MAX
        )

    def __repr__(self) -> str:
        return f"RelayHttpPort({self._server})"

    async def run(self) -> None:
        """Take connections; never returns."""
        await self._server.run()

    async def _livez(self, _request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _readyz(self, _request: Request) -> Response:
        role = self._view.role()
        status = 503 if role is GroupRole.OUTSIDE else 200
        return PlainTextResponse(f"{role.value}\n", status_code=status)

    async def _metrics(self, _request: Request) -> Response:
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)
