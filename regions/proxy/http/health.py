"""Whether the proxy lives, and whether it wants clients: `/livez` and `/readyz`."""

from starlette.requests import Request
from starlette.responses import Response

from regions.proxy.http.answers import json_answer
from regions.proxy.http.proxy_view import ProxyView


class Health:
    """Both endpoints."""

    def __init__(self, proxy: ProxyView) -> None:
        self._proxy = proxy

    async def livez(self, _request: Request) -> Response:
        """Say that the process runs. A supervisor restarts it without this answer."""
        return json_answer({"live": True, **self._identity()})

    async def readyz(self, _request: Request) -> Response:
        """Say whether new clients should come here. A load balancer asks for this."""
        reasons = self._proxy.why_not_ready()
        document = {"ready": not reasons, **self._identity(), "reasons": reasons}
        return json_answer(document, status=503 if reasons else 200)

    def _identity(self) -> dict[str, object]:
        record = self._proxy.record
        return {"proxy": record.proxy_id, "region": record.region}
