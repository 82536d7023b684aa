"""Free ports are such that nobody else takes them before their server does."""

import socket

from sim.cluster.ports import free_ports, outgoing_first


def test_free_ports_lie_below_those_of_outgoing_connections() -> None:
    assert max(free_ports(18)) < outgoing_first()


def test_a_port_is_found_once() -> None:
    found = [*free_ports(18), *free_ports(18)]

    assert len(set(found)) == 36


def test_a_port_that_somebody_listens_on_is_passed_over() -> None:
    with socket.socket() as listener:
        [port] = free_ports(1)
        listener.bind(("127.0.0.1", port + 1))
        listener.listen()

        assert port + 1 not in free_ports(4)
