"""Renews all pictures of the docs: `make captures`.

That target runs `python -P -m sim.processes.captures docs/captures`.

A demo runs its story on a terminal of 80 columns. While it stays up, the other commands run
next to it, as in a second terminal.
"""

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import attrs
import trio

from sim.processes.captures.picture import picture_of
from sim.processes.captures.terminal import Terminal, open_terminal
from sim.processes.cluster.readyfile import write_whole

COLUMNS = 80
LINES_COUNT = 1_500_000
"""Lines of the file to append: enough to keep the progress bar near half for a while."""

_STAYS = "The cluster runs until Ctrl-C."
_SHOTS = (
    ("help", "geolog --help"),
    ("node-ls", "geolog node ls"),
    ("stream-ls", "geolog stream ls --long"),
    ("cluster-health", "geolog cluster health"),
    ("stream-describe", "geolog stream describe demo/flights"),
    ("segment-ls", "geolog segment ls demo/flights"),
    ("wan-show", "geolog wan set us-east eu-west --rtt 120ms --jitter 5ms --stall-rate 1%"),
)


@attrs.frozen(kw_only=True)
class Studio:
    """The directory of the pictures, and the environment of the commands."""

    pictures: Path
    home: Path
    """Working directory of the commands; it contains only what they need."""
    environment: Mapping[str, str]

    def open(self, command: str) -> AbstractAsyncContextManager[Terminal]:
        """Open a terminal on which a shell runs the command."""
        argv = ("sh", "-c", f"cd {shlex.quote(str(self.home))} && {command}")
        return open_terminal(argv, columns=COLUMNS, environment=self.environment)

    def keep(self, name: str, title: str, output: str) -> None:
        """Write one picture and print its name."""
        as_in_checkout = output.replace(str(Path(sys.executable).parent), ".venv/bin")
        svg = picture_of(as_in_checkout, title=title, columns=COLUMNS)
        write_whole(self.pictures / f"{name}.svg", svg)
        sys.stdout.write(f"{self.pictures / name}.svg: {len(svg):,} bytes\n")

    async def shoot(self, name: str, command: str) -> None:
        """Take the picture of a command from its prompt to its end."""
        async with self.open(command) as terminal:
            self.keep(name, command, _typed(command) + await terminal.wait_end())


async def take_all(studio: Studio) -> None:
    """Take all pictures, with one demo."""
    async with studio.open("exec geolog demo --stay --data-dir demo") as demo:
        lost = await demo.wait_printed("SIGKILL")
        studio.keep("demo-running", "geolog demo", lost)
        told = await demo.wait_printed(_STAYS)
        if _STAYS not in told:
            raise SystemExit(f"the demo ended too early:\n{told}")
        studio.keep("demo-end", "geolog demo", told[told.index("\x1b[32m●") :])
        (studio.home / "geolog.toml").symlink_to("demo/geolog.toml")
        for name, command in _SHOTS:
            await studio.shoot(name, command)
        await _shoot_append(studio)


async def _shoot_append(studio: Studio) -> None:
    """Take the picture of an append whose progress bar is half full."""
    orders = (f"order {number}, to be sent to its buyer\n" for number in range(LINES_COUNT))
    with (studio.home / "orders.txt").open("w") as file:
        file.writelines(orders)
    async with studio.open("geolog stream create shop/orders") as terminal:
        await terminal.wait_end()
    command = "geolog append shop/orders orders.txt --writer loader"
    async with studio.open(command) as terminal:
        half = await terminal.wait_printed("]  5")
        studio.keep("append", "geolog append", _typed(command) + half)


def _typed(command: str) -> str:
    return f"\x1b[32m$\x1b[0m \x1b[1m{command}\x1b[0m\n"


def main() -> None:
    """Write all pictures to the directory given as argument."""
    pictures = Path(sys.argv[1]).absolute()
    pictures.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="geolog-"))
    commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: os.environ[name] for name in ("HOME", "JAVA_HOME") if name in os.environ}
    environment = kept | {
        "PATH": commands,
        "LANG": "C.UTF-8",
    }
    try:
        trio.run(take_all, Studio(pictures=pictures, home=home, environment=environment))
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
