"""The HTTP port of a proxy, put together: server, routes, and the endpoints behind them."""

from collections.abc import Awaitable, Callable

import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geolog.transport.seam import Listener
from regions.proxy.http.answers import bug_answer, plain_answer
from regions.proxy.http.exchanges import Exchanges
from regions.proxy.http.health import Health
from regions.proxy.http.metrics import MetricsPage, ProxyMetrics
from regions.proxy.http.proxy_view import ProxyView
from regions.proxy.http.server import HttpServer


class HttpPort:
    """Serves HTTP. `run` takes connections until it is cancelled."""

    def __init__(self, listener: Listener, proxy: ProxyView, nursery: trio.Nursery) -> None:
        page = MetricsPage()
        self._exchanges = Exchanges(_application(Health(proxy), page))
        self._server = HttpServer(
            listener,
            self._exchanges,
            nursery,
            connections_max=proxy.host.config.http_connections_max,
        )
        page.show(ProxyMetrics(proxy, self._exchanges, self._server))

    def __repr__(self) -> str:
        return f"HttpPort({self._server})"

    @property
    def bugs_count(self) -> int:
        """Requests and connections that an error other than geolog's own has ended."""
        return self._exchanges.bugs_count + self._server.failures_count

    async def run(self) -> None:
        """Take connections; never returns."""
        await self._server.run()

    async def wait_idle(self) -> None:
        """Wait until no request is under way."""
        await self._exchanges.wait_idle()


Endpoint = Callable[[Request], Awaitable[Response]]


def _application(health: Health, page: MetricsPage) -> Starlette:
    endpoints: dict[str, Endpoint] = {
        "/livez": health.livez,
        "/readyz": health.readyz,
        "/metrics": page.metrics,
    }
    return Starlette(
        routes=[Route(path, endpoint, methods=["GET"]) for path, endpoint in endpoints.items()],
        # Starlette raises the error again once it has told the client, so it is noted, too.
        exception_handlers={HTTPException: _refuse_path, Exception: _tell_bug},
    )


async def _refuse_path(request: Request, error: Exception) -> Response:
    """Answer 404 or 405: the router's only errors."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:200]
    if error.status_code != 405:
        return plain_answer(error.status_code, f"no such path: {path!r}")
    allowed = (error.headers or {}).get("Allow", "")
    answer = plain_answer(405, f"{path} takes {allowed}, not {request.method}")
    answer.headers["allow"] = allowed
    return answer


async def _tell_bug(_request: Request, _error: Exception) -> Response:
    return bug_answer()
