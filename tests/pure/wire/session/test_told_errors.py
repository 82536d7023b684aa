"""Errors on their way from a proxy to a client."""

import pytest

from geolog.wire.session.told_errors import error_of, told
from topology import errors
from topology.errors import GeologError

KINDS = [
    one
    for one in vars(errors).values()
    if isinstance(one, type) and issubclass(one, GeologError)
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda one: one.__name__)
def test_a_client_knows_whether_it_helps_to_try_again(kind: type[GeologError]) -> None:
    at_proxy = kind("it failed")

    at_client = error_of(told(at_proxy))

    assert at_client.code == at_proxy.code
    assert at_client.retriable == at_proxy.retriable
    assert str(at_client) == "it failed"
