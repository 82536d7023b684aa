"""Synchronous scripts and asyncio programs, run as users run them, on a real cluster."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.demo_process import WAIT_S_MAX, DemoProcess, plain_environment, read_some

CONNECT = """
import asyncio, atexit, os, signal, sys, threading, tomllib
from pathlib import Path
joined_at_exit = []  # After geolog has ended, which is imported later.
atexit.register(lambda: [thread.join() for thread in joined_at_exit])
import geolog

settings = tomllib.loads(Path(os.environ["GEOLOG_CONFIG"]).read_text())
where = {"zookeeper": settings["zookeeper"], "cluster": settings["cluster"], "region": "a"}
quorums = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2, "min_regions": 2}
"""


def started(demo: DemoProcess, program: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-P", "-c", CONNECT + program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=plain_environment() | {"GEOLOG_CONFIG": str(demo.config)},
        cwd=Path(__file__).parents[2],
    )


def run(demo: DemoProcess, program: str) -> str:
    """Run a program; return what it prints. It must exit with 0 and an empty stderr."""
    with started(demo, program) as process:
        try:
            out, err = process.communicate(timeout=WAIT_S_MAX)
        finally:
            process.kill()
    assert (process.returncode, err.decode()) == (0, "")
    return out.decode()


def values_of(demo: DemoProcess, stream: str) -> list[str]:
    done = demo.run("read", stream, "-o", "jsonl")
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line)["value"] for line in done.stdout.splitlines()]


def test_a_synchronous_script_appends_and_reads(demo: DemoProcess) -> None:
    printed = run(
        demo,
        """
with geolog.blocking.connect(**where) as log:
    log.create_stream("python/plain", **quorums)
    with log.open_writer("python/plain") as writer:
        print(writer.append(b"0").sequence)
        for number in range(1, 5000):
            writer.append_nowait(b"%d" % number)
    with log.open_reader("python/plain") as reader:
        print([int(record.value) for record in reader] == list(range(5000)))
print(any(thread.name == "geolog trio" for thread in threading.enumerate()))
""",
    )

    assert printed.split() == ["0", "True", "True"]
    assert len(values_of(demo, "python/plain")) == 5000


def test_an_asyncio_program_appends_and_follows(demo: DemoProcess) -> None:
    printed = run(
        demo,
        """
async def main():
    async with geolog.aio.connect(**where) as log:
        await log.create_stream("python/aio", **quorums)
        async with log.open_reader("python/aio", follow=True) as reader:
            async def follow(count):
                return [int((await anext(reader)).value) for _ in range(count)]
            following = asyncio.create_task(follow(2000))
            async with log.open_writer("python/aio") as writer:
                await asyncio.gather(*(writer.append(b"%d" % n) for n in range(2000)))
            print(await following == list(range(2000)))
            try:
                async with asyncio.timeout(0.1):
                    await anext(reader)
            except TimeoutError:
                print("nothing more")
asyncio.run(main())
""",
    )

    assert printed.splitlines() == ["True", "nothing more"]


def test_a_forked_child_gets_an_error_and_leaves_its_parent_alone(
    demo: DemoProcess,
) -> None:
    printed = run(
        demo,
        """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Later Pythons warn of forks with threads.
with geolog.blocking.connect(**where) as log:
    log.create_stream("python/fork", **quorums)
    with (
        log.open_writer("python/fork") as writer,
        log.open_reader("python/fork", follow=True) as reader,
    ):
        writer.append(b"before")
        if os.fork() == 0:
            for use in (lambda: writer.append(b"no"), lambda: next(reader), log.list_streams):
                try:
                    use()
                except geolog.blocking.ForkedError as error:
                    print(error.code, flush=True)
            with geolog.blocking.connect(**where) as own:
                print(len(own.list_streams("python")) > 0, flush=True)
            sys.exit(7)
        print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
        for _ in range(20):
            writer.append(b"after")
        log.describe_stream("python/fork")
        print(len([next(reader)]))
""",
    )

    assert printed.split() == ["400", "400", "400", "True", "7", "1"]
    assert values_of(demo, "python/fork") == ["before"] + ["after"] * 20


def test_a_script_that_closes_nothing_still_ends(demo: DemoProcess) -> None:
    printed = run(
        demo,
        """
log = geolog.blocking.connect(**where).__enter__()
log.create_stream("python/left-open", **quorums)
writer = log.open_writer("python/left-open").__enter__()
print(writer.append(b"kept").sequence)
writer.append_nowait(b"perhaps")
def follow():
    try:
        with log.open_reader("python/left-open", follow=True) as reader:
            list(reader)
    except geolog.blocking.ClosedError:
        print("closed")
joined_at_exit.append(threading.Thread(target=follow, daemon=True))
joined_at_exit[0].start()
""",
    )

    assert printed.split() == ["0", "closed"]
    assert values_of(demo, "python/left-open")[0] == "kept"


@pytest.mark.parametrize(
    "program",
    [
        """
with geolog.blocking.connect(**where) as log:
    log.create_stream("python/interrupted", **quorums, if_not_exists=True)
    with log.open_reader("python/interrupted", follow=True) as reader:
        print("waits", flush=True)
        list(reader)
""",
        """
async def main():
    async with geolog.aio.connect(**where) as log:
        await log.create_stream("python/interrupted", **quorums, if_not_exists=True)
        async with log.open_reader("python/interrupted", follow=True) as reader:
            print("waits", flush=True)
            [record async for record in reader]
asyncio.run(main())
""",
    ],
    ids=["blocking", "aio"],
)
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_a_waiting_program(demo: DemoProcess, program: str) -> None:
    with started(demo, program) as process:
        try:
            read_some(process.stdout, b"waits")
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=WAIT_S_MAX)
        finally:
            process.kill()

    assert process.returncode == -signal.SIGINT, err.decode()
    assert err.decode().splitlines()[-1] == "KeyboardInterrupt"


@pytest.mark.parametrize(
    "program",
    [
        """
import trio
async def main():
    async with geolog.connect(**where) as log:
        await log.create_stream("python/exit", **quorums, if_not_exists=True)
        async with log.open_writer("python/exit") as writer, trio.open_nursery():
            await writer.append(b"kept")
            print("exits", flush=True)
            sys.exit(7)
trio.run(main)
""",
        """
with geolog.blocking.connect(**where) as log:
    log.create_stream("python/exit", **quorums, if_not_exists=True)
    with log.open_writer("python/exit") as writer:
        writer.append(b"kept")
        print("exits", flush=True)
        sys.exit(7)
""",
        """
async def main():
    async with geolog.aio.connect(**where) as log:
        await log.create_stream("python/exit", **quorums, if_not_exists=True)
        async with log.open_writer("python/exit") as writer:
            await writer.append(b"kept")
            print("exits", flush=True)
            sys.exit(7)
asyncio.run(main())
""",
    ],
    ids=["trio", "blocking", "aio"],
)
def test_an_exit_within_a_block_ends_the_program_with_its_code(
    demo: DemoProcess, program: str
) -> None:
    with started(demo, program) as process:
        try:
            out, err = process.communicate(timeout=WAIT_S_MAX)
        finally:
            process.kill()

    assert (process.returncode, err.decode()) == (7, "")
    assert out == b"exits\n"
