"""A server whose disk hangs still ends in time, and says what it waited for."""

import signal
import subprocess
import sys
from pathlib import Path

from regions.storage.data_directories import open_data_directories
from tests.system.demo_process import WAIT_S_MAX

HANGING_SERVER = """
import sys, threading
from pathlib import Path
import trio
from geolog.cli.nouns import serve
from regions.storage.data_directories import open_data_directories, why_late

serve.END_S = 0.3
disks = []

async def run(tell_ready):
    async with open_data_directories([Path(one) for one in sys.argv[1:]]) as opened:
        disks.extend(opened)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(opened[1].thread.do, threading.Event().wait)
            while not opened[1].is_busy:
                await trio.sleep(0)
            tell_ready({})

serve._run(serve.Service("storage", run, why_late=lambda: why_late(disks)))
"""


def test_a_hanging_disk_does_not_keep_a_server_from_ending(tmp_path: Path) -> None:
    directories = [str(tmp_path / name) for name in ("good", "hanging")]
    with subprocess.Popen(
        [sys.executable, "-P", "-c", HANGING_SERVER, *directories],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as server:
        assert server.stdout is not None
        assert b'"ready"' in server.stdout.readline()
        server.send_signal(signal.SIGTERM)
        assert server.wait(WAIT_S_MAX) == 1
        assert server.stderr is not None
        said = server.stderr.read().decode()
    assert said.startswith("geolog: the storage server did not stop within 0.3 s; exiting")
    assert f"the disk of {directories[1]} does not answer" in said


async def test_directories_on_one_file_system_share_its_space(tmp_path: Path) -> None:
    async with open_data_directories([tmp_path / "alone"]) as (alone,):
        whole_bytes = await alone.free_bytes()
    async with open_data_directories([tmp_path / name for name in "abc"]) as disks:
        shares = [await disk.free_bytes() for disk in disks]

    # Other processes use the file system too.
    assert 0.8 * whole_bytes < sum(shares) < 1.2 * whole_bytes
