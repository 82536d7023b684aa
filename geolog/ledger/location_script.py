"""Asking a script where nodes stand: bounded in time and output, its answers kept for a while.

The script gets one node as its only argument and prints one location. If it fails, hangs or
prints something else, nothing of what was asked is taken over.
"""

import subprocess
from collections.abc import Iterable

import attrs
import trio

from topology.errors import InvalidArgumentError, InvalidConfigError, UnavailableError
from topology.location import Location

ANSWERS_MAX = 100_000
"""How many answers are kept; past it all are asked anew."""


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
                done = await trio.run_process(
                    [path, node],
                    stdin=subprocess.DEVNULL,
                    capture_stdout=True,
                    capture_stderr=True,
                    check=False,
                )
        except trio.TooSlowError:
            raise UnavailableError(
                f"the location script {path} took over {self._config.script_timeout_s:g} s for"
                f" node {node!r} and was ended"
            ) from None
        except OSError as error:
            raise UnavailableError(
                f"the location script {path} cannot be run: {error.strerror}"
            ) from None
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
