"""Programs in other languages, with what `make foreign` installs for them."""

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from geolog.background import open_background
from tests.static.checkout import ROOT
from tests.system.demo_process import WAIT_S_MAX, plain_environment

BIN = ROOT / ".venv" / "foreign" / "bin"


def installed(program: str) -> str:
    """The path of a program that is installed for foreign clients."""
    path = BIN / program
    if not path.exists():
        pytest.fail(f"{path} is missing: run `make foreign` first", pytrace=False)
    return str(path)


@attrs.define
class ForeignProgram:
    """A program that runs."""

    process: trio.Process
    lines: list[str] = attrs.field(factory=list)
    _is_over: bool = False
    _changed: trio.Event = attrs.field(factory=trio.Event)

    async def wait_lines(self, count: int) -> None:
        """Wait until it has printed so many lines."""
        with trio.fail_after(WAIT_S_MAX):
            while len(self.lines) < count:
                assert not self._is_over, f"it has ended: {self.lines[-3:]}"
                await self._changed.wait()

    async def run(self) -> None:
        """Take its lines until it ends."""
        rest = b""
        assert self.process.stdout is not None
        async for piece in self.process.stdout:
            *whole, rest = (rest + piece).split(b"\n")
            self.lines += [line.decode() for line in whole]
            self._tell_change()
        self._is_over = True
        self._tell_change()

    async def end(self) -> str:
        """End its stdin; wait until it has ended well. The last line that it has printed."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        with trio.fail_after(WAIT_S_MAX):
            while not self._is_over:
                await self._changed.wait()
            assert await self.process.wait() == 0, f"exit code {self.process.returncode}"
        return self.lines[-1]

    def _tell_change(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()


@asynccontextmanager
async def open_program(*arguments: str) -> AsyncIterator[ForeignProgram]:
    """Run a program; kill it at the end if it still runs. Its stderr is the test's."""
    process = await trio.lowlevel.open_process(
        arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=plain_environment(),
    )
    program = ForeignProgram(process)
    try:
        async with open_background() as nursery:
            nursery.start_soon(program.run)
            yield program
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
