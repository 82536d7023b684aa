"""Non-blocking sockets for the connections that the emulator accepts and opens."""

import errno
import os
import socket

import trio

from geolog.transport.seam import Address, AddressInUseError

_BACKLOG_LENGTH = 1024
_ACCEPT_PAUSE_S = 0.1


def listen_on(address: Address) -> socket.socket:
    """Open a socket that listens on `address`. AddressInUseError."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setblocking(False)  # noqa: FBT003 - the standard library's own signature.
    try:
        listening.bind((address.host, address.port))
    except OSError as error:
        listening.close()
        raise AddressInUseError(
            f"another process listens on {address}: stop it or choose other ports"
        ) from error
    listening.listen(_BACKLOG_LENGTH)
    return listening


async def accept(listening: socket.socket) -> socket.socket:
    """Accept the next connection."""
    while True:
        try:
            accepted, _ = listening.accept()
        except BlockingIOError:
            await trio.lowlevel.wait_readable(listening)
        except OSError as error:
            if error.errno != errno.ECONNABORTED:
                # No file descriptor is free; clients wait until one is.
                await trio.sleep(_ACCEPT_PAUSE_S)
        else:
            return _set_up(accepted)


async def connect(address: Address) -> socket.socket:
    """Connect. An OSError gives the reason of a failure."""
    connecting = _set_up(socket.socket())
    try:
        try:
            connecting.connect((address.host, address.port))
        except BlockingIOError:
            await trio.lowlevel.wait_writable(connecting)
        failure = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failure:
            raise OSError(failure, os.strerror(failure))
    except BaseException:
        connecting.close()
        raise
    return connecting


async def receive(source: socket.socket, size: int) -> bytes:
    """Wait for bytes; empty at the end of the stream."""
    while True:
        try:
            return source.recv(size)
        except BlockingIOError:
            await trio.lowlevel.wait_readable(source)


async def wait_gone(source: socket.socket) -> None:
    """Wait until the peer has closed; forever once it has sent something."""
    while True:
        await trio.lowlevel.wait_readable(source)
        try:
            said = source.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            continue
        except OSError:
            return
        if not said:
            return
        await trio.sleep_forever()


def _set_up(each: socket.socket) -> socket.socket:
    each.setblocking(False)  # noqa: FBT003 - the standard library's own signature.
    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return each
