"""Runs a script that prints node locations; bounded in time and output, with cached answers.

The script gets one node id as its only argument and prints one location. If it fails, hangs or
prints anything else, the whole request fails.
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
"""Maximum cached answers; beyond that the cache is cleared."""

_OUTPUT_BYTES_MAX = 16_384
"""Maximum bytes read from the script; a script that prints more is killed."""


@attrs.frozen(kw_only=True)
class LocationScriptConfig:
    """The script, and its limits."""

    path: str
    """Program to run, with the node id as its only argument."""
    script_timeout_s: float = 5.0
    """Kill the script after this time; the request then fails."""
    kept_s: float = 600.0
    """Use an answer for this long before running the script again."""

    def __attrs_post_init__(self) -> None:
        for name in ("script_timeout_s", "kept_s"):
            if getattr(self, name) <= 0:
                raise InvalidConfigError(f"{name} must be positive, got {getattr(self, name)}")


class LocationScript:
    """The script, with its recent answers."""

    def __init__(self, config: LocationScriptConfig) -> None:
        self._config = config
        self._kept: dict[str, tuple[float, Location]] = {}

    async def locate(self, nodes: Iterable[str]) -> dict[str, Location]:
        """Location of each node; all or nothing.

        UnavailableError if the script fails or hangs, InvalidConfigError if its output is not a
        location.
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
                f"location script {path} took over {self._config.script_timeout_s:g} s for"
                f" node {node!r} and was killed"
            ) from None
        except OSError as error:
            raise UnavailableError(
                f"cannot run location script {path}: {error.strerror}"
            ) from None
        if done.returncode is None:
            raise InvalidConfigError(
                f"location script {path} printed over {_OUTPUT_BYTES_MAX:,} bytes for node"
                f" {node!r} and was killed; it must print one location"
            )
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()[:200]
            raise UnavailableError(
                f"location script {path} exited with {done.returncode} for node {node!r}"
                f" ({said or 'no error output'})"
            )
        try:
            return Location.parse(done.stdout.decode(errors="replace").strip())
        except InvalidArgumentError as error:
            raise InvalidConfigError(
                f"location script {path} gave no valid location for node {node!r}: {error}"
            ) from None


@attrs.frozen
class _Done:
    """Output and exit status of a script; the status is None if it was killed."""

    returncode: int | None
    stdout: bytes
    stderr: bytes


async def _run(command: list[str]) -> _Done:
    """Run the command to its end, or until it prints too much; all its children end too."""
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
                        nursery.cancel_scope.cancel(reason="it prints too much")

            nursery.start_soon(read, 0, process.stdout)
            nursery.start_soon(read, 1, process.stderr)
            await process.wait()
        is_over = not nursery.cancel_scope.cancelled_caught
    finally:
        if not is_over:
            await _kill(process)
    return _Done(process.returncode if is_over else None, *said)


async def _kill(process: trio.Process) -> None:
    """Kill the whole process group: children may outlive the script itself."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with trio.CancelScope(shield=True):
        await process.wait()
