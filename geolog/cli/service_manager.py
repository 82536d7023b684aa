"""Messages of a server to the service manager that started it (systemd, `Type=notify`)."""

import os
import socket
from contextlib import suppress

NOTIFY_VARIABLE = "NOTIFY_SOCKET"
"""Set by systemd: a datagram socket, or the name of an abstract one after an `@`."""


def tell_service_manager(*assignments: str) -> None:
    """Send e.g. `READY=1` to the service manager; do nothing if there is none."""
    path = os.environ.get(NOTIFY_VARIABLE, "")
    if not path:
        return
    # A manager that has gone away is not a reason to stop serving.
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(f"\0{path[1:]}" if path.startswith("@") else path)
        sender.sendall("\n".join(assignments).encode())
