"""Servers reuse the memory of large buffers instead of having the kernel clear it again."""

import platform
import subprocess
import sys

import pytest

_PASS_BUFFERS = """
import resource
from geolog.cli.freed_memory import keep_freed_memory

keep_freed_memory()

def faults_of_a_round():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [bytearray(size << 10) for size in (700, 1024, 900, 300, 2000)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults_of_a_round()
print(max(faults_of_a_round() for _ in range(5)))
"""


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt"
)
def test_the_pages_of_a_freed_buffer_are_used_again() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _PASS_BUFFERS], capture_output=True, check=True
    )

    pages_of_a_round = 4924 // 4
    assert int(done.stdout) < pages_of_a_round // 10
