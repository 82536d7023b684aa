"""Round trips from this proxy to every region: `GET /v1/latency`."""

import attrs
from starlette.requests import Request
from starlette.responses import Response

from regions.proxy.http.answers import json_answer
from regions.proxy.http.proxy_view import ProxyView


class Latency:
    """The endpoint."""

    def __init__(self, proxy: ProxyView) -> None:
        self._proxy = proxy

    async def latency(self, _request: Request) -> Response:
        """Tell the distance of each region, as measured from here."""
        return json_answer(attrs.asdict(self._proxy.region_row.row()))
