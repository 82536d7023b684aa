"""A write proxy says at its start how many clients its descriptor limit allows."""

import resource
import subprocess

import pytest

from tests.system.addresses import free_addresses
from tests.system.demo_process import GEOLOG, plain_environment, read_some


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (50, b"open-file limit: 50; a write proxy needs at least 277. Raise the limit"),
        (1024, b"accepts 504 WebSockets and 72 HTTP connections instead of 11000 together"),
    ],
)
def test_a_low_limit_is_told_at_the_start(limit: int, words: bytes) -> None:
    listen, http, zookeeper = (str(one) for one in free_addresses(3))
    places = ["--region", "a", "--listen", listen, "--http", http, "--zookeeper", zookeeper]

    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    with subprocess.Popen(
        [*GEOLOG, "serve", "proxy", *places],
        preexec_fn=lower,
        stderr=subprocess.PIPE,
        env=plain_environment(),
    ) as process:
        try:
            told = read_some(process.stderr, words)
        finally:
            process.kill()

    assert b"Traceback" not in told
