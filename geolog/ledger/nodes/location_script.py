"""Asking a script where nodes stand: bounded in time and output, its answers kept for a while.

The script gets one node as its only argument and prints one location. If it fails, hangs or
prints something else, nothing of what was asked is taken over.
"""

import os
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress

import attrs
import trio

from topology.errors import InvalidArgumentError, InvalidConfigError, UnavailableError
from topology.location import Location

ANSWERS_MAX = 100_000
"""How many answers are kept; past it all are asked anew."""

_OUTPUT_BYTES_MAX = 16_384
"""Of what it prints so much is read; a script that prints more is ended."""


@attrs.frozen(kw_only=True)
class LocationScriptConfig:
    """Which script, and how long it may take."""

    path: str
    """The program to run, with the node as its only argument."""
    script_timeout_s: float = 5.0
    """It is killed after so long, and what was asked fails."""
    kept_s: float = 600.0
    """An answer is used for so long before the script is asked again."""

    def __attrs_post_init__(self) -> None:
        for name in ("script_timeout_s", "kept_s"):
            if getattr(self, name) <= 0:
                raise InvalidConfigError(f"{name} is {getattr(self, name)}; it must be above 0")


class LocationScript:
    """The script, and what it said of late."""

    def __init__(self, config: LocationScriptConfig) -> None:
        self._config = config
        self._kept: dict[str, tuple[float, Location]] = {}

    async def locate(self, nodes: Iterable[str]) -> dict[str, Location]:
        """Where each node stands; all or nothing.

        UnavailableError if the script fails or hangs, InvalidConfigError if what it prints is
        no location.
        """
        now_s = trio.current_time()
        found: dict[str, Location] = {}
        for node in nodes:
            kept = self._kept.get(node)
            if kept is not None and now_s - kept[0] < self._config.kept_s:
                found[node] = kept[1]
            else:
                found[node] = await self._ask(node)
        if len(self._kept) + len(found) > ANSWERS_MAX:
            self._kept.clear()
        for node, location in found.items():
            before = self._kept.get(node)
            if before is None or now_s - before[0] >= self._config.kept_s:
                self._kept[node] = (now_s, location)
        return found

    async def _ask(self, node: str) -> Location:
        path = self._config.path
        try:
            with trio.fail_after(self._config.script_timeout_s):
                done = await _run([path, node])
        except trio.TooSlowError:
            raise UnavailableError(
                f"the location script {path} took over {self._config.script_timeout_s:g} s for"
                f" node {node!r} and was ended"
            ) from None
        except OSError as error:
            raise UnavailableError(
                f"the location script {path} cannot be run: {error.strerror}"
            ) from None
        if done.returncode is None:
            raise InvalidConfigError(
                f"the location script {path} printed over {_OUTPUT_BYTES_MAX:,} bytes for node"
                f" {node!r} and was ended: it prints one location"
            )
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()[:200]
            raise UnavailableError(
                f"the location script {path} ended with {done.returncode} for node {node!r}"
                f" ({said or 'it said nothing'})"
            )
        try:
            return Location.parse(done.stdout.decode(errors="replace").strip())
        except InvalidArgumentError as error:
            raise InvalidConfigError(
                f"the location script {path} answered for node {node!r}: {error}"
            ) from None


@attrs.frozen
class _Done:
    """What a script said, and how it ended; None if it was ended."""

    returncode: int | None
    stdout: bytes
    stderr: bytes


async def _run(command: list[str]) -> _Done:
    """Run it to its end, or until it says too much; whatever it started ends with it."""
    process = await trio.lowlevel.open_process(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    said = [b"", b""]
    is_over = False
    try:
        async with process.stdout, process.stderr, trio.open_nursery() as nursery:

            async def read(at: int, stream: trio.abc.ReceiveStream) -> None:
                async for chunk in stream:
                    said[at] += chunk
                    if len(said[at]) > _OUTPUT_BYTES_MAX:
                        nursery.cancel_scope.cancel(reason="it says too much")

            nursery.start_soon(read, 0, process.stdout)
            nursery.start_soon(read, 1, process.stderr)
            await process.wait()
        is_over = not nursery.cancel_scope.cancelled_caught
    finally:
        if not is_over:
            await _kill(process)
    return _Done(process.returncode if is_over else None, *said)


async def _kill(process: trio.Process) -> None:
    """End it and all that it started, which may live though it ended: they are one group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with trio.CancelScope(shield=True):
        await process.wait()
