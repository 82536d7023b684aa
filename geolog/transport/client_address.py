"""The client of a connection, for bounds of what each may have: an address.

A host with IPv6 has a whole network of addresses to itself, a /64, so that is one client.
"""

from ipaddress import IPv6Address, ip_address

_HOST_BITS = 64


def client_of(peer: str) -> str:
    """The client of a connection: its address, HOST:PORT, without the port."""
    host = peer.rpartition(":")[0] or peer
    return _network_of(host) if ":" in host else host


def _network_of(host: str) -> str:
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    if address.is_loopback:
        return str(address)
    network = IPv6Address(int(address) >> _HOST_BITS << _HOST_BITS)
    return f"{network}/{_HOST_BITS}"
