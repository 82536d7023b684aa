"""Metrics of a proxy for Prometheus: `/metrics`.

The proxy counts in plain integers. They become metrics only when somebody asks, so that an
append pays for none of it. docs/PROXY.md describes each; a test compares.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from geolog.ledger.replicas.hedging import DURATION_BOUNDS_S
from regions.proxy.http.bodies import Bodies
from regions.proxy.http.exchanges import Exchanges
from regions.proxy.http.proxy_view import ProxyView
from regions.proxy.http.server import HttpServer
from regions.proxy.traffic import LATENCY_BOUNDS_S


class ProxyMetrics(Collector):
    """The proxy's own metrics, made when they are collected."""

    def __init__(
        self, proxy: ProxyView, exchanges: Exchanges, server: HttpServer, bodies: Bodies
    ) -> None:
        self._proxy = proxy
        self._exchanges = exchanges
        self._server = server
        self._bodies = bodies

    def describe(self) -> Iterable[Metric]:
        """Describe nothing ahead: names are checked by a test."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Make all metrics."""
        yield self._info()
        yield from self._gauges()
        yield from self._counters()
        yield from self._appends()
        yield from self._reads()

    def _info(self) -> Metric:
        record = self._proxy.record
        value = {"proxy": record.proxy_id, "region": record.region}
        return InfoMetricFamily("geolog_proxy", "The proxy's id and region.", value)

    def _gauges(self) -> Iterator[Metric]:
        proxy, in_flight = self._proxy, self._proxy.host.in_flight
        yield GaugeMetricFamily(
            "geolog_proxy_ready",
            "1 if new clients should come.",
            int(not proxy.why_not_ready()),
        )
        yield GaugeMetricFamily(
            "geolog_proxy_sessions", "WebSocket sessions open.", proxy.endpoint.sessions_count
        )
        yield GaugeMetricFamily(
            "geolog_proxy_sessions_limit",
            "Sessions at the same time, at most.",
            proxy.host.config.connections_max,
        )
        yield GaugeMetricFamily(
            "geolog_proxy_http_connections",
            "HTTP connections open.",
            self._server.connections_count,
        )
        yield GaugeMetricFamily(
            "geolog_proxy_http_bodies_bytes",
            "Bytes of HTTP requests in memory.",
            self._bodies.held_bytes,
        )
        yield GaugeMetricFamily(
            "geolog_proxy_owned_partitions",
            "Partitions that this proxy owns, or is about to own.",
            len(proxy.host.held),
        )
        yield GaugeMetricFamily(
            "geolog_proxy_in_flight_bytes",
            "Bytes of appends that were taken and are not answered.",
            in_flight.bytes,
        )
        yield GaugeMetricFamily(
            "geolog_proxy_in_flight_limit_bytes",
            "Above this, the proxy reads from no session.",
            in_flight.max_bytes,
        )
        yield GaugeMetricFamily(
            "geolog_proxy_answers_bytes",
            "Bytes of answers that are due or that clients have not taken.",
            proxy.host.answers.bytes,
        )
        yield GaugeMetricFamily(
            "geolog_proxy_answers_limit_bytes",
            "Near this, the proxy reads from no session of the clients that hold most.",
            proxy.host.answers.max_bytes,
        )
        yield GaugeMetricFamily(
            "geolog_proxy_unread_bytes",
            "Bytes of messages that have come and that no session has taken.",
            proxy.endpoint.unread.bytes,
        )

        distance = GaugeMetricFamily(
            "geolog_region_rtt_seconds",
            "Median round trip to a storage node of a region, over the last probes.",
            labels=["from", "to"],
        )
        row = proxy.region_row.row()
        for one in row.to:
            if one.rtt_s is not None:
                distance.add_metric([row.region, one.region], one.rtt_s)
        yield distance

    def _counters(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "geolog_proxy_takeovers",
            "Partitions that this proxy has taken.",
            self._proxy.host.held.takeovers_count,
        )
        yield CounterMetricFamily(
            "geolog_proxy_handed_over",
            "Partitions that this proxy has given to others.",
            self._proxy.host.held.statistics().handed_over_count,
        )
        yield CounterMetricFamily(
            "geolog_proxy_early_takeovers",
            "Takeovers of partitions whose owner metadata still showed.",
            self._proxy.early.count,
        )
        yield CounterMetricFamily(
            "geolog_proxy_early_refusals",
            "Frames and lines refused because too much was unanswered.",
            self._proxy.host.in_flight.refusals_count,
        )
        yield CounterMetricFamily(
            "geolog_proxy_redirects",
            "Clients sent to another proxy.",
            self._proxy.host.traffic.redirects_count,
        )
        bugs = CounterMetricFamily(
            "geolog_proxy_bugs",
            "Sessions and HTTP requests that a bug has ended: 0 in a healthy proxy.",
            labels=["protocol"],
        )
        bugs.add_metric(["websocket"], self._proxy.endpoint.bugs_count)
        bugs.add_metric(["http"], self._exchanges.bugs_count + self._server.failures_count)
        yield bugs
        requests = CounterMetricFamily(
            "geolog_proxy_http_requests",
            "HTTP requests answered.",
            labels=["endpoint", "status"],
        )
        for (endpoint, status), count in sorted(self._exchanges.answers_count.items()):
            requests.add_metric([endpoint, str(status)], count)
        yield requests

    def _appends(self) -> Iterator[Metric]:
        appends = CounterMetricFamily(
            "geolog_proxy_appends",
            "Appends answered: frames of a session, or batches of geolog's own clients.",
            labels=["kind", "outcome"],
        )
        latency = HistogramMetricFamily(
            "geolog_proxy_append_latency_seconds",
            "From an append's arrival to its answer, if it is in the log.",
            labels=["kind"],
        )
        traffic = self._proxy.host.traffic
        for kind, counts in (("frame", traffic.frames), ("batch", traffic.batches)):
            for outcome, count in counts.by_outcome.items():
                appends.add_metric([kind, outcome], count)
            latency.add_metric(
                [kind], _buckets(LATENCY_BOUNDS_S, counts.by_latency), counts.latency_s_sum
            )
        yield appends
        yield latency

    def _reads(self) -> Iterator[Metric]:
        """Reads from storage nodes, for clients of this proxy."""
        replicas = self._proxy.host.log.access.replicas
        found = replicas.read_statistics()
        duration = HistogramMetricFamily(
            "geolog_read_duration_seconds",
            "Time that a reader waited for a replica's answer, by the region that served it.",
            labels=["served_from"],
        )
        wins = CounterMetricFamily(
            "geolog_read_speculative_wins",
            "Reads that a speculative request answered first, by the region that served it.",
            labels=["winner_region"],
        )
        for region, reads in sorted(replicas.served_reads().items()):
            buckets = _buckets(DURATION_BOUNDS_S, reads.by_duration)
            duration.add_metric([region], buckets, reads.duration_s_sum)
            wins.add_metric([region], reads.won_count)
        yield duration
        yield wins
        speculative = CounterMetricFamily(
            "geolog_read_speculative",
            "Speculative requests, by reason.",
            labels=["reason"],
        )
        for reason, count in found.extra_count.items():
            speculative.add_metric([reason], count)
        yield speculative
        demotions = CounterMetricFamily(
            "geolog_read_replica_demotions",
            "Replicas asked after all others for a while, by reason.",
            labels=["reason"],
        )
        for reason, count in replicas.statistics().demotions_count.items():
            demotions.add_metric([reason], count)
        yield demotions
        yield CounterMetricFamily(
            "geolog_read_extra_bytes",
            "Expected bytes of the answers to speculative requests.",
            found.extra_bytes_count,
        )


def _buckets(bounds_s: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Each bucket's upper bound, and how many are below it."""
    bounds = [*(f"{bound_s:g}" for bound_s in bounds_s), "+Inf"]
    return list(zip(bounds, accumulate(counts), strict=True))


class MetricsPage:
    """The endpoint: metrics of the proxy, and of its process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        # CPU seconds, memory and open files, under Prometheus' usual names.
        ProcessCollector(registry=self._registry)

    def show(self, metrics: ProxyMetrics) -> None:
        """Show these, too."""
        self._registry.register(metrics)

    async def metrics(self, _request: Request) -> Response:
        """All metrics as text."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)
