"""Where the proxies of a demo are."""

import json
import urllib.request

import attrs
import trio

from tests.system.demo_process import WAIT_S_MAX, DemoProcess

QUORUMS = ("--write-quorum", "3", "--ack-quorum", "2", "--min-regions", "2")
"""Options of a stream that the demo's three nodes can hold."""


@attrs.frozen
class ProxyUrls:
    """One proxy: its name in the demo, and its URLs without a path."""

    name: str
    websocket: str
    http: str

    @classmethod
    def by_region(cls, demo: DemoProcess) -> "dict[str, ProxyUrls]":
        """The only proxy of each region, from the ready file."""
        assert isinstance(demo.ready, dict)
        found = {}
        for region, parts in demo.ready["regions"].items():
            (proxy,) = parts["proxies"]
            found[str(region)] = cls(proxy["name"], proxy["url"], proxy["http"])
        return found

    async def owner_of(self, stream: str) -> str:
        """The process that owns the first partition of a stream, as this proxy says."""

        def ask() -> bytes:
            url = f"{self.http}/v1/owner/{stream}"
            with urllib.request.urlopen(url, timeout=WAIT_S_MAX) as answer:
                return bytes(answer.read())

        found = json.loads(await trio.to_thread.run_sync(ask))
        return str(found["partitions"][0]["owner"])
