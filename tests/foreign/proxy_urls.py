"""Where the proxies of a demo are."""

import attrs

from tests.system.demo_process import DemoProcess

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
