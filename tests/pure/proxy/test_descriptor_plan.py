"""A proxy takes as many clients as the descriptor limit allows, and keeps some for itself."""

import logging

import pytest

from geolog.transport.seam import Address
from regions.proxy.config import ProxyConfig
from regions.proxy.descriptor_plan import SocketPlan, TooFewSocketsError, plan_sockets

PLACE = Address("127.0.0.1", 0)


def config(*, has_http: bool) -> ProxyConfig:
    return ProxyConfig(region="a", listen=PLACE, http=PLACE if has_http else None)


@pytest.mark.parametrize(
    ("limit", "has_http", "connections", "http"),
    [
        (1 << 20, True, 10_000, 1_000),
        (1 << 20, False, 10_000, 0),
        (12_152, True, 10_000, 1_000),
        (12_151, True, 9_999, 1_000),
        (4096, True, 2576, 368),
        (1024, True, 504, 72),
        (1024, False, 640, 0),
        (277, True, 14, 2),
    ],
)
def test_clients_get_what_the_limit_leaves(
    limit: int, connections: int, http: int, *, has_http: bool
) -> None:
    planned = plan_sockets(limit, config(has_http=has_http))

    assert planned == SocketPlan(limit, connections, http)


@pytest.mark.parametrize("limit", [276, 64, 10])
def test_a_limit_below_the_minimum_is_refused(limit: int) -> None:
    with pytest.raises(TooFewSocketsError, match=f"limit: {limit}; .* needs at least 277"):
        plan_sockets(limit, config(has_http=True))


def test_a_proxy_that_takes_fewer_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        plan_sockets(4096, config(has_http=True))

    assert (
        "open-file limit: 4096; accepts 2576 WebSockets and 368 HTTP connections instead of"
        " 11000 together. To accept them all, raise the limit to 12152" in caplog.text
    )
