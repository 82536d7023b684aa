"""Shows a progress line on a terminal, for work that takes more than two seconds."""

import shutil
from types import TracebackType
from typing import Self, TextIO

import trio

_SHOWN_AFTER_S = 2.0
_SHOWN_EVERY_S = 0.2
_BAR_CELLS = 24


class Progress:
    """One line, redrawn in place; nothing if stderr is not a terminal."""

    def __init__(
        self, noun: str, stream: TextIO, *, is_forced: bool = False, is_silent: bool = False
    ) -> None:
        self._noun = noun
        self._stream = stream
        self._is_watched = not is_silent and (is_forced or stream.isatty())
        self._started_s = 0.0
        self._shown_s = 0.0
        self._is_shown = False
        self._is_forced = is_forced

    def __enter__(self) -> Self:
        self._started_s = self._shown_s = trio.current_time()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_shown and self._is_forced:
            self._write("\n")
        else:
            self.clear()

    def at(self, done: int, total: int | None = None, *, share: float | None = None) -> None:
        """Update the progress: `done` of `total`, or a `share` of the whole, if known."""
        if self._is_due():
            share = done / total if total else share
            elapsed_s = self._shown_s - self._started_s
            self._draw(progress_line(done, self._noun, share, elapsed_s))

    def clear(self) -> None:
        """Remove the line until there is more progress, so that others can print."""
        if self._is_shown:
            self._write("\r\x1b[K")

    def _is_due(self) -> bool:
        """Decide whether to draw the line now."""
        if not self._is_watched:
            return False
        now_s = trio.current_time()
        is_due = now_s - self._shown_s >= _SHOWN_EVERY_S and (
            self._is_forced or now_s - self._started_s >= _SHOWN_AFTER_S
        )
        if is_due:
            self._shown_s = now_s
        return is_due

    def _draw(self, line: str) -> None:
        self._is_shown = True
        # A line that wraps could not be redrawn.
        self._write(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def progress_line(done: int, noun: str, share: float | None, elapsed_s: float) -> str:
    """Format progress: the count, the rate, and for a known whole a bar and the time left."""
    return line_with_bar(
        f"{done:,} {noun}, {done / max(elapsed_s, 1e-9):,.0f}/s", share, elapsed_s
    )


def line_with_bar(told: str, share: float | None, elapsed_s: float) -> str:
    """Format a text, and for a known whole a bar and the time left."""
    if share is None:
        return told
    filled = min(_BAR_CELLS, int(_BAR_CELLS * share))
    bar = f"[{'█' * filled}{'░' * (_BAR_CELLS - filled)}] {int(100 * share):3}%"
    if not 0 < share < 1:
        return f"{bar} {told}"
    left_s = round(elapsed_s * (1 - share) / share)
    return f"{bar} {told}, {left_s // 60}:{left_s % 60:02} left"
