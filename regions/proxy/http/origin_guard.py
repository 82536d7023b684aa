"""Refuses requests of web pages that may not use the proxy, before anything else is done."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from regions.proxy.http.answers import plain_answer
from regions.proxy.http.turned_away import PROBED
from regions.proxy.origins import Origins
from topology.errors import NotPermittedError


class OriginGuard:
    """An application in front of another."""

    def __init__(self, app: ASGIApp, *, origins: Origins) -> None:
        self._app = app
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        headers = Headers(scope=scope)
        try:
            self._origins.check(headers.get("origin"))
            if scope["path"] not in PROBED:  # Probers and monitors use any name.
                self._origins.check_host(headers.get("host"))
        except NotPermittedError as error:
            await plain_answer(error.code, str(error))(scope, receive, send)
            return
        await self._app(scope, receive, send)
