"""Refuses requests of web pages that may not use the proxy, before anything else is done."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from regions.proxy.http.answers import plain_answer
from regions.proxy.origins import Origins, is_browser
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
            self._origins.check_host(
                headers.get("host"), is_browser=is_browser(headers.get("user-agent"))
            )
        except NotPermittedError as error:
            await plain_answer(error.code, str(error))(scope, receive, send)
            return
        await self._app(scope, receive, send)
