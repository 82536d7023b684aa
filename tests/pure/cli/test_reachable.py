"""A server refuses to be known by an address that leads nowhere, and warns of one that does."""

import socket

import click
import pytest

from geolog.cli.reachable import check_reachable
from geolog.transport.seam import Address


def named(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Have each name lead to the address."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 4001))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: found)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_all_addresses_need_one_to_advertise(host: str) -> None:
    with pytest.raises(click.UsageError, match="give --advertise HOST:4001 as well"):
        check_reachable(Address(host, 4001), None, option="--advertise")

    check_reachable(Address(host, 4001), Address("n.example.net", 4001), option="--advertise")


def test_a_name_that_leads_to_loopback_here_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    named(monkeypatch, "127.0.1.1")

    check_reachable(Address("n.example.net", 4001), None, option="--advertise")

    told = capsys.readouterr().err
    assert told.startswith("warning: n.example.net is 127.0.1.1 on this host, so no other")


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.7", "localhost"])
def test_an_address_is_taken_at_its_word(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    check_reachable(Address(host, 4001), None, option="--advertise")

    assert capsys.readouterr().err == ""
