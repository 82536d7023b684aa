"""A bug that one session meets ends that session alone, and is noticed."""

import logging
import random

import pytest
from trio.testing import MockClock

from tests.pure.proxy.proxies import OpenSession, open_proxy
from tests.pure.whole.clusters import STREAM, open_world, values_of

APPEND = f"/v1/streams/{STREAM}/append"


class FaultyRandom(random.Random):
    """A random source that fails once it is told to: a bug in the middle of a session."""

    is_faulty = False

    def getrandbits(self, k: int, /) -> int:
        if self.is_faulty:
            raise ZeroDivisionError("a planted bug")
        return super().getrandbits(k)


@pytest.mark.parametrize("path", ["append", "read"])
async def test_a_bug_ends_its_session_with_500_and_no_other(
    autojump_clock: MockClock,
    open_session: OpenSession,
    caplog: pytest.LogCaptureFixture,
    path: str,
) -> None:
    rng = FaultyRandom(1)
    target = f"/v1/streams/{STREAM}/{path}"
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", rng=rng, bugs_count=1) as proxy,
        open_session(world.cluster, proxy, APPEND) as bystander,
    ):
        await bystander.receive()
        rng.is_faulty = True
        with caplog.at_level(logging.ERROR):
            async with open_session(world.cluster, proxy, target) as unlucky:
                told = await unlucky.receive_all()
        rng.is_faulty = False
        answer = await bystander.ask(value="still served")
        async with open_session(world.cluster, proxy, APPEND) as later:
            hello = await later.receive()
        read = await values_of(world.log)

    assert [(one["code"], one["outcome"]) for one in told] == [(500, "unknown")]
    assert unlucky.closed is not None
    assert unlucky.closed.close_code == 4500
    assert "ZeroDivisionError: a planted bug" in caplog.text
    assert (answer["sequence"], hello["type"]) == (0, "hello")
    assert read == [b"still served"]
