"""A client is an address, and a network of IPv6."""

import pytest

from geolog.transport.client_address import client_of


@pytest.mark.parametrize(
    ("peer", "client"),
    [
        ("10.1.2.3:4711", "10.1.2.3"),
        ("host.example:1", "host.example"),
        ("host", "host"),
        ("2001:db8:1:2:3:4:5:6:4711", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9:4711", "2001:db8:1:2::/64"),
        ("[2001:db8:1:3::9]:4711", "2001:db8:1:3::/64"),
        ("fe80::1%eth0:4711", "fe80::/64"),
        ("::ffff:10.1.2.3:4711", "10.1.2.3"),
        ("::1:4711", "::1"),
        ("no::address:here:1", "no::address:here"),
    ],
)
def test_hosts_of_one_network_are_one_client(peer: str, client: str) -> None:
    assert client_of(peer) == client
