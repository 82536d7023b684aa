"""`geolog relay` against real relays: what is shown while a target's relays are away."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator

import pytest

from geolog import OverCapacityError, aio, blocking
from geolog.protocol.relay_report import RelayedStreamReport
from tests.system.demo_process import DemoProcess, running_demo, wait_until

STREAM = "shop/crates"


@pytest.fixture(scope="module")
def related(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoProcess]:
    """Two regions with a relay each, and a stream that is relayed."""
    with running_demo(
        tmp_path_factory.mktemp("relays"),
        "--regions",
        "us-east,eu-west",
        *("--relays-per-region", "1"),
        *("--proxies-per-region", "1"),
    ) as demo:
        made = demo.run(
            *("stream", "create", STREAM, "--mode", "regional"),
            *("--home", "us-east", "--relay-to", "eu-west"),
        )
        assert made.returncode == 0, made.stderr.decode()
        yield demo


def status_of(demo: DemoProcess) -> dict[str, object]:
    found = demo.json("relay", "status", STREAM)
    assert isinstance(found, list)
    [one] = found
    assert isinstance(one, dict)
    return one


def lag_of(demo: DemoProcess) -> object:
    return status_of(demo)["lag_records"]


def test_a_link_becomes_live_and_is_shown_to_people_too(related: DemoProcess) -> None:
    appended = related.run("append", STREAM, "--region", "us-east", given=b"one\ntwo\n")
    assert appended.returncode == 0, appended.stderr.decode()
    wait_until(lambda: status_of(related)["state"] == "live")
    wait_until(lambda: status_of(related)["durable_records"] == 2)

    found = status_of(related)
    assert (found["lag_records"], found["tail_records"], found["is_covered"]) == (0, 2, True)
    table = related.run("relay", "status").stdout.decode()
    assert "shop/crates#0" in table
    assert "live" in table
    events = related.run("relay", "events", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line)["after"] for line in events][-1] == "live"


@pytest.mark.long
def test_a_stream_or_a_region_is_paused_and_resumed_and_others_are_refused(
    related: DemoProcess,
) -> None:
    by_region = related.json("relay", "pause", "eu-west")
    by_stream = related.json("relay", "resume", STREAM, "--target", "eu-west")
    wrong = related.run("relay", "pause", STREAM, "--target", "mars")
    mixed = related.run("relay", "pause", "eu-west", "--target", "eu-west")

    assert by_region == [{"stream": STREAM, "paused": ["eu-west"]}]
    assert by_stream == [{"stream": STREAM, "paused": []}]
    assert (wrong.returncode, mixed.returncode) == (2, 2)
    assert b"shop/crates is not relayed to mars; its targets are eu-west" in wrong.stderr
    assert b"--target is for one stream, and eu-west is a region" in mixed.stderr


def test_events_are_iterated_in_a_thread_and_in_an_event_loop(related: DemoProcess) -> None:
    wait_until(lambda: status_of(related)["state"] == "live")
    assert isinstance(related.ready, dict)
    zookeeper = str(related.ready["zookeeper"])
    with (
        blocking.connect(zookeeper=zookeeper, cluster="demo", region="us-east") as log,
        log.relay_events() as events,
    ):
        remembered = [event.after for event in events]

    async def follow() -> list[str]:
        async with (
            aio.connect(zookeeper=zookeeper, cluster="demo", region="us-east") as log,
            log.relay_events(follow=True) as events,
        ):
            found = []
            async for event in events:
                found.append(event.after)
                if len(found) == len(remembered):
                    break
            return found

    assert "live" in remembered
    assert asyncio.run(follow()) == remembered


@pytest.mark.long
def test_a_paused_target_holds_appends_at_the_bound_and_frees_them_by_itself(
    related: DemoProcess,
) -> None:
    stream, bound_bytes = "shop/vans", 1 << 20
    related.json(
        *("stream", "create", stream, "--mode", "regional", "--home", "us-east"),
        *("--relay-to", "eu-west", "--rpo-max", "1MiB"),
    )
    record, lags, refusals = os.urandom(50_000), [], []

    assert isinstance(related.ready, dict)
    zookeeper = str(related.ready["zookeeper"])
    with (
        blocking.connect(
            zookeeper=zookeeper, cluster="demo", region="us-east", via="proxy"
        ) as log,
        log.open_writer(stream, writer_id="driver") as writer,
    ):

        def told() -> RelayedStreamReport:
            [found] = log.relay_status(stream)
            lags.append(found.lag_bytes or 0)
            return found

        def is_taken() -> bool:
            try:
                writer.append(record)
            except OverCapacityError as error:
                refusals.append(error)
                return False
            return True

        wait_until(is_taken)
        wait_until(lambda: told().durable_records == 1)
        related.json("relay", "pause", stream)
        wait_until(lambda: told().state.value == "paused")
        taken = [is_taken() for _ in range(30)]
        wait_until(lambda: told().is_held)
        wait_until(lambda: told().tail_records == 1 + sum(taken))
        health = related.run("cluster", "health")
        related.json("relay", "resume", stream)
        wait_until(is_taken)
        wait_until(lambda: not told().is_held)

    assert 18 <= sum(taken) <= 20
    assert "eu-west is" in str(refusals[-1])
    assert (refusals[-1].code, refusals[-1].retry_after_s > 0) == (429, True)
    assert bound_bytes - 60_000 < max(lags) <= bound_bytes + 10_000, "headers are extra"
    assert health.returncode == 10
    assert b"shop/vans#0 takes no appends: eu-west is further behind" in health.stdout


@pytest.mark.long
def test_a_target_whose_relay_is_killed_is_shown_down_and_its_lag_grows(
    related: DemoProcess,
) -> None:
    assert isinstance(related.ready, dict)
    [relay] = related.ready["regions"]["eu-west"]["relays"]
    before = related.run("append", STREAM, "--region", "us-east", given=b"before\n")
    assert before.returncode == 0, before.stderr.decode()
    wait_until(lambda: (status_of(related)["state"], lag_of(related)) == ("live", 0))
    os.kill(relay["pid"], signal.SIGKILL)
    wait_until(lambda: status_of(related)["state"] == "down")
    appended = related.run("append", STREAM, "--region", "us-east", given=b"three\n")
    assert appended.returncode == 0, appended.stderr.decode()
    wait_until(lambda: lag_of(related) == 1)

    health = related.run("cluster", "health")
    assert health.returncode == 10
    assert b"from us-east to eu-west" in health.stdout
