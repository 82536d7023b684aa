"""A server whose wall clock can be set while it runs, for drills.

`python -P -m sim.processes.cluster.settable_clock FILE serve …` runs the command with a wall
clock that is off by as many microseconds as the file says, a signed integer of eight bytes.
Monotonic clocks, which decide about deadlines, and those of other processes stay as they are.
"""

import mmap
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path

_BYTES = 8


def set_clock(file: Path, offset_s: float) -> None:
    """Let the servers of this file be so far ahead, or behind if negative."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(_BYTES))
    # In place: the server has the file mapped.
    with file.open("r+b") as opened:
        opened.write(round(offset_s * 1e6).to_bytes(_BYTES, sys.byteorder, signed=True))


def shifted(clock_ns: Callable[[], int], file: Path) -> Callable[[], int]:
    """The clock, with the offset that the file has when it is read."""
    with file.open("r+b") as opened:
        mapped = mmap.mmap(opened.fileno(), _BYTES, access=mmap.ACCESS_READ)

    def now_ns() -> int:
        offset_us = int.from_bytes(mapped[:_BYTES], sys.byteorder, signed=True)
        return clock_ns() + 1000 * offset_us

    return now_ns


def main() -> None:
    """Run the command line behind the file's name."""
    file = Path(sys.argv.pop(1))
    time.time_ns = shifted(time.time_ns, file)  # noqa: TID251 - the one clock that is bent.
    runpy.run_module("geolog", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
