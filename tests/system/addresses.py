"""Addresses for the servers of tests."""

import atexit
from contextlib import ExitStack

from geolog.transport.seam import Address
from sim.processes.cluster.ports import held_ports

_HELD = ExitStack()
atexit.register(_HELD.close)


def free_addresses(count: int) -> list[Address]:
    """Addresses on which nobody listens, reserved for the caller while this process runs."""
    return [Address("127.0.0.1", port) for port in _HELD.enter_context(held_ports(count))]
