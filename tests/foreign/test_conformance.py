"""The conformance vectors hold for our proxies; the runner notices a server that is wrong."""

import shlex
import subprocess
import sys

import pytest
import trio

from sim.processes.drills.drilled_cluster import DemoCluster
from tests.conformance.__main__ import STREAM
from tests.conformance.notation import Memory, NotationError
from tests.conformance.vector_files import vectors_in
from tests.foreign.lying_relay import open_lying_relay
from tests.foreign.proxy_urls import QUORUMS, ProxyUrls
from tests.static.checkout import ROOT
from tests.system.addresses import free_addresses
from tests.system.demo_process import GEOLOG, DemoProcess


@pytest.fixture(scope="session")
def stream(demo: DemoProcess) -> str:
    """The stream of the vectors."""
    demo.json("stream", "create", STREAM, *QUORUMS)
    return STREAM


async def run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run the runner, as a person does."""
    return await trio.run_process(
        [sys.executable, "-m", "tests.conformance", *arguments],
        cwd=ROOT,
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )


async def test_a_proxy_conforms(
    demo: DemoProcess, proxies: dict[str, ProxyUrls], stream: str
) -> None:
    cluster = await DemoCluster.find(demo.directory)
    stop = [*GEOLOG, "demo", "stop", proxies["a"].name]
    drained = f"GEOLOG_CONFIG={shlex.quote(str(demo.config))} {shlex.join(stop)}"
    try:
        done = await run(
            *(proxies["a"].websocket, proxies["a"].http),
            *("--other", proxies["b"].websocket, "--drain", drained),
        )
    finally:
        await cluster.start(proxies["a"].name)

    table = done.stdout.decode()
    cases = sum(len(one.cases) for one in vectors_in())
    assert (done.returncode, done.stderr) == (0, b""), table
    assert table.endswith(f"\n\n{cases} of {cases} passed\n")


async def test_a_proxy_that_forwards_to_the_owner_conforms_as_well(
    proxies: dict[str, ProxyUrls], stream: str
) -> None:
    done = await run(proxies["b"].websocket, "--only", "append")

    assert done.returncode == 0, done.stdout.decode()
    assert "not played: HTTP (no http:// URL)\n" in done.stdout.decode()


async def test_vectors_that_need_more_than_a_proxy_are_left_out_and_told(
    proxies: dict[str, ProxyUrls], stream: str
) -> None:
    done = await run(proxies["b"].websocket, "--only", "e")

    assert done.returncode == 0, done.stdout.decode()
    assert "not played: what needs another proxy\n" in done.stdout.decode()


@pytest.mark.parametrize(
    ("is_http", "only", "truth", "lie", "told"),
    [
        (False, "named_writer", b'"duplicate":true', b'"duplicate":null', "duplicate is None"),
        (False, "named_writer", b"\xa9duplicate\xc3", b"\xa9duplicate\xc2", "is False"),
        (False, "append_order", b'"sequence":', b'"sequense":', "sequence is missing"),
        (False, "expected_seq", b'"code":409', b'"code":408', "code is 408, not 409"),
        (False, "read_range", b'"type":"end"', b'"type":"eof"', "type is 'eof', not 'end'"),
        (False, "unknown_path", b"\x11\x30", b"\x11\x31", "closed with 4401, not with 4400"),
        (False, "subprotocols", b"HTTP/1.1 400", b"HTTP/1.1 403", "not refused with 400: 403"),
        (False, "append_hello", b"geolog.v1.json", b"geolog.v2.json", "not speak WebSocket"),
        (False, "append_hello", b'{"type"', b'["type"', "cannot be decoded"),
        (False, "append_hello", b"HTTP/1.1", b"HTTP/X.1", "not speak WebSocket"),
        (True, "http_append", b"HTTP/1.1", b"GOPH/1.1", "does not speak HTTP"),
        (True, "http_append", b"HTTP/1.1 200", b"HTTP/1.1 201", "status 201, not 200"),
        (True, "http_append", b'"type":"end"', b'"type":"gap"', "type is 'gap', not 'end'"),
        (True, "http_unread", b'"outcome":"refused"', b'"outcome":"unknown"', "not 'refused'"),
        (True, "http_too_m", b"HTTP/1.1 429", b"HTTP/1.1 503", "status 503, not 429"),
    ],
)
async def test_a_server_that_is_wrong_fails(
    proxies: dict[str, ProxyUrls],
    stream: str,
    *,
    is_http: bool,
    only: str,
    truth: bytes,
    lie: bytes,
    told: str,
) -> None:
    url = proxies["a"].http if is_http else proxies["a"].websocket
    async with open_lying_relay(url, truth, lie) as wrong:
        done = await run(wrong, "--only", only)

    table = done.stdout.decode()
    assert (done.returncode, done.stderr) == (1, b"")
    assert "FAILED" in table
    assert told in table


async def test_no_proxy_at_all_is_a_failure_in_each_row() -> None:
    (nowhere,) = free_addresses(1)

    done = await run(f"ws://{nowhere}", f"http://{nowhere}", "--only", "hello")

    assert (done.returncode, done.stderr) == (1, b"")
    assert "step 1: " in done.stdout.decode()
    assert "0 of 2 passed" in done.stdout.decode()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["localhost:7070"], "neither ws://HOST:PORT nor http://HOST:PORT"),
        (["ws://localhost:7070/v1/session"], "has a path"),
        (["ws://a:1", "ws://b:1"], "is the second ws URL"),
    ],
)
async def test_a_wrong_call_is_told(arguments: list[str], words: str) -> None:
    done = await run(*arguments)

    assert done.returncode == 2
    assert words in done.stderr.decode()


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"a": 1}, {"a": True}),
        ({"a": False}, {"a": 0}),
        ({"a": {"$is": "integer"}}, {"a": "1"}),
        ({"a": {"$is": "integer or text"}}, {"a": None}),
        ({"a": {"$is": "absent"}}, {"a": None}),
        ({"a": {"$saved": "x", "$plus": 1}}, {"a": 7}),
        ({"a": {"$content": "x"}}, {"a": b"x"}),
        ({"a": {"$hex": "ff"}}, {"a": b"\xfe"}),
        ({"a": "{x}"}, {"a": "8"}),
        ({"a": [1]}, {"a": [1, 2]}),
        ({"a": {}}, {"a": None}),
        ({"a": 1}, []),
    ],
)
def test_what_is_not_as_expected_is_told(wanted: object, found: object) -> None:
    assert list(Memory({"x": 7}).differences(wanted, found, is_binary=False)) != []


def test_what_is_as_expected_is_remembered() -> None:
    memory = Memory({})
    wanted = {"a": {"$is": "integer", "$save": "x"}, "b": {"$saved": "x", "$plus": 1}}

    assert list(memory.differences(wanted, {"a": 7, "b": 8, "c": 9}, is_binary=True)) == []
    assert memory.text("from={x}") == "from=7"


def test_a_vector_that_recalls_what_no_step_remembered_is_wrong() -> None:
    with pytest.raises(NotationError, match="no step before has remembered 'x'"):
        Memory({}).filled({"$saved": "x"})
