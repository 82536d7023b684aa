"""docs/PROXY.md names every metric of a proxy, and no other; and its curl lines work."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import attrs
from trio.testing import MockClock

from tests.pure.proxy.http_client import HttpClient, open_http
from tests.pure.proxy.proxies import open_proxy
from tests.pure.whole.clusters import open_world

PAGE = Path(__file__).parents[2] / "docs" / "PROXY.md"


@attrs.frozen
class CurlLine:
    """A call of curl on the page, and the output that it shows, `…` for any text."""

    call: str
    arguments: Sequence[str]
    shown: Sequence[str]

    async def run(self, client: HttpClient) -> list[str]:
        """Send what curl would send; the lines of the answer."""
        *options, target = self.arguments
        url = urlsplit(target)
        body = options[1].encode() if options else b""
        assert not options or options[0] in ("-d", "--data-binary"), f"{self.call}: unknown"
        target = f"{url.path}?{url.query}" if url.query else url.path
        answer = await client.ask("POST" if body else "GET", target, body)
        assert answer.status == 200, f"{self.call}: {answer}"
        return answer.body.decode().splitlines()

    def agrees_with(self, printed: Sequence[str]) -> bool:
        """Whether this is the output that the page shows, if it shows any."""
        patterns = [".*".join(map(re.escape, line.split("…"))) for line in self.shown]
        return not patterns or re.fullmatch("\n".join(patterns), "\n".join(printed)) is not None


def arguments_of(call: str) -> list[str]:
    """The arguments of the call, as bash reads them."""
    script = f"curl() {{ printf '%s\\0' \"$@\"; }}; {call}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True, text=True)
    return done.stdout.split("\0")[:-1]


def curl_lines() -> list[CurlLine]:
    found = []
    blocks = re.compile(r"^```[a-z]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    for block in blocks.findall(PAGE.read_text(encoding="utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            call, *shown = part.splitlines()
            if call.startswith("curl "):
                found.append(CurlLine(call, arguments_of(call), shown))
    return found


async def test_the_curl_lines_of_the_page_do_what_it_says(autojump_clock: MockClock) -> None:
    first, *others = curl_lines()
    printed = []
    for lines in ([first], others):  # The first has no part in the story of the others.
        async with (
            open_world() as world,
            open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
            open_http(world.cluster, proxy) as client,
        ):
            printed += [(line, await line.run(client)) for line in lines]

    assert len(others) == 2
    assert [(line, told) for line, told in printed if not line.agrees_with(told)] == []


async def test_the_page_describes_all_metrics(autojump_clock: MockClock) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        page = (await client.ask("GET", "/metrics")).body.decode()
    told = set(re.findall(r"^# TYPE (\S+) ", page, re.MULTILINE))

    described = set(re.findall(r"`(geolog_[a-z_]+)`", PAGE.read_text(encoding="utf-8")))
    assert {one for one in told if one.startswith("geolog_")} == described
