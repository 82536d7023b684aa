"""docs/PROXY.md names every metric of a proxy, and no other."""

import re
from pathlib import Path

from trio.testing import MockClock

from tests.pure.proxy.http_client import open_http
from tests.pure.proxy.proxies import open_proxy
from tests.pure.whole.clusters import open_world

PAGE = Path(__file__).parents[2] / "docs" / "PROXY.md"


async def test_the_page_describes_all_metrics(autojump_clock: MockClock) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        page = (await client.ask("GET", "/metrics")).body.decode()
    told = set(re.findall(r"^# TYPE (\S+) ", page, re.MULTILINE))

    described = set(re.findall(r"`(geolog_proxy_[a-z_]+)`", PAGE.read_text(encoding="utf-8")))
    assert {one for one in told if one.startswith("geolog_")} == described
