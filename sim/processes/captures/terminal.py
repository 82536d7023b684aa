"""A terminal of a given width for one command; it keeps the output, including escapes."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

ROWS = 50


class Terminal:
    """The output of a command so far."""

    def __init__(self, screen: trio.lowlevel.FdStream) -> None:
        self._screen = screen
        self._printed = b""

    @property
    def text(self) -> str:
        """All of the output, without a character that is still incomplete."""
        return self._printed.decode(errors="ignore")

    async def wait_printed(self, words: str) -> str:
        """Wait until these words are printed or the command has ended."""
        while words not in self.text and await self._more():
            pass
        return self.text

    async def wait_end(self) -> str:
        """Wait until the command has ended."""
        while await self._more():
            pass
        return self.text

    async def _more(self) -> bool:
        try:
            data = await self._screen.receive_some(1 << 16)
        except trio.BrokenResourceError:  # Linux: no process has the terminal open any more.
            return False
        self._printed += data
        return bool(data)


@asynccontextmanager
async def open_terminal(
    argv: Sequence[str], *, columns: int, environment: Mapping[str, str]
) -> AsyncIterator[Terminal]:
    """Run a command on its own terminal; terminate it at the end of the block."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    async with trio.lowlevel.FdStream(ours) as screen:
        process = await trio.lowlevel.open_process(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            env={**environment, "TERM": "xterm-256color"},
        )
        os.close(theirs)
        try:
            yield Terminal(screen)
        finally:
            process.terminate()
            with trio.CancelScope(shield=True):
                await process.wait()
