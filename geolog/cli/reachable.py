"""Whether other hosts can reach a server at the address that it will be known by."""

import socket
from ipaddress import ip_address

import click

from geolog.cli.invocation import tell
from geolog.transport.seam import Address


def check_reachable(listen: Address, advertise: Address | None, *, option: str) -> None:
    """Refuse to be known by an address that means "any"; warn of a name that means this host.

    `option` sets the advertised address, e.g. `--advertise`.
    """
    if advertise is None and _is_unspecified(listen.host):
        raise click.UsageError(
            f"{listen} means all addresses of this host: give {option} HOST:{listen.port} as"
            " well, by which others reach it"
        )
    warn_if_only_here(listen)


def warn_if_only_here(listen: Address) -> None:
    """Warn if a host's name leads to loopback here, as Debian's /etc/hosts has it."""
    found = _address_of(listen)
    if found is not None and found != listen.host and ip_address(found).is_loopback:
        tell(
            f"warning: {listen.host} is {found} on this host, so no other host can reach"
            f" {listen}: give the name its real address in /etc/hosts"
        )


def _address_of(listen: Address) -> str | None:
    """First address of a host's name; None for `localhost`, and if there is none."""
    if listen.host == "localhost":
        return None
    try:
        found = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM)
    except OSError:
        return None  # Listening on it fails, and says why.
    return str(found[0][4][0]).partition("%")[0]


def _is_unspecified(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
