"""The HTTP port of a proxy, put together: server, routes, and the endpoints behind them."""

import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geolog.admin.region_latency import PATH as LATENCY_PATH
from geolog.transport.seam import Listener
from regions.proxy.farewells import BUG
from regions.proxy.http.answers import error_answer, failure_answer, plain_answer
from regions.proxy.http.appends import HttpAppends
from regions.proxy.http.bodies import Bodies
from regions.proxy.http.description import Description
from regions.proxy.http.exchanges import Exchanges
from regions.proxy.http.health import Health
from regions.proxy.http.latency import Latency
from regions.proxy.http.metrics import MetricsPage, ProxyMetrics
from regions.proxy.http.origin_guard import OriginGuard
from regions.proxy.http.owners import Owners
from regions.proxy.http.proxy_view import ProxyView
from regions.proxy.http.reads import HttpReads
from regions.proxy.http.server import HttpServer
from topology.errors import GeologError


class HttpPort:
    """Serves HTTP. `run` takes connections until it is cancelled."""

    def __init__(self, listener: Listener, proxy: ProxyView, nursery: trio.Nursery) -> None:
        page, bodies = MetricsPage(), Bodies(proxy.host.config)
        self._application = _application(proxy, page, bodies)
        self._exchanges = Exchanges(self._application)
        self._server = HttpServer(
            listener,
            self._exchanges,
            nursery,
            connections_max=proxy.host.config.http_connections_max,
            client_share=proxy.host.config.client_share,
        )
        page.show(ProxyMetrics(proxy, self._exchanges, self._server, bodies))

    def __repr__(self) -> str:
        return f"HttpPort({self._server})"

    @property
    def bugs_count(self) -> int:
        """Requests and connections that an error other than geolog's own has ended."""
        return self._exchanges.bugs_count + self._server.failures_count

    @property
    def paths(self) -> list[str]:
        """The paths that it serves."""
        return [route.path for route in self._application.routes if isinstance(route, Route)]

    async def run(self) -> None:
        """Take connections; never returns."""
        await self._server.run()

    async def wait_idle(self) -> None:
        """Wait until no request is under way."""
        await self._exchanges.wait_idle()


def _application(proxy: ProxyView, page: MetricsPage, bodies: Bodies) -> Starlette:
    description, health, owners = Description(), Health(proxy), Owners(proxy)
    stream = "/v1/streams/{namespace}/{name}"
    return Starlette(
        middleware=[
            Middleware(OriginGuard, origins=proxy.host.origins),
            # Lets pages read the answers, and ask before they post JSON.
            Middleware(
                CORSMiddleware,
                allow_origins=sorted(proxy.host.origins.served),
                allow_methods=["GET", "POST"],
                allow_headers=["content-type"],
            ),
        ],
        routes=[
            Route("/", description.page),
            Route("/openapi.json", description.openapi),
            Route("/asyncapi.json", description.asyncapi),
            Route("/livez", health.livez),
            Route("/readyz", health.readyz),
            Route("/metrics", page.metrics),
            Route(LATENCY_PATH, Latency(proxy).latency),
            Route("/v1/owner/{namespace}/{name}", owners.owner),
            Route(f"{stream}/append", HttpAppends(proxy.host, bodies).append, methods=["POST"]),
            Route(f"{stream}/read", HttpReads(proxy.host).read),
        ],
        exception_handlers={
            HTTPException: _refuse_path,
            GeologError: _tell_failure,
            # Starlette raises the error again once it has told the client, so it is noted, too.
            Exception: _tell_bug,
        },
    )


async def _refuse_path(request: Request, error: Exception) -> Response:
    """Answer 404 or 405: the router's only errors."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:200]
    if error.status_code != 405:
        return plain_answer(error.status_code, f"no such path: {path!r}; GET / lists all")
    allowed = (error.headers or {}).get("Allow", "")
    answer = plain_answer(405, f"{path} takes {allowed}, not {request.method}")
    answer.headers["allow"] = allowed
    return answer


async def _tell_failure(request: Request, error: Exception) -> Response:
    assert isinstance(error, GeologError)
    return failure_answer(error, request)


async def _tell_bug(_request: Request, _error: Exception) -> Response:
    return error_answer(BUG)
