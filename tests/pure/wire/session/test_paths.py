"""Paths of a proxy's endpoint: what they name, and what is refused."""

import pytest

from geolog.protocol.stream_state import StreamName
from geolog.wire.session.paths import AppendPath, ReadPath, UnknownPathError, parse_path
from topology.errors import InvalidArgumentError

ORDERS = StreamName("shop", "orders")


def test_an_append_path_names_a_stream() -> None:
    assert parse_path("/v1/streams/shop/orders/append") == AppendPath(stream=ORDERS)


@pytest.mark.parametrize(
    "path",
    [
        AppendPath(stream=ORDERS),
        AppendPath(stream=ORDERS, partition=3, writer="till 7&x", redirect="forward"),
        AppendPath(stream=ORDERS, avoid=("h:1", "[::1]:2")),
    ],
)
def test_the_text_of_a_path_is_parsed_back(path: AppendPath) -> None:
    assert parse_path(path.text()) == path


def test_a_read_path_names_a_range() -> None:
    target = (
        "/v1/streams/shop/orders/read?from=last:10&to=time:-1h&count=5&follow=1&credit=2"
        "&partition=1&cursor=c&shared=1&take=1"
    )

    assert parse_path(target) == ReadPath(
        stream=ORDERS, partition=1, start="last:10", stop="time:-1h", count=5,
        is_following=True, credit=2, cursor="c", is_shared=True, is_taking=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/v1/streams/shop/append",
        "/v1/streams/a/b/c/append",
        "/v2/streams/shop/orders/read",
        "//s[ssion",
        "http://[::1/v1/session",
    ],
)
def test_another_path_is_refused_with_those_that_exist(target: str) -> None:
    with pytest.raises(UnknownPathError, match="NAMESPACE/NAME/append"):
        parse_path(target)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("/v1/streams/..%2Fx/orders/append", "is not named NAMESPACE/NAME"),
        ("/v1/streams/shop/%00/append", "is not a name"),
        ("/v1/streams/shop/" + "n" * 10_000 + "/append", r"\(10000 characters\) is not a name"),
        ("/v1/streams/shop/\u043erders/append", "did you mean"),
        (f"/v1/streams/shop/orders/append?avoid={'h:1,' * 17}", "avoid has 17 addresses"),
        ("/v1/streams/shop/orders/append?partition=x", "partition='x' is not a whole number"),
        ("/v1/streams/shop/orders/append?partition=-1", "not a whole number"),
        ("/v1/streams/shop/orders/append?partiton=1", "did you mean 'partition'"),
        ("/v1/streams/shop/orders/append?writer=a&writer=b", "given twice"),
        ("/v1/streams/shop/orders/append?redirect=no", "neither follow nor forward"),
        ("/v1/streams/shop/orders/read?follow=yes", "neither 0 nor 1"),
    ],
)
def test_a_bad_name_or_query_is_refused_with_its_value(target: str, told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        parse_path(target)
