"""Ports that were found stay reserved for their servers."""

import socket
from contextlib import closing

import pytest

from sim.processes.cluster.ports import held_ports, outgoing_first
from topology.errors import UnavailableError


def listening_on(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))


def test_ports_lie_below_those_of_outgoing_connections() -> None:
    with held_ports(18) as ports:
        assert max(ports) < outgoing_first()


def test_a_port_is_found_only_once() -> None:
    with held_ports(18) as one, held_ports(18) as other:
        assert len({*one, *other}) == 36


def test_a_server_can_listen_repeatedly_on_the_port_held_for_it() -> None:
    with held_ports(1) as [port]:
        for _ in range(2):
            with listening_on(port), closing(socket.create_connection(("127.0.0.1", port))):
                pass


def test_a_search_skips_a_port_held_for_a_server_that_is_down() -> None:
    with (
        held_ports(1) as [port],
        held_ports(1, base_port=port + 1),
        held_ports(4) as found,
    ):
        assert port + 1 not in found


def test_a_named_port_that_somebody_listens_on_is_refused() -> None:
    with (
        held_ports(1) as [port],
        listening_on(port),
        pytest.raises(UnavailableError, match=f"port {port} is in use"),
        held_ports(1, base_port=port),
    ):
        pass


def test_named_ports_can_be_named_again_after_release() -> None:
    with held_ports(1) as [port]:
        pass
    for _ in range(2):
        with held_ports(1, base_port=port), listening_on(port) as listening:
            near = socket.create_connection(("127.0.0.1", port))
            listening.accept()[0].close()  # First: the kernel remembers the port for a while.
            near.close()


def test_wanted_ports_are_held_in_their_places_where_they_are_free() -> None:
    with held_ports(3) as free:
        pass
    one, two, three = free
    with held_ports(1, base_port=two), held_ports(4, wanted=free) as found:
        assert (found[0], found[2]) == (one, three)
        assert found[1] != two
        assert len({*found}) == 4


def test_a_wanted_port_that_the_kernel_remembers_is_free() -> None:
    with held_ports(1) as [port], listening_on(port) as listening:
        near = socket.create_connection(("127.0.0.1", port))
        listening.accept()[0].close()
        near.close()
    with held_ports(1, wanted=[port]) as found:
        assert found == [port]
