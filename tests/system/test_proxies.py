"""Write proxies as real processes: redirects, drains and kills, with any WebSocket client."""

import http.client
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from urllib.parse import urlsplit

import attrs
import pytest
import trio

import geolog
from geolog.client.spooling.spool_directory import read_spool
from geolog.transport.gateway import transport_through
from geolog.transport.message_socket import MessageSocket
from geolog.transport.seam import Address
from geolog.transport.websocket import open_websocket
from sim.processes.drills.drilled_cluster import DemoCluster
from sim.processes.drills.verdict import RegionFigures, Verdict
from tests.system.demo_process import (
    WAIT_S_MAX,
    DemoProcess,
    running_demo,
    started,
)
from tests.system.demo_process import geolog as geolog_command

STREAM = "shop/orders"
SPOOLED = "shop/spooled"


def session(address: str, target: str) -> AbstractAsyncContextManager[MessageSocket]:
    """Open a session of text frames at a proxy."""
    return open_websocket(
        transport_through(None),
        Address.parse(address),
        target,
        subprotocols=(),
        message_bytes_max=1 << 20,
    )


async def ask(socket: MessageSocket, **frame: object) -> dict[str, object]:
    """Send a frame, and return the next one that comes."""
    await socket.send(json.dumps(frame))
    return await receive(socket)


async def receive(socket: MessageSocket) -> dict[str, object]:
    found = json.loads(await socket.receive())
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoProcess]:
    """Run three regions with two nodes and one proxy each."""
    directory = tmp_path_factory.mktemp("demo")
    small = ("--regions", "a,b,c", "--nodes-per-region", "2", "--proxies-per-region", "1")
    with running_demo(directory, *small) as running:
        yield running


def proxy_address(demo: DemoProcess, region: str, key: str = "address") -> str:
    """An address of a region's only proxy, from the ready file."""
    assert isinstance(demo.ready, dict)
    (proxy,) = demo.ready["regions"][region]["proxies"]
    return str(proxy[key])


@attrs.frozen
class HttpAnswer:
    """One answer of a proxy's HTTP port."""

    status: int
    body: str


async def http_ask(url: str, method: str, body: str = "") -> HttpAnswer:
    """Send one HTTP request, and again to where it is redirected, as `curl -L` does."""

    def ask_in_thread(url: str) -> HttpAnswer:
        parts = urlsplit(url)
        target = f"{parts.path}?{parts.query}"
        connection = http.client.HTTPConnection(parts.netloc, timeout=20.0)
        try:
            connection.request(method, target, body or None)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status == 307:
            return ask_in_thread(str(answer.getheader("location")))
        return HttpAnswer(answer.status, text)

    return await trio.to_thread.run_sync(ask_in_thread, url)


async def test_clients_of_two_proxies_append_and_follow_the_owner_when_it_drains(
    demo: DemoProcess,
) -> None:
    cluster = await DemoCluster.find(demo.directory)
    first = "a-proxy-1"
    first_address, second_address = (proxy_address(demo, region) for region in ("a", "b"))
    first_http, second_http = (proxy_address(demo, region, "http") for region in ("a", "b"))
    path = f"/v1/streams/{STREAM}/append"
    async with geolog.connect(zookeeper=cluster.zookeeper, cluster=cluster.cluster) as log:
        await log.create_stream(
            STREAM, ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2
        )
        async with session(first_address, path) as owned:
            hello = await receive(owned)
            ack = await ask(owned, id=1, value="first")
            ready = await http_ask(f"{first_http}/readyz", "GET")
            metrics = await http_ask(f"{first_http}/metrics", "GET")
            async with session(second_address, path) as sent_away:
                moved = await receive(sent_away)
            async with log.open_writer(STREAM, writer_id="till-7") as writer:
                before = await writer.append(b"second")
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(cluster.stop, first)
                    goaway = await receive(owned)
                    after = [await writer.append(b"%d" % number) for number in range(20)]
        async with session(second_address, f"{path}?redirect=forward") as forwarded:
            await receive(forwarded)
            last = await ask(forwarded, id=2, value="last")
        posted = await http_ask(f"{second_http}{path}", "POST", '{"value":"over HTTP"}')
        got = await http_ask(f"{second_http}/v1/streams/{STREAM}/read?from=last:1", "GET")
        owner = await http_ask(f"{second_http}/v1/owner/{STREAM}", "GET")
        async with log.open_reader(STREAM) as reader:
            read = [record.value async for record in reader]

    await cluster.start(first)
    assert (hello["type"], hello["owner"]) == ("hello", f"proxy {first} in a")
    assert (ack["type"], ack["sequence"]) == ("ack", 0)
    assert (ready.status, json.loads(ready.body)["ready"]) == (200, True)
    assert "geolog_proxy_owned_partitions 1.0" in metrics.body
    assert "process_resident_memory_bytes" in metrics.body
    assert (moved["code"], moved["location"]) == (302, f"ws://{first_address}{path}")
    assert goaway == {"type": "goaway"}
    assert [one.sequence for one in [before, *after]] == list(range(1, 22))
    assert (last["type"], last["sequence"]) == ("ack", 22)
    assert read == [
        b"first",
        b"second",
        *(b"%d" % number for number in range(20)),
        b"last",
        b"over HTTP",
    ]
    assert (posted.status, json.loads(posted.body)["sequence"]) == (200, 23)
    assert [json.loads(line).get("value") for line in got.body.splitlines()] == [
        "over HTTP",
        None,
    ]
    assert json.loads(owner.body)["partitions"][0]["alive"] is True


def test_the_commands_on_the_first_screen_append(demo: DemoProcess) -> None:
    demo.json("stream", "create", "shop/orders", "--if-not-exists")
    screen = (demo.directory / "demo.log").read_text().splitlines()
    calls = [line.partition("  #")[0] for line in screen if "/shop/orders/append" in line]

    done = [
        subprocess.run(
            ["bash", "-c", call], capture_output=True, timeout=WAIT_S_MAX, check=True
        ).stdout.splitlines()
        for call in calls
        if "curl" not in call or shutil.which("curl")
    ]

    assert len(calls) == 2
    assert {json.loads(answers[-1])["type"] for answers in done} == {"ack"}


def producer_arguments(demo: DemoProcess, spool: Path) -> list[str]:
    """Append through one proxy, with a spool."""
    proxy = proxy_address(demo, "a")
    return ["--proxy", proxy, "append", SPOOLED, "--writer", "till-9", "--spool", str(spool)]


def spooled_producer(
    demo: DemoProcess, spool: Path
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Start `geolog append --spool`, fed through a pipe."""
    return started(*producer_arguments(demo, spool), stdin=subprocess.PIPE)


def killed_once_spooled(
    producer: subprocess.Popen[bytes], spool: Path, given: bytes, *, up_to: int
) -> None:
    """Give lines to the producer, and kill it once its spool has this seq."""
    assert producer.stdin is not None
    producer.stdin.write(given)
    producer.stdin.flush()
    deadline = time.monotonic() + WAIT_S_MAX
    while True:
        frames = read_spool(spool).frames if (spool / "spool.json").exists() else ()
        if frames and frames[-1].seq_last == up_to:
            break
        assert time.monotonic() < deadline, f"the spool has {frames}"
        time.sleep(0.02)
    producer.kill()
    producer.wait(WAIT_S_MAX)


def test_a_producer_that_is_killed_while_no_proxy_answers_appends_each_record_once(
    demo: DemoProcess, tmp_path: Path
) -> None:
    spool = tmp_path / "spool"
    lines = [b"%d\n" % number for number in range(3000)]
    demo.json("stream", "create", SPOOLED)
    demo.json("demo", "kill", "a/proxy-1")
    with spooled_producer(demo, spool) as producer:
        killed_once_spooled(producer, spool, b"".join(lines[:1000]), up_to=999)
    shown = demo.json("spool", "show", str(spool))
    exported = demo.run("spool", "export", str(spool)).stdout.splitlines()
    demo.json("demo", "restart", "a/proxy-1")
    with spooled_producer(demo, spool) as producer:  # Killed while proxies answer.
        killed_once_spooled(producer, spool, b"".join(lines[:2000]), up_to=1999)
    last = geolog_command(*producer_arguments(demo, spool), "-o", "json", given=b"".join(lines))
    read = demo.run("read", SPOOLED).stdout
    discarded = demo.run("--yes", "spool", "discard", str(spool))

    assert isinstance(shown, dict)
    assert (shown["unanswered_records"], shown["last_seq"]) == (1000, 999)
    assert [json.loads(one)["value"] for one in exported] == [str(n) for n in range(1000)]
    assert last.returncode == 0, last.stderr.decode()
    assert json.loads(last.stdout)["unanswered"] == 0
    assert read == b"".join(lines)
    assert discarded.returncode == 0, discarded.stderr.decode()
    assert not spool.exists()


def drill(demo: DemoProcess, *arguments: str) -> Verdict:
    """Run a drill on the demo; return its verdict."""
    place = ("--on-demo", "--data-dir", str(demo.directory))
    verdict = demo.json("drill", "run", *arguments, *place)
    assert isinstance(verdict, dict)
    regions = [RegionFigures(**region) for region in verdict.pop("regions")]
    return Verdict(**verdict, regions=regions)


def test_killing_the_owner_loses_nothing_and_repeats_nothing_for_named_writers(
    demo: DemoProcess,
) -> None:
    verdict = drill(demo, "proxy-kill", "--times", "1")

    counts, (outage,) = verdict.counts, verdict.rounds
    assert counts["faults"] == 1
    assert counts["acknowledged"] > 100
    assert counts["lost"] == counts["repeated"] == counts["swapped"] == counts["unknown"] == 0
    assert verdict.figures["rpo_s"] == 0
    assert outage["metadata_writes"] > 0
    assert outage["outage_s_max"] >= outage["detection_s"] > 0


def test_losing_a_region_loses_nothing_and_repeats_nothing_for_writers_of_all_regions(
    demo: DemoProcess, tmp_path: Path
) -> None:
    report = tmp_path / "report"

    verdict = drill(demo, "region-loss", "--times", "1", "--report", str(report))

    counts, (outage,) = verdict.counts, verdict.rounds
    assert counts["losses"] == 1
    assert counts["acknowledged"] > 100
    assert counts["lost"] == counts["repeated"] == counts["swapped"] == counts["unknown"] == 0
    assert outage["outage_s_max"] >= outage["detection_s"] > 0
    assert [one.region for one in verdict.regions] == ["a", "b", "c"]
    assert "killed " in (report / "timeline.svg").read_text()
    assert json.loads((report / "verdict.json").read_text()) == attrs.asdict(verdict)


def test_the_ready_file_names_the_proxies_of_each_region(demo: DemoProcess) -> None:
    assert isinstance(demo.ready, dict)
    for name, region in demo.ready["regions"].items():
        (proxy,) = region["proxies"]
        assert proxy["url"] == f"ws://{proxy['address']}"
        assert proxy["name"] == f"{name}-proxy-1"
        assert {"http", "pid", "argv", "log"} <= proxy.keys()
