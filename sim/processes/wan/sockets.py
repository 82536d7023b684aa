"""Plain sockets that do not block, for connections that the emulator accepts and makes."""

import errno
import os
import socket

import trio

from geolog.transport.seam import Address, AddressInUseError

_BACKLOG_LENGTH = 1024
_ACCEPT_PAUSE_S = 0.1


def listen_on(address: Address) -> socket.socket:
    """A socket that listens there. AddressInUseError."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setblocking(False)  # noqa: FBT003 - the standard library's own signature.
    try:
        listening.bind((address.host, address.port))
    except OSError as error:
        listening.close()
        raise AddressInUseError(
            f"another process listens on {address}: end it, or choose other ports"
        ) from error
    listening.listen(_BACKLOG_LENGTH)
    return listening


async def accept(listening: socket.socket) -> socket.socket:
    """The next connection."""
    while True:
        try:
            accepted, _ = listening.accept()
        except BlockingIOError:
            await trio.lowlevel.wait_readable(listening)
        except OSError as error:
            if error.errno != errno.ECONNABORTED:
                # No file descriptor is left; those that connect wait meanwhile.
                await trio.sleep(_ACCEPT_PAUSE_S)
        else:
            return _set_up(accepted)


async def connect(address: Address) -> socket.socket:
    """Connect. OSError tells why not."""
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
    """Wait for bytes; none at the end of the stream."""
    while True:
        try:
            return source.recv(size)
        except BlockingIOError:
            await trio.lowlevel.wait_readable(source)


async def wait_gone(source: socket.socket) -> None:
    """Wait until the other side has ended; for ever once it has said something."""
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
